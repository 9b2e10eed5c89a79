"""Two processes learn what one learns, from the same recipe; a kill, an error or Ctrl-C ends both."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from processes import forked
from safetensors.torch import load_file
from worlds import student_worlds as worlds

from distill.artifacts.journal import read_jsonl
from distill.artifacts.manifest import Manifest
from distill.recipe.loading import load
from distill.recipe.sections.stages import Stage
from student.data.batch_plan import BatchPlan
from student.distributed import own_disks, processes
from student.train import train

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
STEPS = 12
# Projector and language model in full, embeddings tied to the head; passes of few rows, some without any image.
WHOLE = worlds.stage(
    "whole",
    train='["projector", "language"]',
    steps=STEPS,
    save=8,
    more="micro_batch_tokens = 150\n[stages.validation]\nevery_steps = 6\nhold_out = 8\n"
    'data = "test"\nquestions = 4\nmax_new_tokens = 8\nmetric = "loss"\nkeep = "best"\n',
)
# Adapters whose dropout draws random numbers at every step.
ADAPTERS = worlds.stage(
    "adapters",
    steps=12,
    save=4,
    more="micro_batch_tokens = 150\n[stages.lora]\nrank = 4\nalpha = 8\ndropout = 0.2\n",
)
RUNS = """
import os, shutil, signal, sys
from pathlib import Path
from distill.recipe import load
from student.distributed import processes
from student.train import train
# run:stage:sharding:step after which:the main process is killed, or the run is copied as a kill would leave it
with processes.together():
    for text in sys.argv[2:]:
        run, stage, sharding, last, then = text.split(":")
        recipe = load(sys.argv[1], {f"stages.{stage}.sharding": sharding})
        def watch(progress):
            if progress.unit != "steps" or str(progress.done) != last:
                return
            if then == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            shutil.copytree(run, then, ignore=shutil.ignore_patterns(".*.tmp"))
        train(recipe, Path(run), stage=stage, on_progress=watch)
"""


def losses(run: Path, stage: str) -> list[float]:
    return [line["loss"] for line in read_jsonl(run / "train" / stage / "metrics.jsonl")]


def weights(run: Path, stage: str) -> dict[str, torch.Tensor]:
    return load_file(run / "train" / stage / "model" / "model.safetensors")


def largest_difference(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> float:
    assert ours.keys() == theirs.keys()
    return max(float((ours[name] - value).abs().max()) for name, value in theirs.items())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two stages over traces of which most have no image, trained by one process and by two, and killed."""
    folder = tmp_path_factory.mktemp("world")
    worlds.parts(folder)
    worlds.data(folder)
    file = folder / "run" / "filter" / "dataset" / "train" / "part-00000.parquet"
    traces = pq.read_table(file).to_pylist()
    for number, trace in enumerate(traces):
        trace["images"] = trace["images"] if number % 4 == 0 else []
    pq.write_table(pa.Table.from_pylist(traces), file)
    recipe = worlds.recipe(folder, WHOLE, ADAPTERS.replace('name = "adapters"', 'name = "adapters"\nstart = "whole"'))
    torch.set_num_threads(1)
    train(recipe, folder / "run", stage="whole")
    for name in ("ddp", "fsdp2"):
        shutil.copytree(folder / "run" / "filter", folder / name / "filter")
    ended = forked.run(
        RUNS,
        recipe.path,
        f"{folder}/ddp:whole:none::",
        f"{folder}/fsdp2:whole:fsdp2::",
        f"{folder}/ddp:adapters:none:2:{folder}/killed",
        f"{folder}/fsdp2:adapters:fsdp2:7:{folder}/fsdp2-killed",
        f"{folder}/killed:adapters:none:7:kill",
        ranks=2,
    )
    # The main process kills itself; the other one is ended.
    assert ended.codes[0] == -signal.SIGKILL and ended.codes[1], ended.stderr
    assert (folder / "killed" / "train" / "adapters" / "checkpoints").is_dir(), ended.stderr
    return folder


