"""`train` and `eval` of a run in a store give what they give in a folder, on any machine, after any kill."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from processes import forked
from safetensors.torch import load_file
from servers import store_servers, stub_server
from typer.testing import CliRunner
from worlds import store_worlds
from worlds import student_worlds as worlds
from worlds.generate_world import asked_of

from distill.artifacts.journal import read_jsonl
from distill.artifacts.layout import EVAL_METRICS
from distill.artifacts.manifest import MANIFEST, Manifest
from distill.cli import app
from distill.object_store.interface import ObjectStore
from distill.object_store.local_store import LocalStore
from distill.object_store.open_store import open_store
from distill.recipe.loading import load
from distill.units.stored_stage import push_stage, stage_counts, stage_files
from distill.units.unfinished_stage import pull_newest
from student.train import train
from student.training.checkpoints.saved_model import require_saved

LORA = "[stages.lora]\nrank = 4\nalpha = 8\n"
VALIDATION = '[stages.validation]\ndata = "test"\nevery_steps = 4\nquestions = 4\nmax_new_tokens = 4\n'
STAGES = (
    worlds.stage("align", "questions", train='["projector"]', steps=4, save=2),
    worlds.stage("reason", steps=12, save=2, more=LORA + VALIDATION),
)
EVAL = '[eval]\ndata = "test"\nallow_overlap = true\nmax_new_tokens = 8\ngallery = 0\n[eval.arms]\nlast = "reason"\n'

LONG = pytest.mark.timeout(1200)
"""A busy machine takes a minute to load the libraries of one process."""


@pytest.fixture
def address(place: Path) -> str:
    """A store with a finished filter stage."""
    write_recipe(place, "scratch")
    push_stage(LocalStore(place / "store"), "filter", place / "run" / "filter")
    return f"file://{place / 'store'}"


def write_recipe(place: Path, scratch: str, more: str = "", lease_s: float = 2.0) -> Path:
    """A recipe whose temporary folder is that of one machine."""
    engine = f'[engine]\nscratch = "{scratch}"\nseal_s = 0.05\nlease_s = {lease_s}\n'
    recipe = worlds.recipe(place, *STAGES, more=EVAL + engine + more)
    return Path(shutil.copyfile(recipe.path, place / f"{scratch}.toml"))


def call(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    return done.output


def weights(train_folder: Path, stage: str) -> dict[str, torch.Tensor]:
    return load_file(train_folder / stage / "model" / "model.safetensors")


def require_equal(found: Path, plain: Path) -> None:
    for stage in ("align", "reason"):
        ours, theirs = weights(found, stage), weights(plain, stage)
        assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
        first, second = (read_jsonl(folder / stage / "metrics.jsonl") for folder in (found, plain))
        assert [(line["step"], line["loss"]) for line in first] == [(line["step"], line["loss"]) for line in second]


@pytest.fixture(scope="module")
def plain(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process trains in a folder."""
    place = Path(shutil.copytree(world, tmp_path_factory.mktemp("plain") / "w"))
    train(worlds.recipe(place, *STAGES, more=EVAL), place / "run")
    return place / "run" / "train"


