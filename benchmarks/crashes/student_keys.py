"""Each key of [student], [[stages]] and [eval] changed alone in a finished run: what is made again, and what differs?

    python benchmarks/crashes/student_keys.py [--only stages.reason] [--methods]

For each value: what `plan --diff` says of the stage, whether `distill train` (or `eval`) takes the finished stage for
finished, and whether the stage, made again with `--fresh` in a copy, leaves other bytes. Prints the keys with a stale
result that is taken as finished, those with equal bytes that are made again, and those where the plan says otherwise.
`--methods`: the keys of distributions, visual weights, scored rollouts and preference, in a run of the tiny world.
Takes 15 min for all keys, 5 min with `--methods`, 1 min with `--only student.attention` (two shared cores).
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path
from typing import Self

from student_world import Broken, Life, copied, demand, distill, results

VALUES: dict[str, str] = {
    "student.attention": '"sdpa"',
    "student.trust_remote_code": "true",
    "student.dtype": '"bfloat16"',
    "student.image_memory_gb": "0.0",
    "student.image_disk_gb": "0.0",
    "student.image_tokens": '"on"',
    "student.image_tokens_gb": "0.0",
    "stages.align.epochs": "3.0",
    "stages.align.target": '"answer"',
    "stages.align.replay": "{more = 0.2}",
    "stages.align.learning_rate": "1e-3",
    "stages.answers.target": '"rationale"',
    "stages.reason.train": '["projector", "language"]',
    "stages.reason.start": '"base"',
    "stages.reason.data": '"traces:random"',
    "stages.reason.lora.rank": "3",
    "stages.reason.lora.alpha": "8",
    "stages.reason.lora.dropout": "0.3",
    "stages.reason.lora.rslora": "true",
    "stages.reason.lora.dora": "true",
    "stages.reason.learning_rate": "1e-3",
    "stages.reason.epochs": "1.0",
    "stages.reason.max_steps": "4",
    "stages.reason.max_tokens": "2000",
    "stages.reason.batch_size": "5",
    "stages.reason.batch_tokens": "8192",
    "stages.reason.micro_batch_tokens": "200",
    "stages.reason.micro_batch_images": "1",
    "stages.reason.line_tokens": "512",
    "stages.reason.order": '"length"',
    "stages.reason.teachers": "{small = 2.0}",
    "stages.reason.no_think": "0.5",
    "stages.reason.loss.rationale": "2.0",
    "stages.reason.loss.answer": "2.0",
    "stages.reason.loss.format": "2.0",
    "stages.reason.loss.normalise": '"spans"',
    "stages.reason.loss.final.answer": "2.0",
    "stages.reason.loss.sample_weights": "false",
    "stages.reason.max_length": "60",
    "stages.reason.too_long": '"error"',
    "stages.reason.warmup_share": "0.5",
    "stages.reason.schedule": '"linear"',
    "stages.reason.weight_decay": "0.1",
    "stages.reason.max_grad_norm": "0.01",
    "stages.reason.gradient_checkpointing": "true",
    "stages.reason.limit": "8",
    "stages.reason.sharding": '"fsdp2"',
    "stages.reason.save_every_steps": "1",
    "stages.reason.log_every_steps": "5",
    "stages.reason.validation.every_steps": "2",
    "stages.reason.validation.questions": "3",
    "stages.reason.validation.max_new_tokens": "4",
    "stages.reason.validation.batch_size": "1",
    "stages.reason.validation.hold_out": "4",
    "stages.reason.validation.metric": '"accuracy"',
    "stages.reason.validation.patience": "1",
    "stages.reason.validation.keep": '"best"',
    "stages.reason.validation.gallery": "1",
    "data.captions.columns.domain": '"kind"',
    "data.captions.columns.difficulty": '"hard"',
    "data.captions.domain": '"x"',
    "data.captions.answer_type": '"text"',
    "data.captions.limit": "8",
    "data.captions.max_pixels": "100000",
    "data.captions.max_bad_share": "0.5",
    "data.captions.part": "[0.0, 0.7]",
    "data.captions.earlier_turns": "true",
    "data.captions.allow_outside_root": "true",
    "data.more.max_pixels": "100000",
    "data.questions.max_pixels": "300000000",
    "seed": "2",
    "eval.data": '"more"',
    "eval.max_new_tokens": "5",
    "eval.batch_size": "3",
    "eval.temperature": "0.5",
    "eval.think": "false",
    "eval.without_image": "false",
    "eval.gallery": "3",
    "eval.arms": '{distilled = "reason"}',
    "data.test.domain": '"y"',
    "data.test.limit": "7",
    "data.test.answer_type": '"text"',
    "filter.answer.relative_tolerance": "0.5",
}


TINY = Path(__file__).resolve().parents[2] / "recipes" / "tiny"
METHODS = f"""
seed = 1
[data.questions]
source = "{TINY}/data/questions.parquet"
limit = 16
[data.captions]
source = "{TINY}/data/captions.parquet"
limit = 8
[data.test]
source = "{TINY}/data/test.parquet"
limit = 6
[[teachers]]
name = "all"
backend = "embedded"
model = "{TINY}/teachers/generalist"
samples = 3
logprobs = 5
[teachers.sampling]
temperature = 1.5
max_tokens = 96
[filter.select]
per_question = 1
[student]
vision = "{TINY}/tower"
language = "{TINY}/decoder"
pixel_shuffle = 2
dtype = "float32"
[[stages]]
name = "align"
data = "captions"
train = ["projector"]
max_steps = 1
batch_size = 4
[[stages]]
name = "reason"
data = "traces"
train = ["language"]
max_steps = 3
batch_size = 4
learning_rate = 1e-3
[stages.distill]
[stages.visual]
[[stages]]
name = "rolls"
data = "traces:rollouts"
train = ["language"]
max_steps = 2
batch_size = 4
learning_rate = 1e-3
[stages.rollouts]
teacher = "all"
answered = 8
max_new_tokens = 12
[[stages]]
name = "prefers"
data = "traces:pairs"
start = "reason"
train = ["language"]
max_steps = 2
batch_size = 4
learning_rate = 1e-3
[stages.preference]
[eval]
data = "test"
max_new_tokens = 6
"""
METHOD_VALUES = {
    "stages.reason.distill.weight": "0.1",
    "stages.reason.distill.top_k": "3",
    "stages.reason.visual.teacher": '"all"',
    "stages.reason.visual.strength": "0.1",
    "stages.reason.visual.least": "0.9",
    "stages.reason.visual.most": "1.1",
    "stages.rolls.rollouts.top_k": "3",
    "stages.rolls.rollouts.attempts": "2",
    "stages.rolls.rollouts.temperature": "0.5",
    "stages.rolls.rollouts.answered": "9",
    "stages.rolls.rollouts.max_new_tokens": "9",
    "stages.prefers.preference.beta": "0.5",
    "stages.prefers.preference.sft": "0.5",
    # These mean what stands there already.
    "stages.reason.distill.top_k ": "19",
    "stages.reason.visual.most ": "40.0",
    "stages.rolls.rollouts.answered ": "100",
}


class MethodLife(Life):
    """A run of the tiny world whose stages learn by methods that a teacher scores texts for."""

    def __enter__(self) -> Self:
        self.recipe = self.folder / "methods.toml"
        self.recipe.write_text(METHODS, encoding="utf-8")
        return self


def stage_of(key: str) -> str:
    """The stage that a key is about: of [student] and seed the first one."""
    if found := re.match(r"stages\.(\w+)\.", key):
        return found[1]
    if key.startswith("data.captions."):
        return "align"
    return "eval" if key.startswith(("eval.", "data.test.", "filter.")) else "align"


def look_at(recipe: Path, run: Path, folder: Path, key: str, value: str) -> tuple[bool, bool, bool]:
    """Whether the plan lets the stage stay, whether the command takes it for finished, whether its bytes differ."""
    stage, change = stage_of(key), ("--set", f"{key.strip()}={value}")
    here, new = copied(run, folder / "here"), copied(run, folder / "new")
    name = stage if stage == "eval" else f"train {stage}"
    said = demand("plan", recipe, "--diff", here, *change)
    again = re.search(rf"^{name} +finished +(runs again|may run again)", said, re.MULTILINE) is not None
    before = results(here)
    command = ("eval",) if stage == "eval" else ("train", "--stage", stage)
    code, text = distill(*command, recipe, "--run", here, *change)
    if code and "--fresh" not in text:
        raise Broken(f"{key}: exit code {code}\n{text}")
    taken = code == 0 and results(here) == before
    demand(*command, recipe, "--run", new, "--fresh", *change)
    part = "eval/" if stage == "eval" else f"train/{stage}/"
    old, now = ({name: each for name, each in found.items() if part in name} for found in (before, results(new)))
    return not again, taken, old != now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="keys that begin like this")
    parser.add_argument("--methods", action="store_true", help="the keys of methods that score texts")
    options = parser.parse_args()
    lives, values = (MethodLife, METHOD_VALUES) if options.methods else (Life, VALUES)
    found: dict[str, list[str]] = {"STALE": [], "made again with equal bytes": [], "the plan says otherwise": []}
    with tempfile.TemporaryDirectory() as folder, lives(Path(folder)) as life:
        finished = life.trained if options.methods else life.evaluated
        for key, value in values.items():
            if not key.startswith(options.only):
                continue
            try:
                stays, taken, differs = look_at(life.recipe, finished, life.folder, key, value)
            except Broken as error:
                print(f"{key} = {value}: {error}", flush=True)
                continue
            if taken and differs:
                found["STALE"].append(key)
            if not taken and not differs:
                found["made again with equal bytes"].append(key)
            if stays != taken:
                found["the plan says otherwise"].append(key)
            words = (
                "stays" if stays else "again",
                "taken" if taken else "refused or made",
                "other" if differs else "equal",
            )
            print(f"{key:45} plan: {words[0]:6} command: {words[1]:16} bytes: {words[2]}", flush=True)
    for kind, keys in found.items():
        print(f"{kind}: {', '.join(keys) or 'none'}")
    sys.exit(bool(found["STALE"]))


if __name__ == "__main__":
    main()
