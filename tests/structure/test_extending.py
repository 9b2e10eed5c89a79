"""The snippets of docs/extending.md run: each kind of own part is used by the verb that it is for."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest
from PIL import Image
from worlds.run_fixtures import RECIPE, generate_folder, small_world

from distill.ablation import arms
from distill.answers.verdicts import judge
from distill.commands.explain import explain_trace
from distill.commands.stages import copy_shipped
from distill.data import reader
from distill.recipe import loading
from distill.types import BadRow, Sample
from filters.apply import apply
from student.evaluation.user_metrics import user_metrics

ROOT = Path(__file__).parents[2]
SNIPPETS = dict(
    re.findall(
        r"^```(?:python|toml) (\S+)\n(.*?)^```",
        (ROOT / "docs" / "extending.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
)
PACKAGES = ("distill", "teacher", "filters", "student", "recipes")


def beside(folder: Path, kind: str) -> Path:
    """The snippet of a kind as mine.py in the folder of the recipe."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mine.py").write_text(SNIPPETS[kind])
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    samples, traces = small_world(tmp_path / "images")
    return generate_folder(tmp_path / "run", samples, traces).parent


def saved(folder: Path, text: str) -> loading.Recipe:
    (folder / "recipe.toml").write_text(f"{RECIPE}\n{text}")
    return loading.load(folder / "recipe.toml")


def test_the_signal_of_the_page_is_measured_and_its_rule_drops(run: Path) -> None:
    folder = beside(run.parent, "mine.py")
    done = apply(saved(folder, SNIPPETS["recipe.toml"]), run)
    rows = pq.ParquetDataset(sorted((run / "filter/signals").glob("*.parquet"))).read().to_pylist()
    dropped = {row["id"] for row in rows if (row["hedging_share"] or 0) > 0.02}
    assert dropped and done.counts["rule.hedges"] == len(dropped)
    assert {row["hedging_state"] for row in rows} == {"ok"}
    assert "hedging_words" in explain_trace(run, min(dropped))


def test_the_answer_type_of_the_page_decides_what_is_correct(tmp_path: Path) -> None:
    folder = beside(tmp_path, "answer_type")
    Image.new("RGB", (32, 32), "white").save(folder / "pupil.png")
    row = {"image": "pupil.png", "question": "Which grade?", "answer": "B"}
    (folder / "questions.jsonl").write_bytes(orjson.dumps(row))
    (folder / "recipe.toml").write_text(
        '[data.questions]\nsource = "questions.jsonl"\nanswer_type = "mine.py:grade"\n'
    )
    (sample,) = reader.samples(loading.load(folder / "recipe.toml"))
    verdicts = [judge(text, "B", sample.answer_type).verdict for text in ("b minus", "C", "4")]
    assert verdicts == ["correct", "wrong", "undecided"]


def test_the_data_format_of_the_page_reads_rows(tmp_path: Path) -> None:
    folder = beside(tmp_path, "data_format")
    Image.new("RGB", (32, 32), "white").save(folder / "scan.png")
    rows = [{"scan": "scan.png", "fields": {"total": "7", "year": "1999"}}, {"scan": "scan.png", "fields": {}}]
    (folder / "invoices.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)))
    source = '[data.questions]\nsource = "invoices.jsonl"\nformat = "mine.py:invoices"\nmax_bad_share = 1.0\n'
    (folder / "recipe.toml").write_text(source)
    found = list(reader.read(loading.load(folder / "recipe.toml")))
    assert [(item.question, item.answer) for item in found if isinstance(item, Sample)] == [
        ("What is the total?", "7"),
        ("What is the year?", "1999"),
    ]
    assert [item.reason for item in found if isinstance(item, BadRow)] == ["no_fields"]


def test_the_export_format_of_the_page_is_written(run: Path) -> None:
    folder = beside(run.parent, "export_format")
    done = apply(saved(folder, '[filter]\nrules = []\nexports = ["mine.py:chat"]\n'), run)
    lines = (run / "filter/exports/chat.jsonl").read_bytes().splitlines()
    assert len(lines) == done.counts["selected"] > 0
    assert orjson.loads(lines[0])["turns"]


def test_the_prompt_of_the_page_makes_the_text_of_a_sample(tmp_path: Path) -> None:
    namespace: dict[str, object] = {}
    exec(SNIPPETS["prompt"], namespace)
    ask = namespace["ask"]
    assert callable(ask)
    chart = Sample(id="s", images=(), question="How high?", answers=(), answer_type=None, domain="charts", meta={})
    assert ask(chart) == "Read the axis first. How high?"


def test_the_arm_of_the_page_changes_the_recipe(tmp_path: Path) -> None:
    copy_shipped("tiny-studies", tmp_path / "tiny-studies.toml")
    beside(tmp_path, "arm")
    read = loading.load(tmp_path / "tiny-studies.toml", {"ablate.own.hot.change": "mine.py:hot"})
    arm = arms.arm(read, "hot", seed=read.seed)
    assert arm.about == "ten times the learning rate"
    assert set(arms.changes(read, arm.recipe)) == {"stages.reason.learning_rate"}


def test_the_metric_of_the_page_values_a_reply(tmp_path: Path) -> None:
    folder = beside(tmp_path, "metric")
    (metric,) = user_metrics(saved(folder, '[eval]\ndata = "questions"\nmetrics = ["mine.py:own_short"]\n'))
    sample = Sample(id="s", images=(), question="q", answers=(), answer_type=None, domain="charts", meta={})
    assert metric.value(sample, {"answer": "about 4"}) is True
    assert metric.value(sample, {"answer": "it is about four"}) is False


def test_the_backend_of_the_page_answers_for_a_teacher(tmp_path: Path) -> None:
    """In a copy of the tree, changed as the page says, `distill generate` asks the program."""
    tree = tmp_path / "tree"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__", "tiny"))
    engine, table = "teacher/engines/program_engine.py", "distill/recipe/backends.py"
    (tree / engine).write_text(SNIPPETS[engine])
    text = (tree / table).read_text()
    text = re.sub(r"(BackendName = Literal\[)", r'\1"program", ', text)
    text = re.sub(r"(BACKENDS: .*= \{\n)", lambda found: found[1] + SNIPPETS[table], text)
    (tree / table).write_text(text)
    (tmp_path / "questions.jsonl").write_bytes(
        b"\n".join(orjson.dumps({"question": f"What is {number} + 1?"}) for number in range(5))
    )
    source = '[data.questions]\nsource = "questions.jsonl"\ncolumns.image = ""\n'
    (tmp_path / "recipe.toml").write_text(source + SNIPPETS["teacher"])
    command = [
        sys.executable,
        "-m",
        "distill",
        "generate",
        str(tmp_path / "recipe.toml"),
        "--run",
        str(tmp_path / "r"),
    ]
    done = subprocess.run(
        command, cwd=tree, env=os.environ | {"PYTHONPATH": str(tree)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    records = [
        orjson.loads(line) for line in (tmp_path / "r/generate/echo/part-00000.jsonl").read_bytes().splitlines()
    ]
    assert len(records) == 5
    assert {record["engine"]["name"] for record in records} == {"program"}
    assert all("+ 1?" in record["text"] for record in records)
