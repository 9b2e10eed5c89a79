"""An answer type from a user's file: read with the source, judged in every process, known by its code."""

import pyarrow.parquet as pq
import pytest
from worlds.run_fixtures import generate_folder, make_image, recipe, trace

from distill.answers.verdicts import equivalent, is_numeric, judge
from distill.data import reader
from distill.errors import DataError, RecipeError
from distill.recipe.loading import load
from distill.reports.findings import as_text, read_findings
from distill.types import Sample
from filters.apply import apply

pytestmark = pytest.mark.usefixtures("short_report")

GRADES = """
from distill.answers.user_types import UserAnswerType

def same(prediction, gold):
    if prediction == "broken":
        raise ValueError(prediction)
    return prediction[:1].upper() == gold[:1].upper() if prediction[:1].isalpha() else None

grade = UserAnswerType(name="own_grade", same=same)
bad = UserAnswerType(name="grade of a school", same=same)
"""
SETTINGS = """
[filter]
signals = ["answer", "agreement"]
rules = []
workers = 2
partition_rows = 2
"""


@pytest.fixture
def world(tmp_path):
    (tmp_path / "mine.py").write_text(GRADES)
    rows = [f'{{"image": "{n:05d}.png", "question": "Which grade has pupil {n}?", "answer": "B"}}' for n in range(4)]
    (tmp_path / "questions.jsonl").write_text("\n".join(rows))
    for number in range(4):
        make_image(tmp_path, number)
    return tmp_path


def graded(folder, name="mine.py:grade"):
    read = recipe(folder, SETTINGS)
    text = read.path.read_text().replace('"questions.jsonl"', f'"questions.jsonl"\nanswer_type = "{name}"', 1)
    read.path.write_text(text)
    return load(read.path)


def test_samples_carry_the_type_and_the_filter_judges_by_it_in_every_process(world):
    read = graded(world)
    samples = [item for item in reader.read(read) if isinstance(item, Sample)]
    assert len(samples) == 4 and all(sample.answer_type.startswith("own_grade@") for sample in samples)
    answers = ("b minus", "C", "4", "broken")
    traces = [trace(sample, answer, k=k) for sample in samples for k, answer in enumerate(answers)]
    generate_folder(world / "run", samples, traces)
    apply(read, world / "run")
    rows = pq.ParquetDataset(sorted((world / "run/filter/signals").glob("*.parquet"))).read().to_pylist()
    by_id = {one.id: one.answer for one in traces}
    found = {by_id[row["id"]]: (row["answer_verdict"], row["answer_reason"]) for row in rows}
    assert found == {
        "b minus": ("correct", "own_type"),
        "C": ("wrong", "own_type"),
        "4": ("undecided", "own_type"),
        "broken": ("undecided", "own_type_failed"),
    }


def test_a_type_that_fails_on_many_answers_is_a_finding(world):
    read = graded(world)
    samples = [item for item in reader.read(read) if isinstance(item, Sample)]
    traces = [trace(sample, "broken" if k < 6 else "B", k=k) for sample in samples for k in range(8)]
    generate_folder(world / "run", samples, traces)
    apply(read, world / "run")
    told = as_text(read_findings(world / "run"))
    assert "The answer type 'own_grade' failed on 24 of 32 traces (75 %), whose answers count as undecided" in told
    assert "data.questions.answer_type: correct its function" in told


def test_another_code_is_another_type_of_the_same_samples(world, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    for path in world.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    (other / "mine.py").write_text(GRADES.replace("upper", "lower"))
    (one, *_), (two, *_) = reader.read(graded(world)), reader.read(graded(other))
    assert one.id == two.id and one.answer_type != two.answer_type
    fields = [reader.source_fields(graded(folder))["answer_type"] for folder in (world, other)]
    assert fields == [one.answer_type, two.answer_type]


def test_judge_and_clustering_know_a_type_by_its_name_once_it_is_made(world):
    list(reader.read(graded(world)))
    assert judge("Bravo", "B", "own_grade").verdict == "correct"
    assert equivalent("beta", "B", "own_grade") and not is_numeric("own_grade") and is_numeric("percent")
    with pytest.raises(DataError, match="answer type 'own_unknown' is not known"):
        judge("a", "b", "own_unknown")


@pytest.mark.parametrize("returned", ["'no'", "float('nan')", "[]", "2", "sys.exit(1)"])
def test_a_judge_that_returns_no_verdict_leaves_the_answer_undecided(world, returned):
    (world / "mine.py").write_text(
        GRADES.replace("prediction[:1].upper() == gold[:1].upper() if prediction[:1].isalpha() else None", returned)
        + "import sys\n"
    )
    list(reader.read(graded(world)))
    found = judge("C", "B", "own_grade")
    assert (found.verdict, found.reason) == ("undecided", "own_type_failed")


def test_a_verdict_of_numpy_counts(world):
    (world / "mine.py").write_text(GRADES.replace("return prediction[:1]", "return np.bool_(True) or prediction[:1]"))
    (world / "mine.py").write_text(f"import numpy as np\n{(world / 'mine.py').read_text()}")
    list(reader.read(graded(world)))
    assert judge("C", "B", "own_grade").verdict == "correct"


def test_a_type_with_the_name_of_one_of_the_project_s_own_never_judges(world):
    (world / "mine.py").write_text(GRADES + 'UserAnswerType(name="number", same=lambda prediction, gold: True)\n')
    list(reader.read(graded(world)))
    assert judge("4", "5", "number").verdict == "wrong"


def test_types_of_one_name_in_two_files_judge_each_by_their_own_code(world):
    (world / "other.py").write_text(GRADES.replace("== gold", "!= gold"))
    (one, *_), (two, *_) = reader.read(graded(world)), reader.read(graded(world, "other.py:grade"))
    verdicts = [judge("Bravo", "B", each.answer_type).verdict for each in (one, two)]
    assert verdicts == ["correct", "wrong"]


def test_what_is_no_answer_type_is_refused(world):
    where = r"^data\.questions\.answer_type = 'mine\.py:same': "
    with pytest.raises(RecipeError, match=rf"{where}an answer type is a .*UserAnswerType, this is function"):
        list(reader.read(graded(world, "mine.py:same")))
    with pytest.raises(RecipeError, match="its name must begin with own_"):
        list(reader.read(graded(world, "mine.py:bad")))
    with pytest.raises(RecipeError, match="did you mean 'number'"):
        graded(world, "numbr")
