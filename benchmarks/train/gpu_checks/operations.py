"""Checks of single operations: the card's rates, packed attention, the loss head, the optimizer, checkpoints."""

import time
from typing import Any

import torch
from gpu_checks.common import Ground, Wrong, median_seconds, relative_difference


def card(ground: Ground) -> tuple[str, dict[str, Any]]:
    """The card as planning knows it, its measured product rate and copy bandwidth."""
    from distill.machine.hardware import gpu_of_device
    from student.models.flops import matmul_rate

    if ground.device == "cpu":
        return f"CPU, torch {torch.__version__}, {matmul_rate('cpu', torch.float32) / 1e9:,.0f} GFLOP/s", {}
    properties = torch.cuda.get_device_properties(0)
    known = gpu_of_device(properties.name, properties.total_memory / 2**30)
    rate = matmul_rate("cuda", torch.bfloat16)
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    copied = 2 * source.numel() / median_seconds(lambda: target.copy_(source))
    if known is None:
        raise Wrong(f"{properties.name} is not in the table of distill/machine/hardware.py")
    free, total = torch.cuda.mem_get_info()
    return (
        f"{properties.name}, torch {torch.__version__}: bf16 {rate / 1e12:,.0f} TFLOP/s "
        f"({rate / known.bf16:.0%} of nominal), {copied / 1e12:.2f} TB/s, "  # type: ignore[operator]
        f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free",
        {"rate": rate, "bandwidth": copied, "context_bytes": total - free},
    )


def attention(ground: Ground) -> tuple[str, dict[str, Any]]:
    """Packed rows, forward and backward, against each row alone in float32; a changed row moves no other."""
    from student.models.attention import attend

    lengths = [5, 130, 1, 64, 300] if ground.small else [5, 700, 1, 64, 2048, 300]
    bounds = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device=ground.device)
    worst, module = 0.0, torch.nn.Module()
    for heads, key_heads, width in ((4, 4, 32), (14, 2, 64), (12, 2, 128)):
        module.num_key_value_groups = heads // key_heads  # type: ignore[assignment]
        generator = torch.Generator(ground.device).manual_seed(heads)

        def states(count: int, width: int = width, generator: torch.Generator = generator) -> torch.Tensor:
            made = torch.randn(1, count, sum(lengths), width, device=ground.device, generator=generator)
            return made.to(torch.bfloat16)

        query, key, value, slope = states(heads), states(key_heads), states(key_heads), states(heads).transpose(1, 2)
        results = []
        for dtype in (torch.bfloat16, torch.float32):
            leaves = [part.detach().to(dtype, copy=True).requires_grad_() for part in (query, key, value)]
            out, _ = attend(
                module, leaves[0], leaves[1], leaves[2], None, cu_seq_lens_q=bounds, max_length_q=max(lengths)
            )
            out.backward(slope.to(dtype))
            results.append([out.detach().float(), *(leaf.grad.float() for leaf in leaves)])  # type: ignore[union-attr]
        worst = max(worst, *(relative_difference(ours, theirs) for ours, theirs in zip(*results, strict=True)))
        with torch.no_grad():
            before, _ = attend(module, query, key, value, None, cu_seq_lens_q=bounds, max_length_q=max(lengths))
            value[:, :, : lengths[0] + lengths[1]] += 7
            after, _ = attend(module, query, key, value, None, cu_seq_lens_q=bounds, max_length_q=max(lengths))
        rest = slice(lengths[0] + lengths[1], None)
        if not torch.equal(before[:, rest], after[:, rest]):
            raise Wrong(f"a changed row moved its neighbours ({heads} heads, {key_heads} key heads)")
    if not worst < 2e-2:
        raise Wrong(f"packed rows differ from rows one by one by {worst:.1e} (relative)")
    return f"packed rows equal rows one by one within {worst:.1e}; a changed row moves the others by 0", {}


def head(ground: Ground) -> tuple[str, dict[str, Any]]:
    """The loss head against plain cross-entropy in float32, and its speed."""
    from student.loss.training_loss import score

    tokens, width, words = (64, 32, 500) if ground.small else (4096, 896, 151_936)
    layer = torch.nn.Linear(width, words, bias=False, device=ground.device, dtype=torch.bfloat16)
    hidden = torch.randn(tokens, width, device=ground.device).to(torch.bfloat16).requires_grad_()
    labels = torch.randint(words, (tokens,), device=ground.device)
    weights = torch.full((tokens,), 1 / tokens, device=ground.device)

    def ours() -> torch.Tensor:
        layer.weight.grad = hidden.grad = None
        loss = score(layer, hidden, labels, weights).loss
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    loss = ours()
    plain = hidden.detach().float().requires_grad_()
    weight = layer.weight.detach().float().requires_grad_()
    expected = torch.nn.functional.cross_entropy(plain @ weight.T, labels)
    expected.backward()
    differences = [
        relative_difference(loss, expected.detach()),
        relative_difference(hidden.grad, plain.grad),  # type: ignore[arg-type]
        relative_difference(layer.weight.grad, weight.grad),  # type: ignore[arg-type]
    ]
    if not max(differences) < 2e-2:
        raise Wrong(f"loss, state and weight gradients differ by {differences} (relative)")
    del plain, weight, expected
    seconds = median_seconds(ours)
    flops = 6 * tokens * width * words
    return (
        f"equals plain cross-entropy within {max(differences):.1e}; {tokens} positions x {words:,} words in "
        f"{seconds * 1e3:.1f} ms, {flops / seconds / 1e12:.0f} TFLOP/s",
        {"seconds": seconds, "flops": flops},
    )


