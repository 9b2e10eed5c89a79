"""The dataset card: YAML that the hub reads, numbers that agree with the tables, no word on what is not known."""

import re
from collections import Counter
from dataclasses import replace

import duckdb
import pyarrow.parquet as pq
import pytest
import yaml
from worlds.run_fixtures import generate_folder, recipe, sample, small_world, trace

from distill.artifacts.files import Output
from distill.artifacts.manifest import Manifest
from distill.errors import RecipeError
from filters.apply import apply
from filters.dataset.card import Described, _selection, render_card
from filters.dataset.card_facts import facts
from filters.decisions.funnel import STEPS
from filters.decisions.funnel import measure as measure_funnel
from filters.signals.registry import COLUMNS
from filters.tables.journal_pieces import Maker

pytestmark = pytest.mark.usefixtures("short_report")

HINTED = """
[[teachers]]
name = "hinted"
model = "teachers/hinted"
backend = "embedded"
hinted = true
prompt = "{question} It is {answer}."
"""
CARD = """
[filter.card]
license = "cc-by-4.0"
language = ["en"]
sources = {questions = "CC0: charts | scenes"}
teachers = {brief = "apache-2.0"}
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A filtered run of four teachers' traces (one is shown the answer), and its card."""
    folder = tmp_path_factory.mktemp("card")
    samples, traces = small_world(folder / "pictures")
    bare = sample("What is it?", domain="")
    samples.append(bare)
    traces += [
        trace(bare, "a cat", "It has | whiskers."),
        trace(samples[0], "0", "So none at all.", teacher="hinted"),
    ]
    traces[-1] = replace(traces[-1], hinted=True)
    generate_folder(folder / "run", samples, traces)
    chosen = recipe(folder, HINTED + CARD)
    manifest = apply(chosen, folder / "run")
    return folder / "run", chosen, manifest, (folder / "run/filter/dataset/README.md").read_text()


def parts_of(text: str) -> tuple[dict, str]:
    _, header, body = text.split("---\n", 2)
    return yaml.safe_load(header), body


def section(text: str, title: str) -> str:
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)[1]


def tables(text: str) -> dict[str, dict[str, list[str]]]:
    """The tables of a text by their first heading: first cell of a row to the others."""
    found = {}
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in block.splitlines()]
        head, _, *body = [[cell.strip() for cell in row] for row in rows]
        found[head[0]] = {row[0]: row[1:] for row in body}
    return found


def test_the_front_matter_is_yaml_that_says_licence_language_size_and_files(world):
    header, _ = parts_of(world[3])
    assert header["license"] == "cc-by-4.0" and "license_name" not in header
    assert header["language"] == ["en"] and header["size_categories"] == ["n<1K"]
    assert header["pretty_name"] == world[1].name
    assert header["configs"][0]["data_files"] == [{"split": "train", "path": "train/*.parquet"}]
    assert set(header["task_categories"]) == {"visual-question-answering", "image-text-to-text"}


def test_the_hubs_own_reader_accepts_the_front_matter(world):
    from huggingface_hub import DatasetCard

    loaded = DatasetCard(world[3])
    assert loaded.data.license == "cc-by-4.0" and loaded.data.to_dict()["configs"][0]["config_name"] == "default"


def test_a_name_with_the_sign_of_a_column_stays_one_cell(tmp_path):
    text = written(recipe(tmp_path), [{"sample_id": "a", "domain": "bars | lines"}])
    assert tables(section(text, "Funnel"))["domain"]["bars \\| lines"][0] == "1"
    assert text.endswith(".\n")


def test_every_count_agrees_with_the_decisions_and_the_dataset(world):
    run, _, manifest, text = world
    rows = pq.read_table(run / "filter/decisions.parquet").to_pylist()
    examples = [row for path in (run / "filter/dataset/train").iterdir() for row in pq.read_table(path).to_pylist()]
    kept, selected = [row for row in rows if row["kept"]], [row for row in rows if row["selected"]]
    assert len(selected) == len(examples) and 0 < len(kept) < len(rows)
    assert f"{len(examples)} examples about {len({row['sample_id'] for row in examples})} questions" in text
    assert (
        f"{len(rows)} traces came in; {len(kept)} were kept, {len(rows) - len(kept)} dropped; of those kept, "
        f"{len(selected)} were selected: all of them."
    ) in text
    found = tables(section(text, "Funnel"))
    for column in ("domain", "teacher"):
        for step, some in (("asked", rows), ("kept", kept), ("selected", selected)):
            counts = Counter(row[column] or "(none)" for row in some)
            told = {name: int(cells[STEPS.index(step)]) for name, cells in found[column].items() if name != "**all**"}
            assert {name: count for name, count in told.items() if count} == counts
            assert int(found[column]["**all**"][STEPS.index(step)]) == len(some)
    broken = Counter(reason["rule"] for row in rows if not row["kept"] for reason in row["reasons"])
    alone = Counter(row["reasons"][0]["rule"] for row in rows if not row["kept"] and len(row["reasons"]) == 1)
    assert broken["wrong_answer"] and broken["incomplete"]
    for name, (_, traces, by_itself) in found["rule"].items():
        assert (int(traces), int(by_itself)) == (broken[name], alone[name])
        assert manifest.counts[f"rule.{name}"] == int(traces)