@pytest.mark.parametrize("name", ["ddp", "fsdp2"])
def test_two_processes_learn_and_measure_what_one_does_and_keep_the_same_best_weights(name: str, world: Path):
    one, two = losses(world / "run", "whole"), losses(world / name, "whole")
    assert len(two) == STEPS
    assert max(abs(ours - theirs) for ours, theirs in zip(two, one, strict=True)) < 1e-3
    assert two[-1] < two[0] - 1
    assert largest_difference(weights(world / name, "whole"), weights(world / "run", "whole")) < 1e-4
    first, second = (Manifest.read(world / run / "train" / "whole") for run in ("run", name))
    assert first.counts == second.counts and first.tokens == second.tokens and first.inputs == second.inputs
    assert first.fingerprint == second.fingerprint
    measured = [list(read_jsonl(world / run / "train" / "whole" / "validation.jsonl")) for run in ("run", name)]
    assert [line["step"] for line in measured[1]] == [6, STEPS]
    for key in ("loss", "n", "accuracy", "mean_tokens", "token_accuracy"):
        assert [line[key] for line in measured[1]] == pytest.approx([line[key] for line in measured[0]], abs=1e-3)


def test_a_sharded_student_is_saved_whole_under_its_own_name(world: Path):
    config = json.loads((world / "fsdp2" / "train" / "whole" / "model" / "config.json").read_text())
    assert config["architectures"] == ["Idefics3ForConditionalGeneration"]
    assert largest_difference(weights(world / "fsdp2", "adapters"), weights(world / "ddp", "adapters")) < 1e-4
    adapters = [
        load_file(world / run / "train" / "adapters" / "adapter" / "adapter_model.safetensors")
        for run in ("ddp", "fsdp2")
    ]
    assert largest_difference(*adapters) < 1e-4


STABLE = ("step", "loss", "tokens", "response_tokens", "images", "token_accuracy", "learning_rate", "losses")


def trace(run: Path) -> list[list[object]]:
    return [[line[key] for key in STABLE] for line in read_jsonl(run / "train" / "adapters" / "metrics.jsonl")]


@pytest.fixture(scope="module")
def resumed(world: Path) -> Path:
    """The stage of adapters, gone on with by two processes and by two that share the model."""
    shutil.copytree(world / "killed", world / "killed-to-fsdp2")
    shutil.copytree(world / "killed", world / "killed-to-one")
    ended = forked.run(
        RUNS,
        world / "recipe.toml",
        f"{world}/killed:adapters:none::",
        f"{world}/fsdp2-killed:adapters:fsdp2::",
        f"{world}/killed-to-fsdp2:adapters:fsdp2::",
        ranks=2,
    )
    assert ended.codes == [0, 0], ended.stderr
    return world


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ddp", "fsdp2"])
def test_killed_and_resumed_equals_uninterrupted_bit_for_bit(name: str, resumed: Path):
    again = resumed / ("killed" if name == "ddp" else "fsdp2-killed")
    assert trace(again) == trace(resumed / name)
    assert largest_difference(weights(again, "adapters"), weights(resumed / name, "adapters")) == 0


@pytest.mark.slow
def test_a_checkpoint_does_not_depend_on_how_the_processes_held_it(resumed: Path):
    other = resumed / "killed-to-fsdp2"
    assert [line[0] for line in trace(other)] == list(range(1, 13))
    assert largest_difference(weights(other, "adapters"), weights(resumed / "ddp", "adapters")) < 1e-4
    # One process goes on from what two left; its dropout is another, its rows and steps are the same.
    alone = resumed / "killed-to-one"
    train(load(resumed / "recipe.toml"), alone, stage="adapters")
    theirs = trace(resumed / "ddp")
    assert [line[:1] + line[2:5] for line in trace(alone)] == [line[:1] + line[2:5] for line in theirs]
    assert trace(alone)[-1][1] == pytest.approx(theirs[-1][1], abs=0.2)


