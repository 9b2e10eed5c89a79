"""Softmax, likelihood and slope of a chunk of logits in one kernel, for the head of
student/loss/training_loss.py.

Each row is read twice and its slope is written over it, so a chunk takes the memory of its logits alone. As torch's
operations the same passes over the vocabulary take three times as long (docs/log.md). Needs a GPU and Triton.
"""

import torch
import triton
import triton.language as tl

_BLOCK = 8192


@triton.jit  # type: ignore[untyped-decorator]
def _slopes_kernel(  # type: ignore[no-untyped-def]
    logits_at, labels_at, weights_at, nll_at, right_at, words, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    logits_at += row * words
    label = tl.load(labels_at + row)
    best, best_place, total = -float("inf"), tl.zeros((), tl.int64), 0.0
    for start in range(0, words, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        values = tl.load(logits_at + offsets, mask=offsets < words, other=-float("inf")).to(tl.float32)
        highest = tl.max(values, 0)
        if highest > best:
            total *= tl.exp(best - highest)
            best_place = (start + tl.argmax(values, 0)).to(tl.int64)
            best = highest
        total += tl.sum(tl.exp(values - best), 0)
    normaliser = best + tl.log(total)
    own = tl.load(logits_at + label).to(tl.float32)
    tl.store(nll_at + row, normaliser - own)
    tl.store(right_at + row, (best_place == label).to(tl.uint8))
    tl.debug_barrier()  # the label's logit is read before its place is written
    weight = tl.load(weights_at + row)
    for start in range(0, words, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        values = tl.load(logits_at + offsets, mask=offsets < words, other=-float("inf")).to(tl.float32)
        slope = tl.exp(values - normaliser)
        slope = tl.where(offsets == label, slope - 1, slope) * weight
        tl.store(logits_at + offsets, slope.to(logits_at.dtype.element_ty), mask=offsets < words)


def slopes_(logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn `logits` [n, words] into the slopes of weights . nll, in place.

    `logits` are contiguous, `labels` int64[n], `weights` float32[n]. Gives back nll float32[n], and bool[n]: whether
    the label is the likeliest word.
    """
    nll = torch.empty(len(labels), dtype=torch.float32, device=logits.device)
    right = torch.empty(len(labels), dtype=torch.uint8, device=logits.device)
    with torch.cuda.device(logits.device):
        _slopes_kernel[(len(labels),)](
            logits, labels, weights, nll, right, logits.shape[1], BLOCK=_BLOCK, num_warps=16
        )
    return nll, right.bool()
