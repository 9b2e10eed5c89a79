"""Lives of train, eval, rounds and ablate: kills, damaged files, lost folders, changes, against a run left alone.

    python benchmarks/crashes/student_lives.py [kills|damage|rounds|ablate ...] [--kills 10] [--of ablate] [--seed 0]

kills: SIGKILL, SIGTERM and Ctrl-C of the four commands (`--of`: of one) at random moments; the same command again
ends with the students, replies and tables of a run left alone, no finished stage is trained again, no stored reply
asked again.
damage: each file of a stage under way is cut, has a flipped bit, or is gone; the next command ends with the same
student or names the file. rounds: each folder of a round lost, and each key of [rounds] changed after round 1.
ablate: arms and seeds that come and go, an arm that fails, another base recipe. Prints each broken promise.
Takes 40 min; 5 min with `damage`, 1 min with `ablate --seed 1` (two shared cores).
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import orjson
from student_world import Broken, Life, copied, demand, distill, results, started, untimed, wait_for_locks

from distill.artifacts.journal import read_jsonl
from distill.artifacts.layout import RESULTS

SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
ROUNDS = ("--set", "rounds.count=1")
ROUND_KEYS = {
    "attempts": "1",
    "temperature": "0.5",
    "most_right": "0.4",
    "returned": "3",
    "answered": "8",
    "samples": "1",
    "prompt": '"{question} Not this: {reply}"',
    "start": '"base"',
    "steps_share": "0.8",
    "new_share": "0.8",
    "ageing": "0.5",
    "teachers": '["small"]',
    "min_gain_points": "-50",
}

ARM_CHANGES = {
    "an arm more": 'ablate.arms=["answers_only", "slow", "untouched"]',
    "an arm less": 'ablate.arms=["slow"]',
    "a seed more": "ablate.seeds=[0, 1]",
    "another seed": "ablate.seeds=[1]",
}
BASE_CHANGES = ("stages.reason.learning_rate=2e-3", "eval.max_new_tokens=5")


# --- kills ------------------------------------------------------------------------------------------------------


def finished_stages(run: Path) -> dict[str, int]:
    """Finished stages of training below a run, and when they were written."""
    found = [*run.rglob("train/*/manifest.json"), *run.glob("ablate/shared/train-*/manifest.json")]
    return {str(path.resolve()): path.stat().st_mtime_ns for path in found}


def require_asked_once(run: Path) -> None:
    for path in run.rglob("replies.jsonl"):
        asked = Counter((line["student"], line["without_image"], line["sample_id"]) for line in read_jsonl(path))
        if twice := [key for key, count in asked.items() if count > 1]:
            raise Broken(f"{path}: {len(twice)} questions were asked twice")


def kill(life: Life, name: str, base: Path, command: Callable[[Path], tuple[object, ...]], kills: int) -> str:
    alone, log = copied(base, life.folder / f"{name}-alone"), life.folder / f"{name}.log"
    begun = time.monotonic()
    if code := started(log, *command(alone)).wait():
        raise Broken(f"{name}: exit code {code}\n{log.read_text()[-2000:]}")
    seconds, expected = time.monotonic() - begun, results(alone)
    run, counts = copied(base, life.folder / f"{name}-killed"), Counter[str]()
    kept: dict[str, int] = {}
    while counts["kills"] < kills:
        process = started(log, *command(run))
        try:
            code = process.wait(life.chance.uniform(0.1, seconds))
        except subprocess.TimeoutExpired:
            process.send_signal(life.chance.choice(SIGNALS))
            if life.chance.random() < 0.3:
                process.kill()
            process.wait()
            counts["kills"] += 1
        else:
            if code:
                raise Broken(f"{name}: exit code {code}\n{log.read_text()[-2000:]}")
            compare(name, run, expected)
            run, kept = copied(base, life.folder / f"{name}-killed"), {}
            counts["runs"] += 1
            continue
        wait_for_locks(run)
        now = finished_stages(run)
        if again := [path for path, when in kept.items() if path in now and now[path] != when]:
            raise Broken(f"{name}: trained again: {again}")
        kept |= now
    if code := started(log, *command(run)).wait():
        raise Broken(f"{name}: exit code {code}\n{log.read_text()[-2000:]}")
    compare(name, run, expected)
    return f"{counts['kills']} kills, {counts['runs'] + 1} runs, {seconds:.0f} s when left alone"


def compare(name: str, run: Path, expected: dict[str, object], left: Collection[str] = ()) -> None:
    found = results(run)
    if other := sorted(key for key in {*found, *expected} - {*left} if found.get(key) != expected.get(key)):
        raise Broken(f"{name}: a run left alone has another {', '.join(other)}")
    require_asked_once(run)


def kills(life: Life, number: int) -> Iterator[str]:
    commands: dict[str, tuple[Path, Callable[[Path], tuple[object, ...]]]] = {
        "train": (life.filtered, lambda run: ("train", life.recipe, "--run", run)),
        "eval": (life.trained, lambda run: ("eval", life.recipe, "--run", run)),
        "rounds": (life.evaluated, lambda run: ("run", life.recipe, "--run", run, *ROUNDS)),
        "ablate": (life.trained, lambda run: ("ablate", life.recipe, "--run", run)),
        "ablate --jobs 2": (life.trained, lambda run: ("ablate", life.recipe, "--run", run, "--jobs", "2")),
    }
    for name, (base, command) in commands.items():
        if not name.startswith(life.only):
            continue
        yield f"kills of {name}: {kill(life, name, base, command, number)}"


# --- damage -----------------------------------------------------------------------------------------------------


def cut(path: Path, chance: random.Random) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flipped(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(bytes(data))


def gone(path: Path, chance: random.Random) -> None:
    path.unlink()


def damage(life: Life, number: int) -> Iterator[str]:
    """Damage each file of training that was stopped in its second stage, and go on."""
    stopped, command = copied(life.filtered, life.folder / "stopped"), ("train", life.recipe, "--run")
    while not list((stopped / "train" / "reason" / "checkpoints").glob("*/complete")):
        process = started(life.folder / "damage.log", *command, stopped)
        while process.poll() is None and not list(stopped.glob("train/reason/checkpoints/*/complete")):
            time.sleep(0.005)
        process.kill()
        process.wait()
        wait_for_locks(stopped)
        if (stopped / "train" / "answers").exists():
            stopped = copied(life.filtered, stopped)
    expected, counts, broken = results(life.trained), Counter[str](), list[str]()
    files = [path.relative_to(stopped) for path in sorted((stopped / "train").rglob("*")) if path.is_file()]
    for name in files:
        for harm in (cut, flipped, flipped, gone):
            here = copied(stopped, life.folder / "damaged")
            if not (here / name).stat().st_size and harm is not gone:
                continue
            harm(here / name, life.chance)
            try:
                code, said = distill(*command, here)
            except Broken as error:
                code, said = 1, str(error)
            if code not in (0, 2, 3) or (code and name.name not in said and name.parent.name not in said):
                broken.append(f"{name} {harm.__name__}: exit code {code}: {said[-600:]}")
            elif not code and results(here) != expected:
                broken.append(f"{name} {harm.__name__}: another student, and nothing was said")
            counts["refused" if code else "healed"] += 1
    ended = f"{counts['healed']} healed, {counts['refused']} refused"
    yield f"damage: {len(files)} files, {counts.total()} times: {ended}"
    if broken:
        raise Broken("\n".join(broken))


# --- rounds -----------------------------------------------------------------------------------------------------


def rounds(life: Life, number: int) -> Iterator[str]:
    made = copied(life.evaluated, life.folder / "made")
    demand("run", life.recipe, "--run", made, *ROUNDS)
    expected = results(made)
    parts = [path.relative_to(made) for path in sorted(made.glob("rounds/1/*")) if path.is_dir()]
    for part in (Path("rounds/1"), Path("rounds"), *parts):
        here = copied(made, life.folder / "here")
        shutil.rmtree(here / part)
        demand("run", life.recipe, "--run", here, *ROUNDS)
        compare(f"without {part}", here, expected)
    yield f"rounds: {len(parts) + 2} folders lost, each made again with the same results"
    for key, value in ROUND_KEYS.items():
        change = (*ROUNDS, "--set", f"rounds.{key}={value}")
        new = copied(life.evaluated, life.folder / "new")
        demand("run", life.recipe, "--run", new, *change)
        here, wanted = copied(made, life.folder / "here"), results(new)
        code, said = distill("run", life.recipe, "--run", here, *change)
        if code and "--redo-stale" not in said:
            yield f"rounds.{key}: BROKEN: exit code {code}\n{said}"
            continue
        first = "refused" if code else "made"
        if code:
            if results(here) != expected:
                raise Broken(f"rounds.{key}: a refused command changed results")
            demand("run", life.recipe, "--run", here, *change, "--redo-stale")
        left = {name for name in results(here).keys() - wanted.keys() if "answers-" in name}  # of more attempts
        try:
            compare(f"rounds.{key} = {value} ({first})", here, wanted, left)
        except Broken as error:
            yield f"BROKEN: {error}"
        yield f"rounds.{key} = {value}: {first}; {'equal' if wanted == expected else 'other'} results"


# --- ablate -----------------------------------------------------------------------------------------------------


def table(run: Path) -> object:
    """The results of the arms in the table; what is left out is another matter."""
    found = orjson.loads((run / "ablate" / RESULTS).read_bytes())
    return {name: value for name, value in untimed(found).items() if name != "skipped"}


def ablate(life: Life, number: int) -> Iterator[str]:
    made = copied(life.trained, life.folder / "arms")
    command = ("ablate", life.recipe, "--run")
    demand(*command, made)
    for change in BASE_CHANGES:
        here, new = copied(made, life.folder / "here"), copied(life.trained, life.folder / "new")
        demand(*command, new, "--set", change)
        code, said = distill(*command, here, "--set", change)
        if code:
            if f"move {here / 'ablate' / 'arms'} away" not in said:
                raise Broken(f"{change}: exit code {code}\n{said}")
            (here / "ablate" / "arms").rename(here / "ablate" / "arms.before")
            demand(*command, here, "--set", change)
        if results(here)["ablate"] != results(new)["ablate"]:
            raise Broken(f"{change}: another table than that of a new ablation")
        yield f"ablate, {change}: {'refused, then made' if code else 'made'}"
    yield from arms_that_fail(life, copied(made, life.folder / "here"))
    for name, change in ARM_CHANGES.items():
        here, new = copied(made, life.folder / "here"), copied(life.trained, life.folder / "new")
        demand(*command, new, "--set", change)
        before = finished_stages(here)
        for step, options, wanted in (("there", ("--set", change), new), ("and back", (), made)):
            demand(*command, here, *options)
            if again := [path for path, when in before.items() if finished_stages(here).get(path) != when]:
                raise Broken(f"{name}, {step}: trained again or lost: {again}")
            if table(here) != table(wanted):
                raise Broken(f"{name}, {step}: another table than that of a new ablation")
            before = finished_stages(here)
        yield f"ablate, {name}, and back: {len(before) - len(finished_stages(made))} stages more; tables of new ones"


def arms_that_fail(life: Life, here: Path) -> Iterator[str]:
    """An arm with a rate that no training survives, with one and two processes; then with a rate that it survives."""
    for jobs in ("1", "2"):
        options = ("--set", "ablate.own.slow.set={'stages.reason.learning_rate' = 1e30}", "--jobs", jobs)
        shutil.rmtree(here / "ablate" / "arms" / "slow", ignore_errors=True)
        before = finished_stages(here)
        code, said = distill("ablate", life.recipe, "--run", here, *options)
        found = orjson.loads((here / "ablate" / RESULTS).read_bytes())
        if code != 1 or {*found["failed"]} != {"slow"} or "answers_only" not in found["arms"]:
            raise Broken(f"an arm that fails: exit code {code}, {found['failed']}\n{said}")
        if again := [path for path, when in before.items() if finished_stages(here).get(path) != when]:
            raise Broken(f"an arm that fails: trained again or lost: {again}")
        yield f"ablate --jobs {jobs}, an arm that fails: {found['failed']['slow'][:60]}"
    shutil.rmtree(here / "ablate" / "arms" / "slow")
    demand("ablate", life.recipe, "--run", here)
    if (now := orjson.loads((here / "ablate" / RESULTS).read_bytes()))["failed"] or "slow" not in now["arms"]:
        raise Broken(f"an arm that failed and was corrected: {now['failed']}")
    yield "ablate, the arm that failed, corrected: in the table"


WALKS: dict[str, Callable[[Life, int], Iterator[str]]] = {
    "kills": kills,
    "damage": damage,
    "rounds": rounds,
    "ablate": ablate,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("walks", nargs="*", choices=[*WALKS, []], help="default: all four")
    parser.add_argument("--kills", type=int, default=10, help="of each command")
    parser.add_argument("--of", default="", help="kill this command only")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    broken = 0
    with tempfile.TemporaryDirectory() as folder, Life(Path(folder), options.seed) as life:
        life.only = options.of
        for name in options.walks or WALKS:
            try:
                for line in WALKS[name](life, options.kills):
                    print(line, flush=True)
            except Broken as error:
                broken += 1
                print(f"{name}: {error}", flush=True)
    sys.exit(f"{broken} walks broke a promise" if broken else 0)


if __name__ == "__main__":
    main()