def test_verdicts_hints_and_states_are_those_of_the_signal_table(world):
    run, _, _, text = world
    signals = {row["id"]: row for row in pq.read_table(run / "filter/signals").to_pylist()}
    decisions = pq.read_table(run / "filter/decisions.parquet").to_pylist()
    selected = [signals[row["id"]] for row in decisions if row["selected"]]
    verdicts = Counter(row["answer_verdict"] for row in selected)
    assert verdicts["correct"] > 1 and verdicts[None] == 1
    listed = f"{verdicts['correct']} correct, 1 without a gold answer to compare with"
    assert f"Answers of the examples: {listed}." in text
    assert "by a teacher that was shown the gold answer: 1." in section(text, "Limits")
    states = tables(section(text, "What was measured"))["signals"]
    assert states["answer"] == [
        str(sum(row["answer_state"] == state for row in signals.values()))
        for state in ("ok", "not_applicable", "undecidable", "timed_out", "error")
    ]
    assert int(states["answer"][1]) > 0 and "student" not in states and "judge" not in states
    flags = tables(section(text, "What was measured"))["flag"]
    repeated = {row["id"] for row in signals.values() if row["exact_duplicate"]}
    kept = sum(row["id"] in repeated for row in selected)
    assert repeated and flags["exact_duplicate"][1:] == [str(len(repeated)), str(kept)]


def test_lineage_names_the_traces_the_teachers_and_the_scheme_of_duplicates(world):
    run, chosen, _, text = world
    found = tables(section(text, "Lineage"))
    assert found[""]["fingerprint of the traces"] == [Manifest.read(run / "generate").fingerprint]
    assert found[""]["recipe"] == ["`recipe.toml`, seed 0"] and found[""]["student"] == ["none is named"]
    made = {name: cells[3:] for name, cells in found["teacher"].items()}
    asked = Counter(row["teacher"] for row in pq.read_table(run / "filter/decisions.parquet").to_pylist())
    assert made == {name: ["yes" if name == "hinted" else "no", str(count)] for name, count in asked.items()}
    assert found["teacher"]["structured"][:3] == ["teachers/structured", "r1", "transformers 5.0"]
    assert f"shingle {chosen.filter.corpus.shingle}, bands 16, rows 6" in text and "similarity of 0.8" in text


def test_licences_are_the_recipes_word_and_a_missing_one_is_said_to_be_missing(world, tmp_path):
    found = tables(section(world[3], "Licences"))
    assert found["source"]["questions"] == ["questions.jsonl", "CC0: charts \\| scenes"]
    assert found["teacher"] == {"brief": ["apache-2.0"], "hinted": ["not said"], "structured": ["not said"]}
    asked = sample("What is it?", "4")
    generate_folder(tmp_path / "run", [asked], [trace(asked)])
    apply(recipe(tmp_path), tmp_path / "run")
    header, body = parts_of((tmp_path / "run/filter/dataset/README.md").read_text())
    assert (header["license"], header["license_name"]) == ("other", "unknown") and "language" not in header
    assert "This dataset: unknown. Set `filter.card.license`" in body


def test_a_licence_of_something_that_the_recipe_does_not_name_is_an_error(tmp_path):
    for text in ('sources = {question = "x"}', 'teachers = {breef = "x"}', 'license = "MIT License"'):
        with pytest.raises(RecipeError, match=r"filter\.card"):
            recipe(tmp_path, f"[filter.card]\n{text}\n")
    with pytest.raises(RecipeError, match="license_name"):
        recipe(tmp_path, '[filter.card]\nlicense = "mit"\nlicense_name = "mine"\n')


def test_what_was_not_checked_is_said_not_to_have_been_checked(world):
    assert section(world[3], "Contamination").strip().startswith("Not checked: ")


