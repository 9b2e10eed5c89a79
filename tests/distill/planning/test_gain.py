"""What a run's traces let one expect of a distillation: measures, the model, its file, and what is printed."""

import itertools
import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import orjson
import pytest
from gain_fit import GainPair, coefficients, fit_model, left_out, pair_of, student_of
from students import tiny_models
from typer.testing import CliRunner
from worlds import run_fixtures

from distill import cli
from distill.commands.stages import filter_stage
from distill.errors import DataError, RecipeError, StaleError
from distill.planning import gain
from distill.planning.gain import expected_gain, load_model, measured_teachers
from distill.planning.gain_text import gain_fields, gain_text, limit, verdict
from distill.recipe.recipe import Recipe
from distill.stats.gain_model import MEASURES, TERMS, GainModel, point

ROOT = Path(__file__).resolve().parents[3]

PLANTED = {"cost": 0.05, "left": 0.1, "sight": 0.5, "fit": 0.3}
STUDENT = """
[student]
model = "model"
[[stages]]
name = "reason"
data = "traces"
train = ["language"]
max_steps = 5
"""


def pairs(noise: float = 0.0, students: int = 6) -> list[GainPair]:
    rng = np.random.default_rng(0)
    made = []
    for student, teacher in itertools.product(range(students), "abcde"):
        measures = dict(zip(MEASURES, rng.uniform((0.2, -1, 2), (1, 1, 4)), strict=True))
        truth = point(PLANTED, measures) + noise * rng.normal()
        made.append(
            GainPair(
                world="w",
                student=str(student),
                teacher=teacher,
                measures=measures,
                gain=truth,
                ci95=(truth - 0.02, truth + 0.02),
                pass_rate=measures["taught"],
            )
        )
    return made


def test_planted_coefficients_are_found_and_hold_for_students_that_were_left_out() -> None:
    known = pairs()
    found = coefficients(known)
    # The ridge pulls towards 0; thirty pairs leave it little.
    assert all(found[name] == pytest.approx(PLANTED[name], abs=0.08) for name in TERMS)
    for group in (pair_of, student_of):
        errors = [predicted - pair.gain for predicted, pair in zip(left_out(known, group), known, strict=True)]
        assert max(map(abs, errors)) < 0.05


def test_leaving_a_pair_out_does_not_read_it() -> None:
    known = pairs(0.1)
    odd = [replace(known[0], gain=0.9), *known[1:]]
    assert left_out(odd, pair_of)[0] == left_out(known, pair_of)[0]
    assert left_out(odd, student_of)[1] == left_out(known, student_of)[1]  # of the same student
    assert left_out(odd, pair_of)[1] != left_out(known, pair_of)[1]
    with pytest.raises(DataError, match="all pairs are of one group"):
        left_out(known, lambda pair: pair.world)


def test_the_interval_holds_new_students_of_the_same_kind() -> None:
    known = pairs(0.1, students=40)
    model = fit_model(known[:100])
    inside = [model.predict(pair.measures) for pair in known[100:]]
    held = sum(
        predicted.ci95[0] <= pair.gain <= predicted.ci95[1]
        for predicted, pair in zip(inside, known[100:], strict=True)
    )
    assert held >= 0.9 * len(inside)
    with pytest.raises(DataError, match="pairs of 2 students; 3 at least"):
        fit_model(pairs(students=2))


def test_a_prediction_never_falls_where_a_measure_gets_better() -> None:
    model = load_model()[0]
    for taught, gap, fit in itertools.product((0.2, 0.6, 1.0), (-2.0, -0.5, 0.2, 3.0), (0.5, 2.0, 5.0)):
        here = point(model.coefficients, {"taught": taught, "blind_gap": gap, "rank_surprisal": fit})
        better = ({"taught": min(1.0, taught + 0.2)}, {"blind_gap": gap + 0.3}, {"rank_surprisal": fit * 0.7})
        for change in better:
            measures = {"taught": taught, "blind_gap": gap, "rank_surprisal": fit} | change
            assert point(model.coefficients, measures) >= here - 1e-12


