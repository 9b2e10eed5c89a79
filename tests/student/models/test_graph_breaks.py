"""A compiled decoder layer is one graph in every class of student, with torch's varlen kernel by other means."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch.nn.attention import varlen
from worlds import student_worlds as worlds

from distill.recipe.sections.stages import Stage
from student.loss import training_loss
from student.models import attention, freeze, kernels
from student.models.parts import Parts, find_parts
from student.training.step_dataset import StepDataset


def _rows(query, key, value, bounds, before: int, scale: float) -> torch.Tensor:
    """Causal attention of each row in the window of so many tokens before it (-1: all); states [tokens, heads, n]."""
    found = []
    for start, end in zip(bounds.tolist(), bounds.tolist()[1:], strict=False):
        row = [part[start:end].transpose(0, 1)[None] for part in (query, key, value)]
        seen = torch.ones(end - start, end - start, dtype=torch.bool).tril()
        seen = seen if before < 0 else seen.triu(-before)
        options = {"attn_mask": seen, "scale": scale, "enable_gqa": True}
        found.append(torch.nn.functional.scaled_dot_product_attention(*row, **options)[0].transpose(0, 1))
    return torch.cat(found)


@torch.library.custom_op("reference::varlen", mutates_args=())
def _reference(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: torch.Tensor, before: int, scale: float
) -> torch.Tensor:
    return _rows(query, key, value, bounds, before, scale).contiguous()


@_reference.register_fake
def _(query, key, value, bounds, before, scale):
    return query.new_empty(*query.shape[:2], value.shape[2])


def _backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    *states, bounds = ctx.saved_tensors
    leaves = [state.detach().requires_grad_() for state in states]
    with torch.enable_grad():
        out = _rows(*leaves, bounds, *ctx.settings)
    return (*torch.autograd.grad(out, leaves, gradient), None, None, None)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs[:4])
    ctx.settings = inputs[4:]


_reference.register_autograd(_backward, setup_context=_keep)


def varlen_attn(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, scale, window_size, enable_gqa=False):
    """As torch.nn.attention.varlen has it: one operation that no compiler looks into."""
    return _reference(query, key, value, cu_seq_q, window_size[0], scale or query.shape[-1] ** -0.5)


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[torch.fx.GraphModule]]:
    """What is compiled; a break of a graph is an error."""
    seen: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> Any:
        seen.append(graph)
        return graph.forward

    compile_module = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", partialmethod(compile_module, backend=backend, fullgraph=True))
    monkeypatch.setattr(varlen, "varlen_attn", varlen_attn)
    monkeypatch.setattr(attention, "takes_varlen", lambda query: True)
    torch._dynamo.reset()
    counters.clear()
    yield seen
    torch._dynamo.reset()


@pytest.mark.parametrize("name", worlds.CLASSES)
def test_a_compiled_layer_is_one_graph(name: str, world: Path, tmp_path: Path, graphs: list[torch.fx.GraphModule]):
    model, processor = worlds.student(name, world)
    roles = find_parts(model)
    steps = _steps(name, model, processor, roles, tmp_path)
    expected = _losses(model, steps)
    language = model.get_submodule(roles.language)
    layers = kernels.compile_layers(language)
    assert _losses(model, steps) == pytest.approx(expected, abs=1e-5)
    assert not counters["graph_break"]
    # Layers of one kind share a graph, whatever the lengths of their rows.
    kinds = {*(getattr(model.config.get_text_config(), "layer_types", None) or ["full_attention"])}
    assert len(graphs) == 1 if len(kinds) == 1 else len(graphs) <= layers


def _steps(name: str, model: Any, processor: Any, roles: Parts, folder: Path) -> StepDataset:
    training_loss.attach(model)
    attention.use(model, attention.PACKED)
    freeze.prepare(model, roles, ("projector", "language"), None)
    stage = Stage(name="s", data="traces", train=("projector", "language"), batch_size=2, max_steps=2)
    rows = [replace(row, source="traces") for row in worlds.rows(folder, 4)]
    return worlds.step_dataset(model, model, processor, roles, rows, stage)


def _losses(model: Any, steps: StepDataset) -> list[float]:
    found = []
    for number in range(2):
        for batch in steps[number]["micro_batches"]:
            moved = steps.on_device(batch, torch.device("cpu"))
            moved.pop("cells")
            loss = model(**moved, extra=None).loss
            loss.backward()
            found.append(float(loss))
    model.zero_grad()
    return found