def tables_of(rows):
    """A database in which traces have these signals; every one is kept, and selected unless `chosen` is False."""
    database = duckdb.connect()
    # Not every family need be registered for the card to know what to say of it.
    more = {"contamination", "contamination_state", "contamination_source", "language", "language_state"}
    names = {*COLUMNS.names, *more}
    columns = ", ".join(f'"{name}" {_kind(name)}' for name in sorted(names))
    database.execute(f"CREATE TABLE signals ({columns})")
    database.execute("CREATE VIEW local AS SELECT * FROM signals")
    database.execute(
        "CREATE TABLE decisions (id VARCHAR, sample_id VARCHAR, teacher VARCHAR, domain VARCHAR, kept BOOLEAN, "
        "selected BOOLEAN, reasons STRUCT(rule VARCHAR)[])"
    )
    for number, row in enumerate(rows):
        values = {"id": str(number), "teacher": "brief", "outcome": "complete", "domain": "", **row}
        chosen = values.pop("chosen", True)
        listed = ", ".join(f'"{name}"' for name in values)
        database.execute(
            f"INSERT INTO signals ({listed}) VALUES ({', '.join('?' * len(values))})", [*values.values()]
        )
        names = [values[name] for name in ("id", "sample_id", "teacher", "domain")]
        database.execute("INSERT INTO decisions VALUES (?, ?, ?, ?, true, ?, [])", [*names, chosen])
    return database


def _kind(name: str) -> str:
    kinds = {"string": "VARCHAR", "double": "DOUBLE", "int64": "BIGINT", "bool": "BOOLEAN"}
    return kinds[str(COLUMNS.field(name).type)] if name in COLUMNS.names else "VARCHAR"


def written(chosen, rows):
    database = tables_of(rows)
    maker = Maker(teacher="brief", model="m", revision="r", engine="e")
    makers = Counter({maker: len(rows)})
    described = Described(funnel=measure_funnel(database), known=facts(database))
    return render_card(chosen, described, {"train": Output(sha256="", bytes=0, count=len(rows))}, makers)


def test_the_card_counts_contaminated_questions_by_test_set_and_kind(tmp_path):
    ok = {"contamination_state": "ok", "contamination": "none"}
    pair = {**ok, "contamination": "pair", "contamination_source": "test"}
    rows = [
        {"sample_id": "a", **pair, "chosen": False},
        {"sample_id": "a", **pair, "chosen": False},
        {"sample_id": "b", **pair},
        {"sample_id": "b", **pair},
        {"sample_id": "c", **ok, "contamination": "text", "contamination_source": "test"},
        {"sample_id": "d", **ok},
        {"sample_id": "e", "contamination_state": "undecidable"},
    ]
    chosen = recipe(tmp_path, '[data.test]\nsource = "/somewhere/secret/test.jsonl"\nsplit = "held_out"\n')
    text = written(chosen, rows)
    said = section(text, "Contamination")
    assert "compared with `test` (test.jsonl, held_out): 5; of them with an image that could not be read: 1." in said
    assert re.search(r"\| pair: .*\| 2 \| 1 \|", said) and re.search(r"\| text: .*\| 1 \| 1 \|", said)
    assert "/somewhere" not in text and "Not checked" not in text
    clean = section(written(chosen, [{"sample_id": "d", **ok}]), "Contamination")
    assert "No match was found." in clean and "held_out): 1; of them" in clean


def test_the_card_lists_languages_where_they_were_measured(tmp_path):
    rows = [{"sample_id": "a", "language_state": "ok", "language": code} for code in ("en", "en", "zh", None)]
    text = written(recipe(tmp_path), rows)
    assert "as guessed: 2 en, 1 not known, 1 zh." in text


def test_facts_of_a_database_without_a_measurement_are_none(world):
    found = facts(tables_of([{"sample_id": "a"}]))
    assert found.contamination is None and found.languages is None and found.duplicates == {} == found.states


def test_a_card_is_the_same_text_every_time_and_names_no_folder_of_this_machine(world):
    run, chosen, _, text = world
    again = apply(chosen, run, fresh=True)
    assert (run / "filter/dataset/README.md").read_text() == text and str(run.parent) not in text
    assert again.outputs["dataset/README.md"].sha256


def test_the_card_rounds_no_share_of_a_mix(tmp_path):
    mix = '[[filter.select.mix]]\nby = "domain"\nshares = {charts = 0.125, scenes = 0.29}\n'
    assert _selection(recipe(tmp_path, mix)) == "shares by `domain` (charts 12.5 %, scenes 29 %)"
