"""Random lives of a run: what a user does to one run over weeks, in random order, and its promises.

    python benchmarks/crashes/lives.py [--walks 20] [--steps 25] [--seed 0]

A step edits the recipe (teachers, rules, signals, selection, seed), the questions or an image; moves, copies or links
the run, or renames the project; labels a trace; uses `--limit`; kills `generate` or `filter`; takes the stub server
away; pushes the run to a store and pulls it; or brings the run up to date, by the commands of `plan --diff` or by
`generate` and `filter`. Promises: no trace is lost or changed; no undisturbed step sends a request whose trace is
there; what the plan says that stays, stays; its commands are enough; traces and dataset have the bytes of a new run.
Prints each broken promise with the last steps.
Takes 2 min with `--walks 2 --steps 12` (two shared cores).
"""

import argparse
import hashlib
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from typer.testing import CliRunner

from distill.artifacts.journal import read_jsonl
from distill.artifacts.manifest import Manifest
from distill.cli import app
from distill.trace_records.human_labels import FILE, LabelJournal

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))
from servers.stub_server import serve
from students import tiny_models
from worlds.generate_world import World, asked_of, set_mode

RULES = {
    "incomplete": "outcome <> 'complete'",
    "long": "rationale_tokens > 60",
    "some": "md5_number(id) % 3 = 0",
    "alike": "near_duplicate",
    "person": "human_verdict = 'wrong'",
}
SIGNALS = ("format", "repetition", "length", "duplicates", "agreement", "human")
MORE_SIGNALS = ("answer", "steps", "arithmetic", "corpus", "question")
SELECT = {"per_question": 1, "per_teacher": 1, "limit": 5, "curriculum": ["rationale_tokens"], "weight": "0.5"}
STAGES = ("generate", "filter")
KILLED = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)


class Broken(Exception):
    """A promise that a step broke."""