def optimizer(ground: Ground) -> tuple[str, dict[str, Any]]:
    """Updates of bfloat16 weights against float64, and the time for the layers of the 0.5B decoder."""
    from student.training.optimizer.compensated_adamw import CompensatedAdamW

    weights = [torch.randn(64, 64, device=ground.device).to(torch.bfloat16).requires_grad_() for _ in range(3)]
    reference = [weight.detach().double().clone().requires_grad_() for weight in weights]
    ours, theirs = CompensatedAdamW(weights, lr=1e-4), torch.optim.AdamW(reference, lr=1e-4, weight_decay=0.0)
    for _ in range(50):
        for weight, twin in zip(weights, reference, strict=True):
            weight.grad = torch.randn(64, 64, device=ground.device).to(torch.bfloat16)
            twin.grad = weight.grad.double()
        ours.step()
        theirs.step()
    kept = [weight.double() + ours.state[weight]["lost"].double() for weight in weights]
    worst = max(float((left - right).detach().abs().max()) for left, right in zip(kept, reference, strict=True))
    if not worst < 1e-4:
        raise Wrong(f"after 50 steps of 1e-4 weights differ from float64 AdamW by {worst:.1e}")
    layers = 2 if ground.small else 24
    shapes = [(896, 896), (896, 128), (896, 128), (896, 896), (4864, 896), (4864, 896), (896, 4864), (896,), (896,)]
    many = [
        torch.zeros(shape, device=ground.device, dtype=torch.bfloat16).requires_grad_()
        for _ in range(layers)
        for shape in shapes
    ]
    for weight in many:
        weight.grad = torch.ones_like(weight)
    big = CompensatedAdamW(many, lr=1e-4)
    seconds = median_seconds(big.step)
    numbers = sum(weight.numel() for weight in many)
    return (
        f"50 updates equal float64 AdamW within {worst:.1e}; {numbers / 1e6:,.0f} M weights in "
        f"{seconds * 1e3:.1f} ms ({26 * numbers / seconds / 1e12:.2f} TB/s)",
        {"seconds": seconds},
    )


def checkpoint(ground: Ground) -> tuple[str, dict[str, Any]]:
    """A copy of weights and states does not change while the next step is made and the copy is written."""
    from functools import partial

    from safetensors.torch import load_file

    from student.training.checkpoints.checkpoint_files import OPTIMIZER, WEIGHTS, write_checkpoint
    from student.training.checkpoints.checkpoint_writer import CheckpointWriter
    from student.training.optimizer.compensated_adamw import CompensatedAdamW

    size, count = (256, 8) if ground.small else (2048, 128)
    made = [torch.randn(size, size, device=ground.device).to(torch.bfloat16) for _ in range(count)]
    named = [(str(number), torch.nn.Parameter(weight)) for number, weight in enumerate(made)]
    optimizer = CompensatedAdamW([weight for _, weight in named], lr=1e-2)
    writer, times = CheckpointWriter(), []
    for step in range(3):
        for _, weight in named:
            weight.grad = torch.randn_like(weight)
        optimizer.step()
        writer.wait()
        begun = time.perf_counter()
        weights, states = writer.weights(named), writer.optimizer(optimizer)
        times.append(time.perf_counter() - begun)
        expected = {name: weight.detach().cpu().clone() for name, weight in named}
        folder = ground.folder / "checkpoints" / f"checkpoint-{step}"
        begun = time.perf_counter()
        writer.start(partial(write_checkpoint, folder, {WEIGHTS: weights, OPTIMIZER: states}, []))
        optimizer.step()
        writer.wait()
        written = time.perf_counter() - begun
        saved = load_file(folder / WEIGHTS)
        if not all(torch.equal(saved[name], value) for name, value in expected.items()):
            raise Wrong("a checkpoint holds weights of the step after it")
    stored = sum(file.stat().st_size for file in folder.iterdir())
    return (
        f"{stored / 1e9:.2f} GB copied in {times[-1]:.2f} s ({stored / times[-1] / 1e9:.1f} GB/s; "
        f"{times[0]:.2f} s the first time) and written beside the next step in {written:.2f} s",
        {"copy_s": times, "write_s": written, "bytes": stored},
    )
