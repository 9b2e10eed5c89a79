"""What training chooses and calls on a GPU, as far as a machine without one can tell; the rest: `make gpu-check`."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from processes import forked
from torch.nn.attention import varlen
from worlds import student_worlds as worlds

from distill.errors import ModelError
from student.models import attention, kernels, recurrent

ROOT = Path(__file__).resolve().parents[3]
BOUNDS = torch.tensor([0, 3, 8], dtype=torch.int32)


def states(heads: int) -> torch.Tensor:
    return torch.randn(1, heads, 8, 16, generator=torch.Generator().manual_seed(heads))


def reference(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, **options):
    """torch's varlen kernel by other means, for states [tokens, heads, width]."""
    assert options["window_size"] == (-1, 0) and torch.equal(cu_seq_q, cu_seq_k) and (max_q, max_k) == (5, 5)
    rows = []
    for start, end in zip(cu_seq_q.tolist(), cu_seq_q.tolist()[1:], strict=False):
        row = [part[start:end].transpose(0, 1)[None] for part in (query, key, value)]
        found = torch.nn.functional.scaled_dot_product_attention(*row, is_causal=True, enable_gqa=True)
        rows.append(found[0].transpose(0, 1))
    return torch.cat(rows)


def of_torch_2_11(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, return_aux=None, scale=None, window_size):
    return reference(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, window_size=window_size)


def of_torch_2_12(
    query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, scale=None, window_size=(-1, -1), enable_gqa=False
):
    assert enable_gqa == (query.shape[1] != key.shape[1])
    return reference(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, window_size=window_size)


@pytest.mark.parametrize("key_heads", [2, 4])
@pytest.mark.parametrize("release", [of_torch_2_11, of_torch_2_12])
def test_packed_rows_go_to_the_varlen_kernel_of_every_supported_torch(release, key_heads, monkeypatch):
    monkeypatch.setattr(varlen, "varlen_attn", release)
    query, key, value = states(4), states(key_heads), states(key_heads) + 1
    module = torch.nn.Module()
    module.num_key_value_groups = 4 // key_heads
    expected, _ = attention.attend(module, query, key, value, None, cu_seq_lens_q=BOUNDS, max_length_q=5)
    found = attention._varlen(query, key, value, BOUNDS, 5, None)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("capability", "dtype", "expected"),
    [
        ((9, 0), torch.bfloat16, attention.PACKED),
        ((8, 0), torch.float16, attention.PACKED),
        ((7, 5), torch.float16, "sdpa"),
        ((9, 0), torch.float32, "sdpa"),
    ],
)
def test_a_card_that_has_the_varlen_kernel_uses_it(capability, dtype, expected, monkeypatch):
    monkeypatch.setattr(attention, "is_flash_attn_2_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert attention.choose("auto", torch.device("cuda"), dtype) == expected


@pytest.fixture
def liger(monkeypatch):
    """A package that patches modules as Liger does: one model, and the module that later ones are made of."""
    patched = ModuleType("liger_kernel.transformers.monkey_patch")
    family = ModuleType("family")
    family.Norm, family.rotate = torch.nn.LayerNorm, len

    def patch(model, rope=True, cross_entropy=False, fused_linear_cross_entropy=True):
        assert not rope and not cross_entropy and not fused_linear_cross_entropy
        family.Norm = family.rotate = "Liger's own"
        model.patched = True

    patched.MODEL_TYPE_TO_APPLY_LIGER_FN = {"family": patch}
    for name in ("liger_kernel", "liger_kernel.transformers"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, patched.__name__, patched)
    monkeypatch.setitem(sys.modules, "family", family)
    return family


def decoder(kind: str) -> torch.nn.Module:
    made = type("Decoder", (torch.nn.Module,), {"__module__": "family"})()
    made.config = SimpleNamespace(model_type=kind)
    return made


def test_liger_changes_one_model_and_leaves_those_made_later_alone(liger):
    language = decoder("family")
    kernels._liger(language)
    assert language.patched
    assert liger.Norm is torch.nn.LayerNorm and liger.rotate is len


def test_liger_without_kernels_for_a_decoder_says_what_to_choose(liger, monkeypatch):
    with pytest.raises(ModelError, match="no kernels for a other decoder; choose"):
        kernels._liger(decoder("other"))
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers.monkey_patch", None)
    with pytest.raises(ModelError, match="does not work with a family decoder"):
        kernels._liger(decoder("family"))


def test_a_step_of_every_class_mixes_no_devices_and_never_waits_for_one():
    done = forked.run("from students import fake_card; fake_card.main()")
    lines = [line for line in done.stdout.splitlines() if line.startswith(("ok", "failed"))]
    assert done.codes == [0], "\n".join(lines) + done.stderr[-2000:]
    assert [line.split()[1:3] for line in lines] == [
        [name, f"{kind}:"] for name in worlds.CLASSES for kind in ("full", "lora")
    ]


def test_layers_that_take_rows_one_by_one_read_their_sizes_once(monkeypatch):
    bounds = torch.tensor([0, 3, 8], dtype=torch.int32)
    reads = []
    own = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda tensor: reads.append(1) or own(tensor))
    moved = recurrent.with_row_sizes(bounds, torch.device("cpu"))
    assert [recurrent.row_sizes(moved) for _ in range(3)] == [[3, 5]] * 3
    assert len(reads) == 1


GPU_CHECK = """
import multiprocessing, sys
folder, python, *sys.argv[1:] = sys.argv[1:]
sys.path.insert(0, folder)
multiprocessing.set_executable(python)  # each check is a fork that has loaded the libraries, started as always
import gpu_check
gpu_check.main()
"""


def check_of_a_card(out: Path, *options: str) -> forked.Ended:
    folder = ROOT / "benchmarks" / "train"
    return forked.run(GPU_CHECK, folder, forked.interpreter(), "--dry-run", "--out", out, *options)


def test_the_check_of_a_card_goes_through_without_one(tmp_path: Path):
    done = check_of_a_card(tmp_path, "--only", "attention", "head")
    assert done.codes == [0], done.stdout + done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["ok", "attention"], ["ok", "head"]]


def test_a_check_of_a_card_that_does_not_end_in_time_is_a_problem(tmp_path: Path):
    done = check_of_a_card(tmp_path, "--only", "head", "--minutes", "0")
    assert done.codes == [1]
    assert done.stdout.split()[:2] == ["problem", "head"] and "did not end in time" in done.stdout
