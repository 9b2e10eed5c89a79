"""The commands that `distill plan --diff` gives for training stages work in their order."""

from pathlib import Path

from distill.artifacts.manifest import Manifest
from distill.planning.redo_text import redo_text
from distill.recipe.loading import load

RECIPE = """
[data.questions]
source = "questions.jsonl"
[data.captions]
source = "captions.jsonl"
[student]
model = "owner/student"
"""


def stages(*named: str) -> str:
    """Stages, each with the one that it starts from: "second<first"."""
    text = ""
    for name, _, start in (each.partition("<") for each in named):
        text += (
            f'[[stages]]\nname = "{name}"\ndata = "captions"\ntrain = ["projector"]\nstart = "{start or "base"}"\n'
        )
    return text


def train_commands(folder: Path, before: str, now: str) -> list[str]:
    """The options of each `distill train` for a run whose stages are finished, when `now` replaces `before`."""
    run = folder / "run"
    for name, text in (("before", before), ("now", now)):
        (folder / f"{name}.toml").write_text(RECIPE + text)
    old = load(folder / "before.toml")
    for stage in old.stages:
        Manifest(stage="train", fingerprint="", fields={}, counts={"steps": 1}).write(run / "train" / stage.name)
    lines = redo_text(old, load(folder / "now.toml"), run).splitlines()
    return [line.partition(f"--run {run}")[2].strip() for line in lines if line.startswith("  distill train")]


def test_a_new_stage_is_trained_before_the_finished_stages_that_start_from_it(tmp_path: Path) -> None:
    before = stages("first", "second<first", "other<first")
    now = stages("first", "new<first", "second<new", "other<new")
    assert train_commands(tmp_path, before, now) == [
        "--stage new",
        "--stage second --fresh",
        "--stage other --fresh",
    ]


def test_a_renamed_stage_keeps_its_student_and_is_renamed_by_the_one_command(tmp_path: Path) -> None:
    before, now = stages("first", "second<first"), stages("named", "second<named")
    assert train_commands(tmp_path, before, now) == [""]


def test_a_renamed_and_changed_stage_is_trained_before_the_finished_stage_that_starts_from_it(tmp_path: Path) -> None:
    now = stages("named", "second<named").replace("projector", "language", 1)
    commands = train_commands(tmp_path, stages("first", "second<first"), now)
    assert commands == ["--stage named", "--stage second --fresh"]


def test_a_source_of_a_stage_that_is_gone_makes_nothing_stale(tmp_path: Path) -> None:
    before = stages("first", "second").replace('"captions"', '"questions"', 1)
    now = stages("second") + '[data.questions.columns]\nanswer = "other"\n'
    assert train_commands(tmp_path, before, now) == []


def test_a_stage_that_is_trained_again_sets_the_later_ones_aside(tmp_path: Path) -> None:
    before = stages("first", "second<first")
    now = before.replace('train = ["projector"]', 'train = ["language"]', 1)
    assert train_commands(tmp_path, before, now) == ["--stage first --fresh", ""]


def test_an_arm_that_is_another_stage_now_needs_fresh_and_a_new_arm_does_not(tmp_path: Path) -> None:
    text, arms = RECIPE + stages("first", "second"), '[data.test]\nsource = "t.jsonl"\n[eval.arms]\nmine = "first"\n'
    Manifest(stage="eval", fingerprint="", fields={}).write(tmp_path / "run" / "eval")

    def command(now: str) -> str:
        recipes = [tmp_path / "before.toml", tmp_path / "now.toml"]
        for path, found in zip(recipes, (arms, now), strict=True):
            path.write_text(text + found)
        lines = redo_text(load(recipes[0]), load(recipes[1]), tmp_path / "run").splitlines()
        return next(line for line in lines if line.startswith("  distill eval"))

    assert command(arms.replace('"first"', '"second"')).endswith("--fresh")
    assert not command(arms + 'other = "second"\n').endswith("--fresh")


def written(folder: Path, before: str, now: str) -> str:
    """What the plan says of a run in `folder` when `now` replaces `before`."""
    recipes = [folder / "before.toml", folder / "now.toml"]
    for path, text in zip(recipes, (before, now), strict=True):
        path.write_text(RECIPE + text)
    return redo_text(load(recipes[0]), load(recipes[1]), folder / "run")


def test_a_stage_is_renamed_before_its_student_is_asked(tmp_path: Path) -> None:
    def recipe(name: str) -> str:
        return stages(name) + f'[data.test]\nsource = "t.jsonl"\n[eval.arms]\nmine = "{name}"\n'

    for stage in ("train/first", "eval"):
        Manifest(stage="", fingerprint="", fields={}, counts={"steps": 1}).write(tmp_path / "run" / stage)
    lines = written(tmp_path, recipe("first"), recipe("named")).splitlines()
    assert [line.split()[1] for line in lines if line.startswith("  distill ")] == ["train", "eval"]


def test_finished_arms_that_a_change_may_reach_are_in_the_plan_with_the_folder_to_move(tmp_path: Path) -> None:
    own = '[ablate.own.slow]\nset = {{ "seed" = {seed} }}\n[ablate.own.odd]\nset = {{ "seed" = 9 }}\n'
    arms = tmp_path / "run" / "ablate" / "arms"
    before = stages("first") + own.format(seed=1)
    Manifest(stage="", fingerprint="", fields={}, counts={"steps": 1}).write(tmp_path / "run" / "train" / "first")
    changed = before.replace('train = ["projector"]', 'train = ["language"]')
    assert "\nablate " not in written(tmp_path, before, changed)  # there is none
    Manifest(stage="ablate", fingerprint="", fields={}).write(tmp_path / "run" / "ablate")
    assert "may run again  arms that the changes reach, once ablate/arms is moved" in written(
        tmp_path, before, changed
    )
    (arms / "slow").mkdir(parents=True)
    said = written(tmp_path, before, stages("first") + own.format(seed=2))
    assert "makes slow once ablate/arms/slow is moved away; other finished arms stay" in said
    gallery = before + "[ablate]\ngallery = 3\n"
    assert "writes the results again; finished arms stay" in written(tmp_path, before, gallery)
    assert "\nablate " not in written(
        tmp_path, before, before.replace("owner/student", "owner/student") + "[rounds]\n"
    )


def test_replies_are_judged_again_and_asked_again_only_where_a_student_changes(tmp_path: Path) -> None:
    learned = stages("first").replace('data = "captions"', 'data = "traces"').replace('["projector"]', '["language"]')
    recipe = (
        f'{learned}[[teachers]]\nname = "t"\nmodel = "m"\nbase_url = "http://127.0.0.1:1/v1"\n'
        '[data.test]\nsource = "t.jsonl"\n[eval.arms]\nmine = "first"\n'
    )
    for stage in ("generate", "filter", "train/first", "eval"):
        counts = {"steps": 1, "predictions": 9}
        Manifest(stage="", fingerprint="", fields={}, counts=counts).write(tmp_path / "run" / stage)
    tolerant = recipe + "[filter.answer]\nrelative_tolerance = 0.5\n"
    said = written(tmp_path, recipe, tolerant)
    assert "judges 9 replies again; if a student changes: asks for them again" in said