class Life:
    """One run with its recipe and its data, and what is known of its traces."""

    def __init__(self, home: Path, url: str, seed: int) -> None:
        self.home, self.url, self.chance = home, url, random.Random(seed)
        self.world = World(home / "project")
        self.world.folder.mkdir(parents=True)
        self.world.add_rows(8, images=6)
        self.world.add_teacher(url, "small", model="stub", samples=2)
        self.rules, self.signals = ["incomplete", "some"], [*SIGNALS]
        self.select: dict[str, Any] = {}
        self.seed, self.partition = 1, 7
        self.traces: dict[str, str] = {}
        self.trail: list[str] = []
        self.write()

    @property
    def run(self) -> Path:
        return self.world.run

    @property
    def recipe(self) -> str:
        return str(self.world.folder / "recipe.toml")

    def write(self) -> None:
        rules = "".join(f'[[filter.rules]]\nname = "{name}"\ndrop = "{RULES[name]}"\n' for name in self.rules)
        select = "".join(f"{name} = {value!r}\n" for name, value in self.select.items())
        self.world.head = (
            f"seed = {self.seed}\n[generate]\npatience_s = 0.5\n[filter]\nworkers = 1\nsignals = {self.signals!r}\n"
            f"partition_rows = {self.partition}\n{'' if self.rules else 'rules = []'}\n"
            f"[filter.select]\n{select}{rules}"
        )
        self.world.recipe()

    def distill(self, *arguments: object) -> tuple[int, str]:
        said = CliRunner().invoke(app, [*map(str, arguments)])
        if said.exception is not None and not isinstance(said.exception, SystemExit):
            raise Broken(f"{arguments[0]}: {said.exception!r}")
        return said.exit_code, said.output

    # --- edits --------------------------------------------------------------------------------------------------

    def edit_teachers(self) -> str:
        teachers = self.world.teachers
        teacher = self.chance.choice(teachers)
        match self.chance.randrange(6):
            case 0 if len(teachers) < 3:
                name = next(name for name in ("small", "second", "third") if name not in self.names("name"))
                model = next(each for each in ("stub", "b", "c") if each not in self.names("model"))
                self.world.add_teacher(self.url, name, model=model, backend="openai", prompt=f"{model}: {{question}}")
            case 1 if len(teachers) > 1:
                teachers.remove(teacher)
            case 2:
                free = {"small", "second", "third", "renamed"} - {*self.names("name")}
                teacher["name"] = self.chance.choice(sorted(free))
            case 3:
                self.chance.shuffle(teachers)
            case 4:
                teacher["samples"] = self.chance.choice([1, 2, 3])
            case _:
                teacher["weight"] = self.chance.choice([1.0, 0.5])
        return ", ".join(f"{each['name']} {each['model']} {each.get('samples', 1)}" for each in teachers)

    def names(self, key: str) -> list[str]:
        return [teacher[key] for teacher in self.world.teachers]

    def edit_sampling(self) -> str:
        self.world.sampling = {"max_tokens": self.chance.choice([16, 17])}
        return str(self.world.sampling)

    def edit_policy(self) -> str:
        match self.chance.randrange(4):
            case 0:
                self.rules = self.chance.sample([*RULES], self.chance.randint(0, 3))
            case 1:
                self.signals = [*SIGNALS, *self.chance.sample(MORE_SIGNALS, self.chance.randint(0, 3))]
                self.chance.shuffle(self.signals)
            case 2:
                self.select = {
                    name: SELECT[name] for name in self.chance.sample([*SELECT], self.chance.randint(0, 2))
                }
            case _:
                self.partition = self.chance.choice([3, 7, 100])
        return f"{self.rules} {self.signals} {self.select} {self.partition}"

    def edit_seed(self) -> str:
        self.seed = self.chance.choice([1, 2])
        return str(self.seed)

    def edit_rows(self) -> str:
        rows = self.world.rows
        row = self.chance.choice(rows)
        match self.chance.randrange(6):
            case 0:
                self.world.add_rows(self.chance.randint(1, 3), images=6)
            case 1 if len(rows) > 4:
                rows.remove(row)
            case 2:
                self.chance.shuffle(rows)
            case 3:
                row["question"] = row["question"].swapcase()
            case 4:
                row["answer"] = str(int(row["answer"]) + 1)
            case _:
                row["domain"] = self.chance.choice("ab")
        return f"{len(rows)} rows"

    def edit_image(self) -> str:
        number = self.chance.randrange(6)
        tiny_models.make_image(self.world.folder / f"{number}.png", number + self.chance.choice([0, 200]), size=16)
        return f"{number}.png"

    # --- the run ------------------------------------------------------------------------------------------------

    def move(self) -> str:
        if not self.run.exists():
            return "no run"
        new = self.world.folder / f"run{self.chance.randrange(10**6)}"
        match self.chance.randrange(4):
            case 0:
                self.run.rename(new)
            case 1:
                shutil.copytree(self.run, new, symlinks=False)
            case 2:
                new.symlink_to(self.run.resolve())
            case _:
                moved = self.home / f"project{self.chance.randrange(10**6)}"
                new = moved / self.run.resolve().name
                self.world.folder.rename(moved)
                self.world.folder = moved
        self.world.run = new
        return str(new)

    def label(self) -> str:
        if not self.traces or not self.run.exists():
            return "no trace"
        trace = self.chance.choice(sorted(self.traces))
        labels = LabelJournal(self.run)
        labels.add({"trace": trace, "label": self.chance.choice(["correct", "wrong", "unsure"])})
        labels.close()
        return trace

    def look(self) -> str:
        if (self.run / "recipe.toml").exists():
            for command in (("status", self.run), ("repair", self.run), ("plan", self.recipe, "--diff", self.run)):
                code, said = self.distill(*command)
                if code:
                    raise Broken(f"{command}: exit code {code}\n{said}")
        return ""

    def limited(self) -> str:
        return str(self.distill("generate", self.recipe, "--run", self.run, "--limit", 3)[0])

    def outage(self) -> str:
        set_mode(self.url, self.chance.choice(["500", "away", "429"]))
        try:
            code, said = self.distill("generate", self.recipe, "--run", self.run)
        finally:
            set_mode(self.url, "")
        if code not in (0, 2, 3):
            raise Broken(f"generate without a server: exit code {code}\n{said}")
        return str(code)

    def kill(self) -> str:
        stage = self.chance.choice(STAGES)
        command = [sys.executable, "-m", "distill", stage, self.recipe, "--run", str(self.run)]
        process = subprocess.Popen(
            command + self.chance.choice([[], ["--fresh"]]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(self.chance.uniform(0.3, 3.0))
        if process.poll() is None:
            os.killpg(process.pid, self.chance.choice(KILLED))
        process.wait()
        return stage

    def through_store(self) -> str:
        """Push the run, go on in the store, and pull it."""
        self.bring_up_to_date()
        store, new = self.home / f"store{len(self.trail)}", self.world.folder / f"pulled{len(self.trail)}"
        address, asked = f"file://{store}", asked_of(self.url)
        for command in (
            ("push", self.run, address, "--recipe", self.recipe),
            ("generate", self.recipe, "--run", address),
            ("pull", address, new, "--recipe", self.recipe),
        ):
            code, said = self.distill(*command)
            if code:
                raise Broken(f"{command}: exit code {code}\n{said}")
        if (sent := asked_of(self.url) - asked) > 0:
            raise Broken(f"a finished run that was pushed to a store sent {sent} requests there")
        if (self.run / FILE).exists():
            shutil.copytree((self.run / FILE).parent, (new / FILE).parent)
        self.world.run = new
        self.traces = {}  # a pulled run holds what its recipe wants
        self.bring_up_to_date()
        return address

    # --- promises -----------------------------------------------------------------------------------------------

    def bring_up_to_date(self) -> str:
        """Follow the recipe, and check that what the plan said is what happened."""
        text, finished = "", (self.run / "recipe.toml").exists()
        if finished:
            code, text = self.distill("plan", self.recipe, "--diff", self.run)
            if code:
                raise Broken(f"plan: exit code {code}\n{text}")
        before, asked, by_plan = self.results(), asked_of(self.url), self.chance.random() < 0.5
        commands = [shlex.split(line)[1:] for line in text.splitlines() if line.startswith("  distill ")]
        for command in commands if by_plan else ():
            if (done := self.distill(*command))[0]:
                return self.refused(*done)
        for stage in STAGES:
            code, said = self.distill(stage, self.recipe, "--run", self.run)
            if code and "--fresh" in said and not by_plan:
                code, said = self.distill(stage, self.recipe, "--run", self.run, "--fresh")
            if code:
                return self.refused(code, said)
        after, is_certain = self.results(), finished and "warning: " not in text
        for stage in STAGES:
            stays = "every finished stage stays" in text or re.search(
                rf"^{stage} +finished +stays", text, re.MULTILINE
            )
            if is_certain and stays and before[stage] is not None and before[stage] != after[stage]:
                raise Broken(f"{stage} was made again, and the plan said that it stays\n{text}")
        self.check_traces(asked_of(self.url) - asked, is_counted=True)
        self.compare_with_new_run()
        return f"{'by the plan' if by_plan else 'plainly'}, {len(commands)} commands"

    def refused(self, code: int, said: str) -> str:
        """A recipe that keeps no trace is refused in a new run, too."""
        if code != 2 or "is kept" not in said:
            raise Broken(f"exit code {code}\n{said}")
        self.rules, self.select = [], {}
        self.write()
        return "no trace is kept"

    def results(self) -> dict[str, Any]:
        generated, filtered = (Manifest.read(self.run / stage) for stage in STAGES)
        traces = generated and (generated.outputs["plan.parquet"], generated.inputs["samples.parquet"])
        return {"generate": traces, "filter": filtered and filtered.fingerprint}

    def compare_with_new_run(self) -> None:
        new = self.home / "new"
        shutil.rmtree(new, ignore_errors=True)
        if (self.run / FILE).exists():
            shutil.copytree((self.run / FILE).parent, (new / FILE).parent)
        for stage in STAGES:
            if (done := self.distill(stage, self.recipe, "--run", new))[0]:
                raise Broken(f"a new run: exit code {done[0]}\n{done[1]}")
        ours, theirs = contents(self.run), contents(new)
        if other := sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name)):
            raise Broken(f"a new run has another {', '.join(other)}")

    def check_traces(self, asked: int, is_counted: bool) -> None:
        records = [each for part in self.run.glob("generate/*/part-*.jsonl") for each in read_jsonl(part)]
        found = {each["id"]: each["text"] for each in records if each["outcome"] != "error"}
        if lost := [name for name, text in self.traces.items() if found.get(name) != text]:
            raise Broken(f"{len(lost)} traces are lost or changed, such as {lost[0]}")
        if is_counted and asked > (new := len(found.keys() - self.traces.keys())):
            raise Broken(f"{asked} requests for {new} new traces")
        self.traces = found

    def step(self) -> None:
        name, weight = zip(*WEIGHTS.items(), strict=True)
        chosen: Callable[[Life], str] = self.chance.choices(name, weight)[0]
        asked = asked_of(self.url)
        self.trail.append(chosen.__name__)
        self.trail[-1] += f": {chosen(self)}"
        self.write()
        # A killed process leaves replies that were not written, and a new run for comparison asks, too.
        self.check_traces(asked_of(self.url) - asked, is_counted=chosen in (Life.limited, Life.outage))