def test_measures_outside_of_the_known_pairs_are_undecided() -> None:
    model = fit_model(pairs())
    ordinary = {"taught": 1.0, "blind_gap": 0.9, "rank_surprisal": 2.5}
    assert model.predict(ordinary).verdict == "helps" and model.predict(ordinary).outside == ()
    odd = model.predict(ordinary | {"rank_surprisal": 9.0})
    assert odd.verdict == "cannot be told" and odd.outside == ("rank_surprisal",)
    assert model.predict(ordinary | {"taught": 0.2, "blind_gap": -1.0, "rank_surprisal": 4.0}).verdict == "hurts"
    assert replace(model, spread=1.0).predict(ordinary).verdict == "cannot be told"


def test_the_shipped_model_is_that_of_the_kept_pairs() -> None:
    kept = json.loads((ROOT / "docs" / "results" / "gain_pairs.json").read_text())
    model = fit_model([GainPair(**{**pair, "ci95": tuple(pair["ci95"])}) for pair in kept])
    shipped = load_model()[0]
    assert model.pairs == shipped.pairs == len(kept) and model.students == shipped.students
    assert shipped.spread == pytest.approx(model.spread)
    assert shipped.coefficients == pytest.approx(dict(model.coefficients), abs=1e-9)
    assert {name: list(ends) for name, ends in shipped.ranges.items()} == {
        name: pytest.approx(ends) for name, ends in model.ranges.items()
    }
    assert GainModel.of_fields(json.loads(json.dumps(asdict(shipped)))) == shipped


# --- a run ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six questions of two domains: `structured` answers four rightly, two of them scenes; `brief` knows no chart."""
    monkeypatch.setattr(gain, "FEWEST_TRACES", 4)
    tiny_models.build(tmp_path / "model", hidden=64, layers=2)
    samples = [
        run_fixtures.sample(
            f"How many of kind {number}?",
            str(number),
            images=[run_fixtures.make_image(tmp_path / "pictures", number)],
            domain="scenes" if number < 4 else "charts",
        )
        for number in range(6)
    ]
    traces = [
        run_fixtures.trace(of, str(number) if number >= 2 else "17", f"I count them one by one: {number}.")
        for number, of in enumerate(samples)
    ]
    traces += [
        run_fixtures.trace(of, str(number), f"It is {number}.", teacher="brief")
        for number, of in enumerate(samples)
        if number < 4
    ]
    run = tmp_path / "run"
    run_fixtures.generate_folder(run, samples, traces)
    return run


def test_teachers_are_measured_by_question_and_domain(run: Path) -> None:
    recipe = run_fixtures.recipe(run.parent, STUDENT)
    filter_stage(recipe, run)
    before = {path: path.read_bytes() for path in (run / "filter").rglob("*") if path.is_file()}
    brief, structured, both = measured_teachers(recipe, run, run.parent / "model")
    assert (brief.teacher, structured.teacher, both.teacher) == ("brief", "structured", "all teachers")
    assert (structured.traces, brief.traces, both.traces) == (6, 4, 10)
    assert structured.pass_rate == pytest.approx(4 / 6) and brief.pass_rate == 1.0
    assert structured.coverage == brief.coverage == pytest.approx(4 / 6) and both.coverage == 1.0
    # Half of the scenes teach them all; of charts brief teaches nothing.
    assert structured.taught == both.taught == 1.0 and brief.taught == pytest.approx(4 / 6)
    assert brief.sayable == structured.sayable == 1.0
    cut = recipe.model_copy(update={"eval": recipe.eval.model_copy(update={"max_new_tokens": 2})})
    assert [each.sayable for each in measured_teachers(cut, run, run.parent / "model")] == [0, 0, 0]
    assert measured_teachers(cut, run, run.parent / "model")[0].taught == 0
    assert brief.blind_gap is not None and brief.rank_surprisal is not None and brief.rank_surprisal > 0
    assert {path: path.read_bytes() for path in (run / "filter").rglob("*") if path.is_file()} == before


