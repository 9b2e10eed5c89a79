"""The divergence of a student's distribution from a teacher's of which only the likeliest tokens are known.

    KL = sum over known tokens  p_i (log p_i - log q_i)  +  p_rest (log p_rest - log q_rest)

p is the teacher, q the student; all tokens outside the teacher's top k are one bucket on both sides. By the log-sum
inequality this never exceeds the KL over the whole vocabulary, and equals it when every token is known. Unlike the
sum over a renormalised top k it does not teach that nothing else can come next.

The temperature is 1: a softer teacher needs the sum of p^(1/T) over the whole vocabulary, of which the known tokens
hold only a part. Does not cover where the distributions come from (student/data/teacher_logprobs.py).
"""

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from student.loss.training_loss import Extra


def topk_divergence(logits: torch.Tensor, ids: torch.Tensor, logprobs: torch.Tensor) -> torch.Tensor:
    """KL(teacher || student) in nats of every position [n]; 0, without gradient, where the teacher says nothing.

    `logits` [n, V]: the student's, in float32. `ids` [n, k] and `logprobs` [n, k]: the teacher's likeliest tokens, no
    id twice in a row, and their natural log-probabilities. Places with an id outside 0..V-1 or with -inf are empty;
    an unknown token's share falls to the bucket. Gradients reach `logits` only.
    """
    values: torch.Tensor = _TopK.apply(logits, ids, logprobs)  # type: ignore[no-untyped-call]
    return values


class _TopK(torch.autograd.Function):
    """The gradient in closed form: q - p, with p_rest spread over the other tokens as q spreads it.

    log q_rest is a logsumexp over the other tokens. As log(1 - sum q_i) it would have no correct digit where the
    student is sure, which is where most positions end up.
    """

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, ids: torch.Tensor, logprobs: torch.Tensor) -> torch.Tensor:
        known = (ids >= 0) & (ids < logits.shape[-1]) & (logprobs > -torch.inf)
        has_known = known.any(dim=-1)
        # An empty place repeats a known token, so that it changes no other one.
        ids = ids.where(known, ids.where(known, 0).amax(dim=-1, keepdim=True)).long()
        others = logits.scatter(1, ids, -torch.inf)
        log_others = torch.logsumexp(others, dim=-1)
        teacher, teacher_rest = _teacher(logprobs.to(logits.dtype).masked_fill(~known, -torch.inf), log_others)
        # The least number instead of -inf: exp(-inf - least) is 0 where no other token is left.
        log_others.clamp_min_(torch.finfo(logits.dtype).min)
        student = logits.gather(1, ids).masked_fill(~known, -torch.inf)
        total = torch.logaddexp(torch.logsumexp(student, dim=-1), log_others)
        student, student_rest = student - total[:, None], log_others - total
        of_known = torch.xlogy(teacher, teacher) - teacher * student.masked_fill(~known, 0.0)
        of_rest = torch.xlogy(teacher_rest, teacher_rest) - teacher_rest * student_rest
        ctx.save_for_backward(
            others, log_others, ids, student.exp() - teacher, student_rest.exp() - teacher_rest, has_known
        )
        return torch.where(has_known, of_known.sum(dim=-1) + of_rest, 0.0)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        others, log_others, ids, of_known, of_rest, has_known = ctx.saved_tensors
        grad = torch.where(has_known, grad, 0.0)
        spread = (others - log_others[:, None]).exp_().mul_((grad * of_rest)[:, None])
        return spread.scatter_add_(1, ids, of_known * grad[:, None]), None, None


def _teacher(logprobs: torch.Tensor, log_others: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities of the known tokens and of all others, together 1.

    Stored values are rounded: a sum above 1 is scaled down to it, and so is any sum where there are no other tokens.
    """
    known = logprobs.exp()
    total = known.sum(dim=-1)
    covers_all = (total > 1) | (log_others == -torch.inf)
    return known / total.where(covers_all, 1.0)[:, None], torch.where(covers_all, 0.0, 1 - total)


def from_teacher(ids: torch.Tensor, logprobs: torch.Tensor, weights: torch.Tensor) -> "Extra":
    """The weighted sum of divergences as a further loss of a pass; `weights` float32[n]: what each position's counts.

    `ids`, `logprobs` as `topk_divergence` takes them, for all scored positions.
    """

    def extra(logits: torch.Tensor, part: slice) -> torch.Tensor:
        return (topk_divergence(logits, ids[part], logprobs[part]) * weights[part]).sum()

    return extra
