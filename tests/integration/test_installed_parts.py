"""Every kind of own part, from one installed package, through the verbs that use it.

The parts are the snippets of docs/extending.md. tests/student/test_evaluate.py evaluates trained students with own
metrics.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from PIL import Image
from processes import installed_package
from servers import stub_server

from distill import extensions
from distill.ablation import arms
from distill.answers.verdicts import judge
from distill.commands.stages import copy_shipped
from distill.data import reader
from distill.errors import RecipeError
from distill.recipe.loading import load
from distill.types import BadRow, Sample
from filters.apply import apply
from student.evaluation.user_metrics import metric_codes, user_metrics
from student.inference.reply_metrics import metric_values
from teacher.generate import generate
from teacher.messages.prompts import prompt

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
SNIPPETS = dict(re.findall(r"^```python (\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
POINTS = {
    "cot_distill.signals": {"hedging": "own_signals_part:Hedging"},
    "cot_distill.answer_types": {"school-grade": "own_answer_type:grade"},
    "cot_distill.data_formats": {"invoices": "own_data_format:invoices"},
    "cot_distill.export_formats": {"chat": "own_export_format:chat"},
    "cot_distill.prompts": {"axis-first": "own_prompt:ask"},
    "cot_distill.arms": {"hotter": "own_arm:hot"},
    "cot_distill.metrics": {"brevity": "own_metric:own_short"},
}
RECIPE = """
[data.questions]
source = "rows.jsonl"
format = "invoices"
answer_type = "school-grade"
max_bad_share = 1.0
[generate]
patience_s = 2.0
[[teachers]]
name = "t"
model = "stub"
backend = "vllm"
base_url = "{url}"
prompt = "axis-first"
[filter]
signals = ["answer", "format", "length", "hedging"]
exports = ["chat"]
rules = []
[eval]
data = "questions"
metrics = ["brevity"]
"""
CODE = "own-parts 1.2"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with stub_server.serve() as url:
        yield url


@pytest.fixture
def world(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe that names each part by its entry point, and three rows, one of which the format refuses."""
    modules = {
        "own_signals_part": SNIPPETS["mine.py"],
        "own_prompt": SNIPPETS["prompt"].replace('sample.domain == "charts"', "True"),
        **{
            f"own_{kind}": SNIPPETS[kind] for kind in ("answer_type", "data_format", "export_format", "arm", "metric")
        },
    }
    installed_package.install(tmp_path / "site", monkeypatch, modules, POINTS)
    Image.new("RGB", (32, 32), "white").save(tmp_path / "scan.png")
    fields: tuple[dict[str, str], ...] = ({"total": "b minus"}, {"mark": "A"}, {})
    rows = [{"scan": "scan.png", "fields": each} for each in fields]
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)))
    (tmp_path / "recipe.toml").write_text(RECIPE.format(url=url))
    return tmp_path


def test_every_group_of_entry_points_is_tested_here() -> None:
    groups = {value for value in vars(extensions).values() if str(value).startswith("cot_distill.")}
    assert groups == set(POINTS)


def test_a_package_brings_formats_answer_types_prompts_signals_and_exports_of_a_run(world: Path) -> None:
    recipe, run = load(world / "recipe.toml"), world / "run"
    found = list(reader.read(recipe))
    samples = [each for each in found if isinstance(each, Sample)]
    assert [sample.question for sample in samples] == ["What is the total?", "What is the mark?"]
    assert [each.reason for each in found if isinstance(each, BadRow)] == ["no_fields"]

    done = generate(recipe, run)
    assert done.counts["traces"] == 2
    assert CODE in orjson.dumps(done.fields).decode()
    (teacher,) = recipe.teachers
    assert [prompt(teacher, sample).text for sample in samples] == [
        f"Read the axis first. {sample.question}" for sample in samples
    ]

    done = apply(recipe, run)
    assert done.fields["extractors.hedging.code"] == CODE
    assert done.counts["selected"] == 2
    lines = [orjson.loads(line) for line in (run / "filter/exports/chat.jsonl").read_bytes().splitlines()]
    assert len(lines) == 2 and all(line["turns"] for line in lines)


def test_a_package_brings_an_answer_type_that_decides(world: Path) -> None:
    sample = next(each for each in reader.read(load(world / "recipe.toml")) if isinstance(each, Sample))
    assert sample.answer_type == f"own_grade@{CODE}"
    verdicts = [judge(text, sample.answers, sample.answer_type).verdict for text in ("b plus", "C", "4")]
    assert verdicts == ["correct", "wrong", "undecided"]


def test_a_package_brings_an_arm_of_an_ablation(world: Path) -> None:
    copy_shipped("tiny-studies", world / "studies.toml")
    recipe = load(world / "studies.toml", {"ablate.own.hot.change": "hotter"})
    arm = arms.arm(recipe, "hot", seed=recipe.seed)
    assert arm.about == "ten times the learning rate"
    assert set(arms.changes(recipe, arm.recipe)) == {"stages.reason.learning_rate"}


def test_a_package_brings_a_metric_of_the_evaluation(world: Path) -> None:
    recipe = load(world / "recipe.toml")
    sample = next(each for each in reader.read(recipe) if isinstance(each, Sample))
    assert metric_codes(recipe) == {"own_short": CODE}
    assert metric_values(user_metrics(recipe), sample, {"answer": "about 4"}) == {"own_short": True}


@pytest.mark.parametrize(
    ("key", "value", "nearest"),
    [
        ("data.questions.format", "invoice", "invoices"),
        ("data.questions.answer_type", "school-grades", "school-grade"),
        ("filter.exports", '["chats"]', "chat"),
        ("filter.signals", '["hedgin"]', "hedging"),
        ("eval.metrics", '["brevit"]', "brevity"),
    ],
)
def test_a_misspelt_name_of_an_entry_point_is_refused_with_the_nearest(
    world: Path, key: str, value: str, nearest: str
) -> None:
    with pytest.raises(RecipeError, match=f"did you mean '{nearest}'"):
        load(world / "recipe.toml", {key: value})
