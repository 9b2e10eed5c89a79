"""Every class of student trains one stage through SFTTrainer; checkpoints count only when they are complete."""

import json
import math
import multiprocessing
import resource
import threading
import time
from dataclasses import replace
from functools import partialmethod
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from worlds import student_worlds as worlds

from distill.errors import DataError, DistillError, ModelError, StorageError
from distill.recipe.sections.stages import Lora, Stage
from student.data import encode, images
from student.data.collate import collate
from student.loss import training_loss
from student.models import attention, freeze, inputs, kernels
from student.models.parts import find_parts
from student.training import freeze_checks
from student.training.checkpoints import checkpoint_files as checkpoints
from student.training.checkpoints import checkpoint_writer
from student.training.loop import halving, sft_config, trainer
from student.training.loop.metrics_log import MetricsLog, StepLog
from student.training.step_dataset import MICRO_BATCHES, StepDataset, build_step_dataset

SETTINGS = {
    "name": "s",
    "data": "traces",
    "learning_rate": 1e-2,
    "batch_size": 4,
    "max_steps": 3,
    "log_every_steps": 1,
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    worlds.parts(folder)
    return folder


class Run:
    """One student, its rows and what its logs said."""

    def __init__(
        self,
        kind: str,
        world: Path,
        folder: Path,
        *,
        attend: str = attention.PACKED,
        rows: int = 12,
        **settings: object,
    ):
        self.stage = Stage(**{**SETTINGS, "train": ("language",), **settings})
        self.model, self.processor = worlds.student(kind, world)
        self.parts = find_parts(self.model)
        self.encoder = encode.Encoder(self.processor, inputs.end_ids(self.model))
        self.store = images.ImageStore(self.processor, torch.float32)
        made = [replace(row, source="traces") for row in worlds.rows(folder, rows)]
        self.examples = encode.encode(made, self.encoder, self.store, encode.RowLimits(500, 10**6))
        training_loss.attach(self.model)
        attention.use(self.model, attend)
        torch.manual_seed(0)
        self.student = freeze.prepare(self.model, self.parts, self.stage.train, self.stage.lora)
        self.folder = folder / "checkpoints"
        self.logs: list[StepLog] = []
        self.notices: list[str] = []

    def feed(self, **shared: int) -> StepDataset:
        rows = self.examples, self.store, self.stage, self.encoder
        collator = collate(self.student, *rows, max_pixels=10**6, raw_pixels=True)
        return build_step_dataset(self.student, self.parts, collator, self.stage, seed=0, **shared)

    def fit(self, workers: int = 0) -> StepLog:
        work = SimpleNamespace(
            student=self.student,
            processor=self.processor,
            parts=self.parts,
            steps=self.feed(),
            stage=self.stage,
            folder=self.folder.parent,
            recipe=SimpleNamespace(seed=0),
            dtype=torch.float32,
            device=torch.device("cpu"),
        )
        return trainer.fit(work, workers=workers, on_log=self.logs.append, on_notice=self.notices.append)

    def trained(self) -> dict[str, torch.Tensor]:
        return {name: p.detach().clone() for name, p in self.student.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("kind", worlds.CLASSES)
def test_every_class_of_student_learns_through_projector_and_adapters(kind: str, world: Path, tmp_path: Path):
    run = Run(kind, world, tmp_path, train=("projector", "language"), lora=Lora(rank=4, alpha=8), max_steps=12)
    before, frozen = run.trained(), freeze_checks.frozen_digests(run.student, run.parts)
    last = run.fit()
    assert last.step == last.steps == 12
    assert last.loss < run.logs[0].loss
    after = run.trained()
    assert all(not torch.equal(before[name], after[name]) for name in before)
    freeze_checks.require_equal(frozen, freeze_checks.frozen_digests(run.student, run.parts))


def test_the_logged_loss_is_the_cross_entropy_of_the_responses(world: Path, tmp_path: Path):
    run = Run("siq-vl", world, tmp_path, batch_size=12, max_steps=1)
    steps = run.feed()
    micro_batch = steps.on_device(steps[0]["micro_batches"][0], torch.device("cpu"))
    at, labels = micro_batch.pop("at"), micro_batch.pop("labels")
    del micro_batch["weights"], micro_batch["cells"]
    logits = run.model(**micro_batch, use_cache=False).logits.flatten(0, 1)[at]
    expected = torch.nn.functional.cross_entropy(logits, labels).item()
    assert run.fit().loss == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    "changed", [{"micro_batch_tokens": 100}, {"micro_batch_tokens": 1}, {"gradient_checkpointing": True}]
)
def test_memory_settings_do_not_change_what_is_learned(changed: dict[str, object], world: Path, tmp_path: Path):
    whole, other = Run("siq-vl", world, tmp_path / "a"), Run("siq-vl", world, tmp_path / "b", **changed)
    whole.fit(), other.fit()
    assert [log.loss for log in other.logs] == pytest.approx([log.loss for log in whole.logs], abs=1e-4)
    assert [log.tokens for log in other.logs] == [log.tokens for log in whole.logs]


def full_device(monkeypatch: pytest.MonkeyPatch, run: Run, limit: int, *, at: str) -> None:
    """Passes of more than `limit` tokens end out of memory: before them, or with some gradients there."""
    size = 0

    def raise_if_large(*_: object) -> None:
        if size > limit:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore text.")

    own = StepDataset.on_device

    def on_device(self, micro_batch, device):
        nonlocal size
        size = micro_batch["input_ids"].numel()
        if at == "forward":
            raise_if_large()
        return own(self, micro_batch, device)

    monkeypatch.setattr(StepDataset, "on_device", on_device)
    if at == "backward":
        first = next(p for p in run.student.parameters() if p.requires_grad and p.ndim == 1)
        first.register_post_accumulate_grad_hook(raise_if_large)


@pytest.mark.parametrize(("at", "workers"), [("forward", 0), ("backward", 0), ("backward", 1)])
def test_a_step_that_does_not_fit_is_made_again_in_smaller_passes_with_the_same_result(
    at: str, workers: int, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    whole = Run("siq-vl", world, tmp_path / "a")
    whole.fit()
    full = Run("siq-vl", world, tmp_path / "b")
    full_device(monkeypatch, full, 140, at=at)
    full.fit(workers)
    assert full.notices[0] == "out of memory at step 1: from here on each micro-batch is 2 passes"
    assert [log.loss for log in full.logs] == pytest.approx([log.loss for log in whole.logs], abs=1e-5)
    assert [log.tokens for log in full.logs] == [log.tokens for log in whole.logs]
    for name, weight in whole.trained().items():
        torch.testing.assert_close(full.trained()[name], weight, atol=1e-4, rtol=1e-4)


def test_a_row_that_does_not_fit_alone_stops_the_stage_and_says_what_to_change(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = Run("siq-vl", world, tmp_path)
    full_device(monkeypatch, run, 10, at="forward")
    with pytest.raises(DistillError, match=r"step 1 does not fit .* one row .*2.00 GiB.*micro_batch_tokens"):
        run.fit()


def test_gradients_of_bfloat16_weights_add_up_over_passes_without_rounding(world: Path, tmp_path: Path):
    def gradients(dtype: torch.dtype, in_float32: bool) -> torch.Tensor:
        run = Run("siq-vl", world, tmp_path, batch_size=12, micro_batch_tokens=1, max_steps=1)
        student = run.student.to(dtype)
        steps = run.feed()
        micro_batches = [steps.on_device(each, torch.device("cpu")) for each in steps[0][MICRO_BATCHES]]
        assert len(micro_batches) == 12
        halving.sum_in_float32(student, len(micro_batches) if in_float32 else 1)
        for micro_batch in micro_batches:
            micro_batch.pop("cells")
            pixels = micro_batch.pop("pixel_values").to(dtype)
            student(**micro_batch, pixel_values=pixels).loss.backward()
        found = [p.grad for p in student.parameters() if p.requires_grad]
        assert {grad.dtype for grad in found} == {torch.float32 if in_float32 else dtype}
        return torch.cat([grad.flatten().double() for grad in found])

    exact = gradients(torch.float32, False)
    rounded, kept = (gradients(torch.bfloat16, how) for how in (False, True))
    errors = [float((found - exact).norm() / exact.norm()) for found in (rounded, kept)]
    assert errors[1] < 0.8 * errors[0]


@pytest.mark.slow
def test_compiled_layers_learn_the_same_and_keep_their_names(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # Captured and differentiated as ever. That inductor's C++ computes the same is torch's promise.
    compile_module = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", partialmethod(compile_module, backend="aot_eager"))
    plain, compiled = Run("siq-vl", world, tmp_path / "a"), Run("siq-vl", world, tmp_path / "b")
    assert kernels.compile_layers(compiled.model.get_submodule(compiled.parts.language)) == 2
    plain.fit(), compiled.fit()
    assert [log.loss for log in compiled.logs] == pytest.approx([log.loss for log in plain.logs], abs=1e-4)
    assert list(compiled.trained()) == list(plain.trained())


def test_kernels_that_are_not_installed_are_an_error_that_says_how_to_get_them():
    for kind, package in (("liger", "liger-kernel"), ("hub", "kernels")):
        with pytest.raises(ModelError, match=f"`pip install {package}`"):
            kernels.require(Stage(**{**SETTINGS, "train": ("language",), "kernels": kind}))


def test_packed_training_learns_what_padded_training_learns(world: Path, tmp_path: Path):
    padded = Run("siq-vl", world, tmp_path / "a", attend="sdpa", line_tokens=1)
    packed = Run("siq-vl", world, tmp_path / "b")
    padded.fit(), packed.fit()
    assert [log.loss for log in packed.logs] == pytest.approx([log.loss for log in padded.logs], abs=1e-4)
    assert packed.logs[-1].tokens == padded.logs[-1].tokens


def test_logs_count_real_tokens_and_not_padding(world: Path, tmp_path: Path):
    run = Run("siq-vl", world, tmp_path, batch_size=12, max_steps=2)
    last = run.fit()
    padded = Run("siq-vl", world, tmp_path / "b", attend="sdpa", line_tokens=1, batch_size=12, max_steps=1).fit()
    width = 12 * max(run.examples.lengths)
    assert padded.padding_share == pytest.approx(1 - sum(run.examples.lengths) / width)
    assert last.tokens == 2 * sum(run.examples.lengths)
    assert last.response_tokens == 2 * int(run.examples.columns.responses.sum())
    assert last.images == last.responses == 24
    assert last.padding_share == 0


def test_responses_are_counted_as_often_as_they_come_and_not_as_steps_could_hold(world: Path, tmp_path: Path):
    assert Run("siq-vl", world, tmp_path, rows=5, batch_size=4, max_steps=4).fit().responses == 2 * 5


def test_a_row_that_fills_up_a_process_without_one_is_not_measured(world: Path, tmp_path: Path):
    run = Run("siq-vl", world, tmp_path, batch_size=1)
    feeds = [run.feed(process=process, processes=2) for process in (0, 1)]
    meter = MetricsLog(run.logs.append, feeds[0].groups, rate=1.0)
    of_process = [feed[0][MICRO_BATCHES] for feed in feeds]
    meter.add(loss=torch.zeros(()))
    counted = []
    for micro_batches in of_process:
        for micro_batch in micro_batches:
            weights = micro_batch["weights"]
            counted.append(bool(weights.any()))
            # What is learned is half right, what fills up is right throughout.
            meter.cells(torch.ones(len(weights)), weights.cumsum(0) < 0.5, micro_batch["cells"])
    log = meter.log(step=1, steps=1, epoch=1.0, learning_rate=0.0)
    assert sorted(counted) == [False, True]
    assert log.token_accuracy == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(("share", "steps"), [(0.0, 0), (0.03, 1), (0.5, 10), (1.0, 20)])
def test_the_learning_rate_rises_over_its_share_of_the_steps(share: float, steps: int, tmp_path: Path):
    stage = Stage(name="a", data="traces", train=("language",), warmup_share=share)
    settings = sft_config.settings(stage, tmp_path, steps=20, seed=0, workers=0)
    assert settings.get_warmup_steps(20) == steps


def test_a_stage_of_a_single_step_learns(world: Path, tmp_path: Path):
    run = Run("siq-vl", world, tmp_path, max_steps=1)
    before = run.trained()
    assert run.fit().learning_rate == run.stage.learning_rate
    assert all(not torch.equal(value, run.trained()[name]) for name, value in before.items())


def test_weights_that_the_last_step_makes_no_numbers_end_the_stage_and_are_never_saved(world: Path, tmp_path: Path):
    run = Run("siq-vl", world, tmp_path, max_steps=2, learning_rate=1e39)
    with pytest.raises(
        DistillError, match=r"after step 2 the weights .* contain values that are not numbers.*1e\+39"
    ):
        run.fit()
    assert all(math.isfinite(log.loss) for log in run.logs) and checkpoints.last_checkpoint(run.folder) is None


def test_training_prints_nothing_of_its_own(world: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    run = Run("siq-vl", world, tmp_path, save_every_steps=1)
    capfd.readouterr()
    run.fit()
    assert capfd.readouterr() == ("", "")


def test_worker_processes_change_nothing_whatever_way_python_starts_processes(world: Path, tmp_path: Path):
    alone = Run("siq-vl", world, tmp_path / "alone")
    helped = Run("siq-vl", world, tmp_path / "helped")
    before = torch.multiprocessing.get_start_method()
    # As Python 3.14 does by itself: what a step is made of would have to be pickled.
    torch.multiprocessing.set_start_method("forkserver", force=True)
    try:
        assert helped.fit(workers=1).loss == alone.fit().loss
    finally:
        torch.multiprocessing.set_start_method(before, force=True)


def test_a_resumed_stage_that_fails_leaves_no_process_behind(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A process that is left ignores SIGTERM, and Python waits for it at exit."""
    run = Run("siq-vl", world, tmp_path, max_steps=1, schedule="constant", warmup_share=0.0)
    run.fit()
    run.stage = run.stage.model_copy(update={"max_steps": 3})

    def lose(data: StepDataset, step: int) -> None:
        raise DataError(f"step {step} is lost")

    monkeypatch.setattr(StepDataset, "made", lose)
    with pytest.raises(DataError, match="step 1 is lost"):
        Run.fit(_extended(run), workers=2)
    assert multiprocessing.active_children() == []


def test_a_checkpoint_does_not_hold_what_the_metrics_hold(world: Path, tmp_path: Path):
    run = Run("siq-vl", world, tmp_path)
    run.fit()
    assert len(run.logs) == 3
    assert json.loads((run.folder / "checkpoint-3" / "trainer_state.json").read_text())["log_history"] == []


def test_a_checkpoint_without_its_marker_is_removed_and_the_one_before_it_used(tmp_path: Path):
    for step, complete in ((2, True), (4, True), (6, False)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if complete:
            (tmp_path / f"checkpoint-{step}" / checkpoints.COMPLETE).touch()
    assert checkpoints.last_checkpoint(tmp_path) == tmp_path / "checkpoint-4"
    assert not (tmp_path / "checkpoint-6").exists()
    assert checkpoints.last_checkpoint(tmp_path / "nowhere") is None


def test_the_last_two_checkpoints_are_kept_and_hold_trainable_tensors_only(world: Path, tmp_path: Path):
    from safetensors.torch import load_file

    run = Run("siq-vl", world, tmp_path, train=("projector",), save_every_steps=1)
    run.fit()
    assert sorted(path.name for path in run.folder.iterdir()) == ["checkpoint-2", "checkpoint-3"]
    saved = load_file(run.folder / "checkpoint-3" / checkpoints.WEIGHTS)
    assert list(saved) == ["model.connector.modality_projection.proj.weight"]


def test_a_stage_killed_after_its_last_checkpoint_takes_its_weights_and_no_further_step(world: Path, tmp_path: Path):
    first = Run("siq-vl", world, tmp_path)
    first.fit()
    again = Run("siq-vl", world, tmp_path)
    last = again.fit()
    assert again.logs == [] and last.step == 3 and last.tokens == first.logs[-1].tokens
    assert all(torch.equal(value, again.trained()[name]) for name, value in first.trained().items())


def test_a_broken_freeze_stops_the_run_with_the_tensors_name(world: Path, tmp_path: Path):
    run = Run("siq-vl", world, tmp_path)
    run.model.model.connector.modality_projection.proj.weight.requires_grad_(True)
    with pytest.raises(DistillError, match=r"connector.modality_projection.proj.weight belongs to the projector"):
        run.fit()


def test_training_goes_on_while_a_checkpoint_is_written_and_the_copy_stays_as_it_was(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = Run("siq-vl", world, tmp_path, save_every_steps=2)
    write, stepped, written = checkpoints.save_file, threading.Event(), []

    def slow(tensors, path):
        before = {name: value.clone() for name, value in tensors.items()}
        # Never set if training waits for the write.
        assert path.parent.name != "checkpoint-2" or stepped.wait(60)
        written.append(all(torch.equal(tensors[name], value) for name, value in before.items()))
        write(tensors, path)

    monkeypatch.setattr(checkpoints, "save_file", slow)
    log = run.logs.append
    run.logs = SimpleNamespace(append=lambda entry: (log(entry), entry.step == 3 and stepped.set()))
    assert run.fit().step == 3
    assert written == [True, True] and checkpoints.last_step(run.folder) == 3


def test_without_memory_for_a_copy_training_waits_for_the_same_checkpoint(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    beside = Run("siq-vl", world, tmp_path / "beside")
    beside.fit()
    monkeypatch.setattr(checkpoint_writer, "free_bytes", lambda: 0)
    waiting = Run("siq-vl", world, tmp_path / "waiting")
    waiting.fit()
    for name in (checkpoints.WEIGHTS, checkpoints.OPTIMIZER):
        one, other = ((run.folder / "checkpoint-3" / name).read_bytes() for run in (beside, waiting))
        assert one == other
    writer = checkpoint_writer.CheckpointWriter()
    name, weight = "bias", torch.nn.Parameter(torch.ones(3))
    assert writer.weights([(name, weight)])[name].data_ptr() == weight.data_ptr()
    writer.start(lambda: time.sleep(0.2))
    assert not writer.busy


def test_a_refused_write_is_one_message_and_the_checkpoint_before_it_stays(world: Path, tmp_path: Path):
    run = Run("siq-vl", world, tmp_path, save_every_steps=1)
    run.stage = run.stage.model_copy(update={"max_steps": 1, "schedule": "constant", "warmup_share": 0.0})
    run.fit()
    run.stage = run.stage.model_copy(update={"max_steps": 3})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
        with pytest.raises(StorageError, match=r"checkpoint-\d+: cannot write"):
            Run.fit(_extended(run))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert checkpoints.last_checkpoint(run.folder) == run.folder / "checkpoint-1"


def _extended(run: Run) -> Run:
    """The same run as if its first stage had been longer all the time."""
    for name, key in (("meter.json", "steps"), ("trainer_state.json", "max_steps")):
        path = run.folder / "checkpoint-1" / name
        values = json.loads(path.read_text())
        (values["last"] if name == "meter.json" else values)[key] = 3
        path.write_text(json.dumps(values))
    (run.folder / "checkpoint-1" / checkpoints.DIGESTS).unlink()
    return run