def contents(run: Path) -> dict[str, Any]:
    """What must have the same bytes as in a new run."""
    folder = run / "generate"
    texts = {each["id"]: each["text"] for part in folder.glob("*/part-*.jsonl") for each in read_jsonl(part)}
    plan = pq.read_table(folder / "plan.parquet").to_pylist()
    files = [run / "filter" / "decisions.parquet", *sorted((run / "filter" / "dataset" / "train").iterdir())]
    return {
        "list of traces": [(row["id"], row["teacher"], row["k"], texts[row["id"]]) for row in plan],
        **{str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
    }


WEIGHTS: dict[Callable[[Life], str], float] = {
    Life.edit_teachers: 4,
    Life.edit_sampling: 1,
    Life.edit_policy: 4,
    Life.edit_seed: 1,
    Life.edit_rows: 4,
    Life.edit_image: 1,
    Life.move: 3,
    Life.label: 1,
    Life.look: 1,
    Life.limited: 1,
    Life.outage: 1,
    Life.kill: 2,
    Life.through_store: 1,
    Life.bring_up_to_date: 8,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--walks", type=int, default=20)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    broken = 0
    with serve() as url, tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seed, options.seed + options.walks):
            life = Life(Path(folder) / str(seed), url, seed)
            try:
                for _ in range(options.steps):
                    life.step()
                life.bring_up_to_date()
            except Broken as error:
                broken += 1
                print(f"walk {seed}, step {len(life.trail)}: {error}\n  " + "\n  ".join(life.trail[-12:]), flush=True)
            else:
                print(f"walk {seed}: {options.steps} steps, {len(life.traces)} traces, as promised", flush=True)
            shutil.rmtree(life.home, ignore_errors=True)
    sys.exit(f"{broken} of {options.walks} walks broke a promise" if broken else 0)


if __name__ == "__main__":
    main()