@pytest.fixture(scope="module")
def plain_pair(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes of one machine train in a folder."""
    place = Path(shutil.copytree(world, tmp_path_factory.mktemp("pair") / "w"))
    command = ("train", write_recipe(place, "one"), "--run", place / "run", "--set", DROPOUT)
    ended = forked.run(PROCESSES, "one", "-", "-", *command, ranks=2)
    assert ended.codes == [0, 0], ended.stderr
    return place / "run" / "train"


def pulled(store: ObjectStore, folder: Path, *stages: str) -> Path:
    for stage in stages:
        pull_newest(store, stage, folder / stage)
    return folder


def test_a_run_in_a_store_is_trained_and_evaluated_as_in_a_folder(
    place: Path, address: str, plain: Path, tmp_path: Path
) -> None:
    store, one, two = LocalStore(place / "store"), write_recipe(place, "one"), write_recipe(place, "two")
    assert "students: file://" in call("train", str(one), "--run", address)
    assert "distill pull" in call("eval", str(one), "--run", address)
    assert not store.list_objects("run/train/attempts") and not store.list_objects("run/eval/attempts")
    assert not store.list_objects("claims") and not store.list_objects("agents")
    shutil.copytree(plain, place / "run" / "train")
    call("eval", str(place / "recipe.toml"), "--run", str(place / "run"))
    found = pulled(store, tmp_path / "pulled", "train", "eval")
    require_equal(found / "train", place / "run" / "train")
    first, second = (read_jsonl(folder / "eval" / "predictions.jsonl") for folder in (found, place / "run"))
    replies = [(line["sample_id"], line["text"]) for line in first]
    assert len(replies) == 12 and replies == [(line["sample_id"], line["text"]) for line in second]
    before = store.list_objects("run")
    assert "reason" in call("train", str(two), "--run", address), "another machine finds it finished"
    call("eval", str(two), "--run", address)
    same = {stored.key: stored.bytes for stored in store.list_objects("run")}
    assert {stored.key: stored.bytes for stored in before} == same
    assert stage_counts(store, "train")["stages"] == 2 and stage_counts(store, "eval")["questions"] == 12


def test_other_settings_are_refused_and_replaced_with_fresh(place: Path, address: str, tmp_path: Path) -> None:
    one = write_recipe(place, "one")
    call("train", str(one), "--run", address)
    before = stage_files(LocalStore(place / "store"), "train")
    other = ["train", str(one), "--run", address, "--set", "stages.reason.learning_rate=0.001"]
    done = CliRunner().invoke(app, other)
    assert done.exit_code == 2 and "learning_rate" in done.output
    assert f"{address}/train" in done.output and str(place / "one") not in done.output.replace(str(one), "")
    assert stage_files(LocalStore(place / "store"), "train") == before
    call(*other, "--stage", "reason", "--fresh")
    newest = pulled(LocalStore(place / "store"), tmp_path / "pulled", "train")
    assert (newest / "train" / "reason" / MANIFEST).is_file() and (newest / "train" / "align" / MANIFEST).is_file()
    call(*other)
    after = stage_files(LocalStore(place / "store"), "train")
    assert after != before and {name for name in after if name.startswith("align/model")} <= before.keys()


ROOT = Path(__file__).parents[2]
HELD = """
import os, sys, time
from pathlib import Path
from distill.cli import main
from student.training.loop import trainer
_, last, *sys.argv[1:] = sys.argv
recipe = Path(sys.argv[2])
os.dup2(os.open(recipe.with_suffix(".err"), os.O_WRONLY | os.O_CREAT), 2)
recipe.with_suffix(".pid").write_text(str(os.getpid()))
step = trainer.StageTrainer.training_step
def held(self, *arguments, **options):
    go = recipe.with_name("go")
    while self.state.global_step >= int(last) and not go.exists() and not self._interrupts.asked():
        time.sleep(0.01)
    return step(self, *arguments, **options)
trainer.StageTrainer.training_step = held
main()
"""
"""The command, which takes no step after one until a signal asks it to end, or the file `go` is there."""


@pytest.fixture
def machines(place: Path) -> Iterator[ThreadPoolExecutor]:
    """Threads that wait for processes; those that a failed test leaves go on to their end."""
    with ThreadPoolExecutor(2) as pool:
        yield pool
        (place / "go").touch()


PROCESSES = """
import os, signal, sys, time
from pathlib import Path
from distill.cli import main
from student.distributed import processes
from student.training.loop import trainer
_, machines, store, victim, *sys.argv[1:] = sys.argv
if machines == "several":
    os.environ |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
step = trainer.StageTrainer.training_step
def killed(self, *arguments, **options):
    if victim == os.environ["RANK"] and self.state.global_step == 7:
        while not any(b"checkpoint-6/complete" in each.read_bytes() for each in Path(store).rglob("attempts/*.json")):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, *arguments, **options)