def test_a_bad_recipe_is_one_message(world: Path):
    bad = world / "bad.toml"
    bad.write_text((world / "recipe.toml").read_text().replace("learning_rate", "learning_rat"), encoding="utf-8")
    ran = subprocess.run(
        [
            *(forked.interpreter(), "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"),
            *("--nproc-per-node", "2", "-m", "distill", "train", str(bad)),
        ],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ran.stderr.count("distill: ") == 1 and "did you mean 'learning_rate'" in ran.stderr
    assert "exitcode  : 2 " in ran.stderr and ran.stdout == ""


def test_commands_for_one_process_say_so():
    ran = subprocess.run(
        [sys.executable, "-m", "distill", "eval", "any.toml"],
        cwd=ROOT,
        env={**os.environ, "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 2 and "only `distill train` runs in several" in ran.stderr


@pytest.mark.slow
def test_ctrl_c_ends_what_accelerate_launched_and_sharded_with_a_checkpoint_and_one_message(world: Path):
    run = world / "interrupted"
    shutil.copytree(world / "run" / "filter", run / "filter")
    child = subprocess.Popen(
        [
            *(sys.executable, "-m", "accelerate.commands.launch", "--use_fsdp", "--fsdp_version", "2"),
            *("--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"),
            *("--main_process_ip", "127.0.0.1", "--main_process_port", "0", "-m", "distill"),
            *command(world, run, steps=2_000),
        ],
        cwd=ROOT,
        env=ENVIRONMENT | {"PYTHON_EXEC": str(forked.interpreter())},  # what the launcher starts
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stderr is not None
    try:
        shown = next(line for line in child.stderr if line.startswith("train whole"))
        assert "1/2,000 steps" in shown
        os.killpg(child.pid, signal.SIGINT)
        _, said = child.communicate(timeout=60)
        # Its end of the pipe is closed, so no process is left that could write.
        assert_stopped_with_one_checkpoint_and_one_message(run, said)
        assert 'sharding = "fsdp2"' in (run / "recipe.toml").read_text()
    finally:
        child.kill()


TERMINATED = """
import os, signal, sys
from distill.cli import main
from student.training.loop import trainer
step = trainer.StageTrainer.training_step
def terminated(self, *args, **kwargs):
    if self.state.global_step == 2:
        os.kill(os.getpid(), signal.SIGTERM)
    return step(self, *args, **kwargs)
trainer.StageTrainer.training_step = terminated
main()
"""


def test_sigterm_ends_all_processes_at_one_step_with_a_checkpoint_and_one_message(world: Path):
    run = world / "terminated"
    shutil.copytree(world / "run" / "filter", run / "filter")
    ended = forked.run(TERMINATED, *command(world, run, steps=100), ranks=2)
    assert all(ended.codes), ended.stderr
    assert_stopped_with_one_checkpoint_and_one_message(run, ended.stderr)


def command(world: Path, run: Path, *, steps: int) -> list[str]:
    return [
        *("train", str(world / "recipe.toml"), "--run", str(run), "--stage", "whole"),
        *("--set", f"stages.whole.max_steps={steps}", "--set", "eval.allow_overlap=true"),
    ]


def assert_stopped_with_one_checkpoint_and_one_message(run: Path, said: str) -> None:
    assert said.count("run the same command again to resume") == 1, said
    assert said.count("stops after this training step and a checkpoint") == 1, said
    assert len(list((run / "train" / "whole" / "checkpoints").glob("checkpoint-*/complete"))) == 1


HANGS = """
import signal, sys, time
from pathlib import Path
from distill.recipe import load
from student.distributed import processes, step_watch
from student.train import train
from student.training.loop import trainer
step_watch.LIMIT_S = 5.0
step = trainer.StageTrainer.training_step
def stuck(self, *args, **kwargs):
    if processes.rank() == 1 and self.state.global_step == 3:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(1000)
    return step(self, *args, **kwargs)
trainer.StageTrainer.training_step = stuck
with processes.together():
    train(load(sys.argv[1], {"stages.whole.sharding": sys.argv[3]}), Path(sys.argv[2]), stage="whole")
"""


def test_a_process_that_hangs_ends_the_run_with_a_message_that_names_it(world: Path):
    run = world / "hangs"
    shutil.copytree(world / "run" / "filter", run / "filter")
    ended = forked.run(HANGS, world / "recipe.toml", run, "none", ranks=2)
    assert all(ended.codes) and ended.stderr.count("no training step has ended for") == 1, ended.stderr
    assert "process 1 is at the exchange of step 3; a process hangs" in ended.stderr
    assert re.search("process 0 is (at the exchange|in the passes) of step 4", ended.stderr)


WATCHES = """
import sys, time
from student.distributed import processes, step_watch
step_watch.LIMIT_S = 0.3
class Late:
    def __init__(self, store):
        self.store = store
    def __getattr__(self, name):
        return getattr(self.store, name)
    def add(self, *key):
        time.sleep(float(sys.argv[1]))
        return self.store.add(*key)
    def get(self, *key):
        time.sleep(float(sys.argv[2]))
        return self.store.get(*key)
with processes.together(), step_watch.StepWatch() as watch:
    if processes.rank() == 1:
        watch._store = Late(watch._store)
    watch.begin_step(1)
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("before_asking", "before_reading"),
    # The other process keeps the store. It has ended when this one asks, or could end while this one still reads.
    [(0.7, 0), (0, 0.7)],
    ids=["asks late", "reads slowly"],
)
def test_processes_that_notice_a_hang_one_after_the_other_report_it_once(before_asking: float, before_reading: float):
    ended = forked.run(WATCHES, before_asking, before_reading, ranks=2)
    assert all(ended.codes) and ended.stderr.count("no training step has ended for") == 1, ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("settings", [{"batch_size": 24}, {"batch_tokens": 3000}])
def test_every_process_makes_as_many_passes_as_the_others_in_every_step(settings: dict[str, int]):
    """Layers that are spread over processes are put together by all of them at every pass."""
    chance = np.random.default_rng(1)
    lengths = chance.integers(5, 700, 500)
    stage = Stage(name="s", data="traces", train=("language",), micro_batch_tokens=700, **settings)
    numbers = set()
    for count in (2, 3):
        plan = BatchPlan(
            lengths,
            chance.integers(0, 3, 500),
            stage,
            epoch_rows=lambda epoch: np.arange(500),
            seed=0,
            processes=count,
        )
        for step in range(len(plan)):
            passes = {len(of_process) for of_process in plan[step]}
            assert len(plan[step]) == count and len(passes) == 1
            numbers |= passes
    assert len(numbers) > 1


@pytest.mark.parametrize("settings", [{"batch_size": 256}, {"batch_tokens": 131_072}])
@pytest.mark.parametrize("count", [2, 8])
def test_tokens_are_shared_evenly_among_processes(settings: dict[str, int], count: int):
    chance = np.random.default_rng(0)
    lengths = np.minimum(4000, chance.lognormal(5.5, 0.8, 20_000)).astype(int)
    plan = BatchPlan(
        lengths,
        np.ones(len(lengths), np.int64),
        Stage(name="s", data="traces", train=("language",), max_length=4096, **settings),
        epoch_rows=lambda epoch: chance.permutation(len(lengths)),
        seed=0,
        processes=count,
    )
    shares = np.array(
        [
            [sum(lengths[row] for rows in process for row in rows) for process in plan[step]]
            for step in range(len(plan))
        ]
    )
    assert shares.sum() == lengths.sum()
    # How long the others wait for the fullest process, over the whole epoch.
    assert shares.max(axis=1).sum() / shares.mean(axis=1).sum() < 1.01


def test_one_process_is_the_main_one_and_does_not_wait():
    assert processes.count() == 1 and processes.is_main()
    with processes.together(), own_disks.own_disks(), own_disks.writer_first():
        assert processes.share("said") == "said" == own_disks.share_on_disk("said")
        processes.wait()


def test_a_step_has_as_many_tokens_however_many_processes_share_it():
    lengths = np.random.default_rng(0).integers(20, 400, 5000)
    stage = Stage(
        name="s", data="traces", train=("language",), max_length=512, batch_tokens=24_000, micro_batch_tokens=8000
    )
    steps = [
        len(
            BatchPlan(
                lengths,
                np.zeros(len(lengths), np.int64),
                stage,
                epoch_rows=lambda epoch: np.arange(len(lengths)),
                seed=0,
                processes=count,
            )
        )
        for count in (1, 2, 4, 8)
    ]
    assert max(steps) - min(steps) <= 1