def test_the_gain_of_each_teacher_is_printed_as_text_and_as_values(run: Path) -> None:
    recipe = run_fixtures.recipe(run.parent, STUDENT)
    filter_stage(recipe, run)
    done = CliRunner().invoke(cli.app, ["plan", str(recipe.path), "--run", str(run), "--gain", "--json"])
    assert done.exit_code == 0, done.output
    fields = orjson.loads(done.stdout)
    assert {row["teacher"] for row in fields["teachers"]} == {"brief", "structured", "all teachers"}
    assert fields["teachers"][-1]["teacher"] == "all teachers" and fields["stage"] == "reason"
    assert all(row["ci95"][0] <= row["gain"] <= row["ci95"][1] for row in fields["teachers"])
    assert all((row["chance"] > 0.5) == (row["gain"] > 0) for row in fields["teachers"])
    assert fields["verdict"].endswith(".") and set(fields["model"]["coefficients"]) == set(TERMS)
    shown = CliRunner().invoke(cli.app, ["plan", str(recipe.path), "--run", str(run), "--gain"])
    assert shown.exit_code == 0 and fields["verdict"] in shown.stdout and "toy worlds" in shown.stdout
    refused = CliRunner().invoke(cli.app, ["plan", str(recipe.path), "--run", str(run), "--gain", "--gpu", "L4"])
    assert refused.exit_code == 2