trainer.StageTrainer.training_step = killed
main()
"""
"""The command in a process of one machine or of several; one may kill itself once the store has checkpoint 6."""
DROPOUT = "stages.reason.lora.dropout=0.2"


def copied_step(store: LocalStore) -> int:
    """The last checkpoint of the last stage that a copy names; 0 without one."""
    names = ""
    for stored in store.list_objects("run/train/attempts"):
        with suppress(FileNotFoundError):  # the next machine's first copy replaces those before it
            names += store.read(stored.key).decode() if stored.key.endswith(".json") else ""
    return max([0, *map(int, re.findall(r"reason/checkpoints/checkpoint-(\d+)/complete", names))])


@pytest.mark.slow
@LONG
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_machine_that_is_lost_costs_the_steps_since_the_last_checkpoint(
    place: Path, address: str, plain: Path, tmp_path: Path, machines: ThreadPoolExecutor, number: signal.Signals
) -> None:
    store, chance = LocalStore(place / "store"), random.Random(int(number))
    reached = []
    for machine, held_at in enumerate((5, 9)):
        recipe = write_recipe(place, f"machine{machine}")
        process = machines.submit(forked.run, HELD, held_at, "train", recipe, "--run", address)
        deadline, known = time.monotonic() + 400, copied_step(store)
        while copied_step(store) <= known and not process.done() and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.1))
        os.kill(int(recipe.with_suffix(".pid").read_text()), number)
        assert process.result(400).codes[0] in (-number, 128 + number, 0), recipe.with_suffix(".err").read_text()
        reached.append(copied_step(store))
    call("train", str(write_recipe(place, "last")), "--run", address)
    assert 0 < reached[0] < reached[1], "the second machine went on from what the first had reached"
    require_equal(pulled(store, tmp_path / "pulled", "train") / "train", plain)


WAITS = b"waiting for it to end"


@pytest.mark.slow
@LONG
def test_two_machines_at_once_train_once(place: Path, address: str, machines: ThreadPoolExecutor) -> None:
    store = LocalStore(place / "store")
    # A busy machine may let an agent be silent for seconds.
    recipes = [write_recipe(place, f"machine{number}", lease_s=60.0) for number in range(2)]
    processes = [machines.submit(forked.run, HELD, 1, "train", recipe, "--run", address) for recipe in recipes]
    texts = [recipe.with_suffix(".err") for recipe in recipes]
    deadline = time.monotonic() + 400
    while not any(text.exists() and WAITS in text.read_bytes() for text in texts) and time.monotonic() < deadline:
        time.sleep(0.05)
    (place / "go").touch()
    codes = [process.result(400).codes for process in processes]
    said = [text.read_bytes() for text in texts]
    assert codes == [[0], [0]] and sum(WAITS in text for text in said) == 1, said
    manifests = [stored for stored in stage_files(store, "train") if stored.endswith(MANIFEST)]
    assert len(manifests) == 3 and not store.list_objects("run/train/attempts")
    logs = sorted(place.glob("machine*/*/run/train/reason/manifest.json"))
    assert len(logs) == 2 and logs[0].read_bytes() == logs[1].read_bytes(), "one trained, the other has its result"


@pytest.mark.slow
@LONG
def test_two_processes_of_a_launcher_train_in_a_store_too(place: Path, address: str, tmp_path: Path) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2")
    recipe = write_recipe(place, "one", lease_s=60.0)
    command = [forked.interpreter(), *launcher, "-m", "--", "distill", "train", recipe, "--run", address]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=400)
    assert done.returncode == 0, done.stderr
    store = LocalStore(place / "store")
    assert stage_counts(store, "train")["stages"] == 2 and not store.list_objects("claims")
    assert not store.list_objects("run/train/attempts")
    require_saved(pulled(store, tmp_path / "pulled", "train"), "reason", digests=True)


@pytest.mark.slow
@LONG
@pytest.mark.parametrize("victim", [0, 1])
def test_machines_without_a_shared_disk_learn_what_processes_of_one_learn_after_a_kill_too(
    place: Path, address: str, plain_pair: Path, tmp_path: Path, victim: int
) -> None:
    recipe, store, options = write_recipe(place, "one"), LocalStore(place / "store"), ("--set", DROPOUT)
    machines = ("train", recipe, "--run", address, *options)
    killed = forked.run(PROCESSES, "several", place / "store", victim, *machines, ranks=2)
    assert killed.codes[victim] == -signal.SIGKILL and killed.codes[1 - victim], killed.stderr
    assert copied_step(store) >= 6
    shutil.copytree(place / "store", place / "fewer")
    shutil.rmtree(place / "one")
    again = forked.run(PROCESSES, "several", "-", "-", *machines, ranks=2)
    assert again.codes == [0, 0], again.stderr
    assert not store.list_objects("claims") and not store.list_objects("run/train/attempts")
    found = pulled(store, tmp_path / "pulled", "train") / "train"
    require_equal(found, plain_pair)
    # One machine goes on in the same order; it draws other random numbers.
    call("train", str(recipe), "--run", f"file://{place / 'fewer'}", *options)
    fewer = pulled(LocalStore(place / "fewer"), tmp_path / "fewer", "train") / "train"
    ours, theirs = store_worlds.losses_of_same_steps(fewer, found)
    assert ours[:6] == theirs[:6]
    assert ours[-1] == pytest.approx(theirs[-1], abs=0.2)


@pytest.fixture
def s3(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, store_servers.StoreFaults]]:
    store_servers.set_keys(monkeypatch)
    faults = store_servers.StoreFaults()
    with store_servers.s3_server() as upstream, store_servers.faulty_proxy(upstream, faults) as endpoint:
        yield store_servers.recipe_section(endpoint), faults


def test_s3_that_fails_meanwhile_holds_the_stages_that_pull_brings(
    place: Path, plain: Path, s3: tuple[str, store_servers.StoreFaults], tmp_path: Path
) -> None:
    section, faults = s3
    recipe, address = write_recipe(place, "one", section), f"s3://{store_servers.BUCKET}/run"
    store = open_store(address, config=load(recipe).store.client_options())
    push_stage(store, "filter", place / "run" / "filter")
    begun = faults.seen["PUT"]

    def plant() -> None:
        while faults.seen["PUT"] < begun + 12:  # the store is probed, copies are under way
            time.sleep(0.01)
        faults.statuses |= {"GET": [503] * 3, "PUT": [503] * 6}
        faults.cut_after += ["PUT"] * 3

    planter = threading.Thread(target=plant, daemon=True)
    planter.start()
    call("train", str(recipe), "--run", address)
    planter.join(5)
    call("eval", str(recipe), "--run", address)
    assert not faults.statuses["PUT"] and not faults.cut_after
    found = pulled(store, tmp_path / "pulled", "train")
    require_equal(found / "train", plain)
    assert Manifest.read(found / "train") is not None


@pytest.mark.slow
@pytest.mark.usefixtures("short_report")
@LONG
def test_one_command_does_all_stages_in_a_store_and_nothing_the_second_time(place: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (place / "questions.jsonl").read_text().splitlines()]
    asked = [{**row, "answer": None} for row in rows]  # the stub knows no right one
    (place / "questions.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in asked))
    shutil.rmtree(place / "run")
    address, store = f"file://{place / 'store'}", LocalStore(place / "store")
    with stub_server.serve(latency_s=0.0) as url:
        teacher = f'[[teachers]]\nname = "stub"\nmodel = "stub"\nbackend = "vllm"\nbase_url = "{url}"\nsamples = 2\n'
        engine = '[engine]\nscratch = "scratch"\nunit_rows = 16\n[generate]\npatience_s = 2.0\n'
        stage = worlds.stage("reason", "traces:random", steps=12)
        recipe = worlds.recipe(place, stage, more=f"{EVAL}{engine}{teacher}")
        done = CliRunner().invoke(app, ["run", str(recipe.path), "--run", address, "--engine", "slurm"])
        assert done.exit_code == 2 and "cannot wait for jobs" in done.output
        first = call("run", str(recipe.path), "--run", address)
        assert "reason" in first and "report:  file://" in first
        asked_once = asked_of(url)
    shutil.rmtree(place / "scratch")
    assert asked_once >= 80
    second = call("run", str(recipe.path), "--run", address)  # the teacher is not there any more
    assert "report:  file://" in second
    status = call("status", address)
    assert "train: finished; stages 1, steps 12" in status and "eval: finished; arms 1, questions 12" in status
    told = call("pull", address, str(tmp_path / "pulled"), "--recipe", str(recipe.path))
    assert "trained and evaluated" in told
    assert "reason" in call("status", str(tmp_path / "pulled"))
    metrics = json.loads((tmp_path / "pulled" / "eval" / EVAL_METRICS).read_text())
    assert metrics["learned_rows"]["n"] > 0, "rows of the random traces, whose dataset no store holds"
    assert not store.list_objects("claims") and not store.list_objects("agents")