def test_a_run_with_too_few_traces_is_told_how_to_make_more(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = run_fixtures.recipe(run.parent, STUDENT)
    with pytest.raises(StaleError, match=r"has no traces; .*`distill generate --limit 200 /\S*\.toml --run "):
        expected_gain(recipe, run.parent / "other")
    with pytest.raises(StaleError, match="distill filter"):
        expected_gain(recipe, run)
    filter_stage(recipe, run)
    monkeypatch.setattr(gain, "FEWEST_TRACES", 7)
    with pytest.raises(DataError, match="has few traces: 4 of brief, 6 of structured; a prediction needs 7"):
        expected_gain(recipe, run)
    (run / "generate" / "manifest.json").unlink()
    with pytest.raises(StaleError, match="has 10 traces of an unfinished stage"):
        expected_gain(recipe, run)


def test_a_student_that_never_saw_a_image_is_refused(run: Path) -> None:
    parts = STUDENT.replace('model = "model"', 'vision = "model"\nlanguage = "model"\npixel_shuffle = 2')
    recipe = run_fixtures.recipe(run.parent, parts)
    filter_stage(recipe, run)
    with pytest.raises(RecipeError, match=r"never trained on images together.*filter\.student\.checkpoint"):
        expected_gain(recipe, run)
    earlier = STUDENT.replace(
        "[[stages]]", '[[stages]]\nname = "see"\ndata = "questions"\ntrain = ["language"]\n[[stages]]'
    )
    with pytest.raises(StaleError, match=r"stage 'see', which is not trained; .* --stage see"):
        expected_gain(run_fixtures.recipe(run.parent, earlier), run)
    with pytest.raises(RecipeError, match=r"no .* block learns rationales"):
        expected_gain(run_fixtures.recipe(run.parent), run)


def expected(**changes: float) -> gain.ExpectedGain:
    """Two teachers of a model with planted coefficients; `changes` are those of the worse one."""
    model = replace(fit_model(pairs()), spread=0.01)
    good = gain.TeacherMeasures(
        teacher="good",
        traces=200,
        pass_rate=1.0,
        coverage=1.0,
        sayable=1.0,
        taught=1.0,
        truncated=0.0,
        rationale_tokens=20.0,
        blind_gap=0.9,
        rank_surprisal=2.5,
        nll=1.0,
    )
    bad = replace(good, **{"teacher": "bad", **changes})  # type: ignore[arg-type]
    rows = [gain.predicted_gain(measured, model) for measured in (good, bad)]
    return gain.ExpectedGain(
        recipe="r",
        run=Path("runs/r"),
        stage="reason",
        student="s",
        teachers=tuple(rows),
        model=model,
        pair_error=0.05,
    )


def test_the_verdict_names_the_teacher_to_take_and_what_limits_the_others() -> None:
    same = expected(blind_gap=0.85)
    assert verdict(same).startswith("It helps: good") and "the cheapest of bad" in verdict(same)
    worse = expected(taught=0.3, blind_gap=0.2)
    assert verdict(worse).endswith("Take good.") and "teach 30.0 % of the questions" in limit(
        worse.teachers[1], worse
    )
    assert "the image hardly lowers the surprisal" in limit(expected(blind_gap=-0.2).teachers[1], same)
    few = expected(traces=3)
    assert few.teachers[1].prediction is None and "3 traces; 100 are needed" in limit(few.teachers[1], few)
    assert "longer than eval.max_new_tokens" in limit(expected(sayable=0.1).teachers[1], same)
    unseen = expected(rank_surprisal=11.0)
    assert "fit is outside" in limit(unseen.teachers[1], unseen)
    assert gain_fields(unseen)["teachers"][1]["verdict"] == "cannot be told"
    assert "bad" in gain_text(unseen) and "?" in gain_text(few)


def test_plan_without_gain_reads_no_model(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("measured")

    monkeypatch.setattr("distill.planning.gain.expected_gain", refuse)
    recipe: Recipe = run_fixtures.recipe(run.parent, STUDENT)
    filter_stage(recipe, run)
    done = CliRunner().invoke(cli.app, ["plan", str(recipe.path), "--run", str(run)])
    assert done.exit_code == 0, done.output
    assert not (run / "gain").exists()


@pytest.mark.parametrize("others", [(), ("brief",)])
def test_a_teacher_that_is_called_all_is_counted_as_any_other(tmp_path: Path, others: tuple[str, ...]) -> None:
    asked = [run_fixtures.sample(f"How many of kind {number}?", str(number)) for number in range(100)]
    traces = [
        run_fixtures.trace(of, of.answers[0], f"I count them one by one: {of.answers[0]}.", teacher=teacher)
        for of in asked
        for teacher in ("all", *others)
    ]
    run_fixtures.generate_folder(tmp_path / "run", asked, traces)
    recipe = run_fixtures.recipe(tmp_path, "[filter]\nrules = []\nworkers = 1\n")
    filter_stage(recipe, tmp_path / "run")
    _, counted = gain.counted_teachers(recipe, tmp_path / "run")
    totals = {name: sum(each["traces"] for each in of.values()) for name, of in counted.items()}
    assert totals == {"all": 100} | ({"brief": 100, "all teachers": 200} if others else {})


def test_the_answer_of_an_incomplete_trace_is_not_right(tmp_path: Path) -> None:
    asked = [run_fixtures.sample(f"How many of kind {number}?", str(number)) for number in range(100)]
    traces = [
        run_fixtures.trace(of, of.answers[0], outcome="truncated_answer" if number < 60 else "complete")
        for number, of in enumerate(asked)
    ]
    run_fixtures.generate_folder(tmp_path / "run", asked, traces)
    recipe = run_fixtures.recipe(tmp_path, "[filter]\nrules = []\nworkers = 1\n")
    filter_stage(recipe, tmp_path / "run")
    (counted,) = gain.counted_teachers(recipe, tmp_path / "run")[1]["structured"].values()
    assert (counted["traces"], counted["judged"], counted["right"], counted["truncated"]) == (100, 40, 40, 60)
