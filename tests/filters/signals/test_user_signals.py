"""Signals from a user's file or an installed package, and what another family costs the runs that are there."""

import os
from dataclasses import dataclass
from importlib import metadata
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner
from worlds.run_fixtures import generate_folder, recipe, sample, small_world, trace

from distill import cli
from distill.artifacts.manifest import fingerprint
from distill.commands.explain import explain_trace
from distill.errors import RecipeError, StaleError
from distill.recipe.loading import load
from distill.reports.findings import as_text, read_findings
from filters import what_if
from filters.apply import apply
from filters.signals import registry, user_signals
from filters.signals.base import OK, SignalOfEachTrace, family
from filters.signals.families.reasoning_steps import Steps
from filters.tables import measure

HEDGING = """
from dataclasses import dataclass
from typing import ClassVar, Literal
import pyarrow as pa
from filters.signals.base import OK, family

@dataclass(frozen=True, kw_only=True)
class Hedging:
    words: tuple[str, ...]
    name: ClassVar[str] = "hedging"
    version: ClassVar[str] = "1"
    scope: ClassVar[Literal["trace", "sample"]] = "trace"
    columns: ClassVar[pa.Schema] = family("hedging", hedging_words=("count", "words of doubt"))

    @classmethod
    def from_recipe(cls, recipe):
        return cls(words=("guess", "perhaps"))

    def measure(self, sample, traces):
        return [
            {"hedging_state": OK, "hedging_words": sum(map(trace.reasoning.lower().split().count, self.words))}
            for trace in traces
        ]
"""
OWN = """
[filter]
signals = ["answer", "format", "length", "mine.py:Hedging"]
[[filter.rules]]
name = "hedges"
drop = "hedging_words > 0"
[[filter.rules]]
name = "wrong"
drop = "answer_verdict = 'wrong'"
"""
PLAIN = OWN.replace(', "mine.py:Hedging"', "").replace("hedging_words > 0", "not format_valid")


@pytest.fixture
def run(tmp_path):
    samples, traces = small_world(tmp_path / "pictures")
    return generate_folder(tmp_path / "run", samples, traces).parent


@pytest.fixture
def reported(tmp_path, run):
    """The folder of a recipe with a signal of its own."""
    (tmp_path / "mine.py").write_text(HEDGING)
    registry.calls.clear()
    return tmp_path


@pytest.fixture
def world(reported, short_report):
    return reported


def rows(run):
    table = pq.ParquetDataset(sorted((run / "filter/signals").glob("*.parquet"))).read()
    return {row["id"]: row for row in table.to_pylist()}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_signal_of_a_file_beside_the_recipe_is_measured_ruled_by_reported_and_explained(reported, run, workers):
    settings = f"[filter]\nworkers = {workers}\npartition_rows = 8"
    done = apply(recipe(reported, OWN.replace("[filter]", settings)), run)
    found = rows(run)
    doubting = {name for name, row in found.items() if row["hedging_words"]}
    assert len(doubting) == 6 == done.counts["rule.hedges"]
    assert {row["hedging_state"] for row in found.values()} == {"ok"}
    page = (run / "filter/report.html").read_text()
    assert "hedging_words" in page and "words of doubt" in page
    text = explain_trace(run, min(doubting))
    assert "hedging_words" in text and "hedges" in text


def test_a_file_of_an_earlier_recipe_that_is_gone_ends_no_worker(world, run):
    (world / "words.txt").touch()
    (world / "early.py").write_text(f"open({str(world / 'words.txt')!r}).close()\n{HEDGING}")
    apply(recipe(world, OWN.replace("mine.py", "early.py")), run)
    (world / "early.py").unlink()
    (world / "words.txt").unlink()  # so that the file, which this process has run, runs in no other one
    other = generate_folder(world / "other", *small_world(world / "pictures")).parent
    settings = OWN.replace("[filter]", "[filter]\nworkers = 2\npartition_rows = 8")
    assert apply(recipe(world, settings), other).counts["measured"] == 24


def test_a_signal_from_a_file_measures_nothing_else_again(world, run):
    apply(recipe(world, PLAIN), run)
    before = rows(run)
    registry.calls.clear()
    done = apply(recipe(world, OWN), run, fresh=True)
    assert set(registry.calls) == {"hedging"}
    assert done.counts["measured"] == 24
    now = rows(run)
    assert {name: {key: row[key] for key in before[name]} for name, row in now.items()} == before
    alone = generate_folder(world / "alone", *small_world(world / "pictures")).parent
    apply(recipe(world, OWN), alone)
    file = "filter/signals/part-00000.parquet"
    assert (alone / file).read_bytes() == (run / file).read_bytes()


def test_a_signal_that_is_left_out_measures_nothing_again(world, run):
    apply(recipe(world, OWN), run)
    registry.calls.clear()
    done = apply(recipe(world, PLAIN), run, fresh=True)
    assert (done.counts["measured"], done.counts["reused"], dict(registry.calls)) == (0, 24, {})
    assert "hedging_words" not in next(iter(rows(run).values()))


def test_another_family_in_the_code_measures_nothing_again(world, run, monkeypatch):
    """The folder of an older version has no columns of a family that came later."""
    schema, families = measure.file_columns(()), registry.FAMILIES
    older = {name: family for name, family in families.items() if name != "steps"}
    with monkeypatch.context() as patched:
        patched.setattr(registry, "FAMILIES", older)
        patched.setattr(registry, "LOCAL", registry.local_columns({}))
        apply(recipe(world, PLAIN.replace("[filter]", "[filter]\npartition_rows = 8")), run)
    assert not set(Steps.columns.names) & set(next(iter(rows(run).values())))
    assert set(Steps.columns.names) < set(schema.names)
    (run / "filter/manifest.json").unlink()
    parts = sorted((run / "filter/signals").glob("part-*.parquet"))
    parts[0].unlink()  # so that files of both versions lie side by side
    done = apply(recipe(world, PLAIN.replace("[filter]", "[filter]\npartition_rows = 8")), run)
    assert 0 < done.counts["measured"] <= 8 and done.counts["reused"] == 24 - done.counts["measured"]


def test_only_the_first_column_of_a_signal_ends_as_a_state_does(world, run):
    """It would be counted as the state of another signal."""
    other = HEDGING.replace('hedging_words=("count", "words of doubt")', 'hedging_sky_state=("number", "clear")')
    (world / "mine.py").write_text(other)
    with pytest.raises(RecipeError, match="the columns hedging_sky_state end in _state, as only the first one may"):
        apply(recipe(world, '[filter]\nsignals = ["mine.py:Hedging"]\n'), run)


def test_a_file_of_signals_is_known_by_the_fingerprint_of_earlier_versions(world, run):
    """It covered the names of all columns; a file that carries it is taken as it is."""
    read = recipe(world, PLAIN)
    apply(read, run)
    path = run / "filter/signals/part-00000.parquet"
    note = pq.read_schema(path).metadata
    extractors = registry.identity(registry.build(read, run / "filter"))
    whole = {"extractors": extractors, "columns": measure.file_columns(()).names, "scheme": None}
    assert note[b"made_by"] == fingerprint(whole).encode()


def test_a_changed_file_is_noticed_and_measured_alone(world, run):
    apply(recipe(world, OWN), run)
    (world / "mine.py").write_text(HEDGING.replace("perhaps", "maybe"))
    with pytest.raises(StaleError, match=r"extractors\.hedging\.code"):
        apply(recipe(world, OWN), run)
    registry.calls.clear()
    apply(recipe(world, OWN), run, fresh=True)
    assert set(registry.calls) == {"hedging"}


def test_what_if_reads_the_columns_of_an_own_signal(world, run):
    apply(recipe(world, OWN), run)
    found = what_if.what_if(recipe(world, OWN.replace("hedging_words > 0", "hedging_words > 9")), run)
    assert found.reasons["hedges"] == (6, 0)
    apply(recipe(world, PLAIN), run, fresh=True)
    found = what_if.what_if(recipe(world, OWN), run)
    assert any("reads hedging, which was not measured" in note for note in found.notes)


def test_a_mistake_of_an_own_signal_is_an_error_of_its_traces_alone(world, run):
    (world / "mine.py").write_text(HEDGING.replace('"hedging_words": sum', '"hedging_word": sum'))
    done = apply(recipe(world, OWN), run)
    assert done.counts["error.hedging"] == 24
    found = rows(run)
    assert "hedging_word, which columns does not name" in next(iter(found.values()))["signal_errors"]
    told = as_text(read_findings(run))
    assert f"the first: trace {min(found)}: ValueError: measure returned hedging_word, which columns" in told


@pytest.mark.parametrize("stated", [("integer", "a number"), "count", ("count",)])
def test_a_column_of_an_unknown_kind_is_named_with_the_kinds(stated):
    with pytest.raises(ValueError, match=r"the column luck_n is .*; state \(kind, description\), .*text, number"):
        family("luck", luck_n=stated)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("1.5", "hedging_words is 1.5; a count is a whole number of at least 0"),
        ("-1", "hedging_words is -1; a count is"),
        ("sys.exit(3)", "SystemExit: 3"),
        ("(_ for _ in ()).throw(ValueError('half \\ud800'))", "ValueError: half \ufffd"),
        ("judge('a', 'b', 'own_unknown')", "DataError: "),
        ("(_ for _ in ()).throw(PanicException('index out of range'))", "PanicException: index out of range"),
        ("(_ for _ in ()).throw(Unspeakable())", "Unspeakable"),
    ],
)
def test_what_would_be_another_number_or_end_the_run_is_an_error_of_the_trace(world, run, value, reason):
    body = HEDGING.replace("sum(map(trace.reasoning.lower().split().count, self.words))", value)
    (world / "mine.py").write_text(
        "import sys\nfrom distill.answers.verdicts import judge\nclass PanicException(BaseException):\n    pass\n"
        "class Unspeakable(Exception):\n"
        f"    def __str__(self):\n        raise ValueError\n{body}"
    )
    done = apply(recipe(world, OWN.replace('drop = "answer_verdict', 'drop = "id is null and answer_verdict')), run)
    assert done.counts["error.hedging"] == done.counts["measured"] == 24
    assert all(reason in row["signal_errors"] for row in rows(run).values())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"hedging_state": OK', '"hedging_state": "fine"', "hedging_state is 'fine'; it is one of ok, "),
        (
            '("count", "words of doubt")',
            '("number", "x")',
            "hedging_words is nan; leave out a value that is not a number",
        ),
    ],
)
def test_a_row_that_a_rule_would_misread_is_an_error_of_the_trace(world, run, old, new, message):
    text = HEDGING.replace(old, new)
    (world / "mine.py").write_text(
        text.replace("self.words))}", "self.words)) * float('nan')}" if "nan" in message else "self.words))}")
    )
    apply(recipe(world, OWN), run)
    assert all(message in row["signal_errors"] for row in rows(run).values())


def test_a_text_that_is_no_measurement_is_an_error_of_the_trace(world, run):
    """Tables hold it for all traces."""
    text = HEDGING.replace('("count", "words of doubt")', '("text", "x")').replace(
        "sum(map(", "'x' * 20_000 or sum(map("
    )
    (world / "mine.py").write_text(text)
    apply(recipe(world, OWN.replace("hedging_words > 0", "hedging_words = 'x'")), run)
    message = "hedging_words has 20,000 characters; a text has 10,000 at most"
    assert all(message in row["signal_errors"] for row in rows(run).values())


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("count", "'three'", "hedging_words is 'three' (str); the kind of this column is 'count'"),
        ("flag", "'yes'", "hedging_words is 'yes' (str); the kind of this column is 'flag'"),
        ("text", "['a']", "hedging_words is ['a'] (list); the kind of this column is 'text'"),
    ],
)
def test_a_value_of_another_kind_is_named_with_its_column(world, run, kind, value, message):
    text = HEDGING.replace('("count", "words of doubt")', f'("{kind}", "x")').replace(
        "sum(map(", f"{value} or sum(map("
    )
    (world / "mine.py").write_text(text)
    apply(recipe(world, OWN.replace("hedging_words > 0", "hedging_words IS NULL AND false")), run)
    assert all(message in row["signal_errors"] for row in rows(run).values())


def test_what_a_signal_prints_goes_to_stderr(world, run):
    (world / "mine.py").write_text(HEDGING.replace("        return [", "        print('measured')\n        return ["))
    place = recipe(world, OWN).path
    done = CliRunner().invoke(cli.app, ["filter", str(place), "--run", str(run)])
    assert done.exit_code == 0, done.output
    assert "measured" in done.stderr and "measured\n" not in done.stdout and "report:" in done.stdout


def test_a_row_that_is_no_dict_is_named(world, run):
    (world / "mine.py").write_text(HEDGING.replace("        return [", "        return [None for _ in traces] or ["))
    apply(recipe(world, OWN), run)
    assert all("a row is None (NoneType); return a dict" in row["signal_errors"] for row in rows(run).values())


def test_a_signal_that_changes_its_list_of_traces_takes_none_from_other_families(world, run):
    (world / "mine.py").write_text(
        HEDGING.replace(
            "        return [", "        mine = traces[:]\n        traces.clear()\n        return ["
        ).replace("in traces", "in mine")
    )
    done = apply(recipe(world, OWN), run)
    assert done.counts["measured"] == len(rows(run)) == 24 and done.counts["rule.hedges"] == 6


def test_a_signal_that_fills_one_row_again_for_each_trace_keeps_the_values_of_each(world, run):
    one_row = """
    def measure(self, sample, traces):
        row = {"hedging_state": OK}
        for trace in traces:
            row["hedging_words"] = len(trace.id + trace.reasoning)
            yield row
"""
    (world / "mine.py").write_text(HEDGING.partition("    def measure")[0] + one_row)
    apply(recipe(world, OWN.replace("hedging_words > 0", "hedging_words IS NULL")), run)
    read = {trace.id: len(trace.id + trace.reasoning) for trace in small_world(world / "pictures")[1]}
    assert len(set(read.values())) > 1
    assert {name: row["hedging_words"] for name, row in rows(run).items()} == read


def test_a_signal_of_each_trace_may_return_one_dict_for_all_and_changes_no_sample():
    one_row = {}

    @dataclass(frozen=True, kw_only=True)
    class Rude(SignalOfEachTrace):
        name: ClassVar[str] = "rude"
        version: ClassVar[str] = "1"
        columns: ClassVar[pa.Schema] = family("rude", rude_length=("count", "characters"))

        def row(self, sample, trace):
            sample.meta.clear()
            one_row.update(rude_state=OK, rude_length=len(trace.reasoning))
            return one_row

    asked = sample(table={"red": 4})
    before = asked.copy()
    found = user_signals.measure(Rude(), asked, [trace(reasoning="a" * length) for length in (3, 1, 2)])
    assert [row["rude_length"] for row in found] == [3, 1, 2]
    assert asked == before and asked.meta


@pytest.mark.parametrize(
    ("made", "fault"),
    [("cls(words=recipe.nothing)", "AttributeError"), ("None", "TypeError: it returned NoneType, not Hedging")],
)
def test_parameters_of_an_own_signal_that_cannot_be_made_are_refused(world, run, made, fault):
    (world / "mine.py").write_text(HEDGING.replace('cls(words=("guess", "perhaps"))', made))
    with pytest.raises(RecipeError, match=rf"Hedging\.from_recipe failed: {fault}"):
        apply(recipe(world, OWN), run)


def test_a_signal_of_an_installed_package_is_known_by_its_entry_point(world, run, monkeypatch):
    package = world / "site"
    info = package / "hedge_signals-1.2.dist-info"
    info.mkdir(parents=True)
    (package / "hedge_signals.py").write_text(HEDGING)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hedge-signals\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[cot_distill.signals]\nhedging = hedge_signals:Hedging\n")
    monkeypatch.syspath_prepend(str(package))
    monkeypatch.setenv("PYTHONPATH", str(package), prepend=os.pathsep)
    text = OWN.replace("mine.py:Hedging", "hedging").replace("[filter]", "[filter]\nworkers = 2\npartition_rows = 8")
    done = apply(recipe(world, text), run)
    assert done.fields["extractors.hedging.code"] == "hedge-signals 1.2"
    assert done.counts["rule.hedges"] == 6
    assert metadata.version("hedge-signals") == "1.2"


@pytest.mark.parametrize("column", ["sample_id", "finish_reason", "signal_errors", "row_weight", "dataset_place"])
def test_a_column_of_the_signal_table_itself_is_refused(world, run, column):
    name = column.partition("_")[0]
    text = HEDGING.replace("hedging_words=", f"{column}=").replace("hedging", name)
    (world / "mine.py").write_text(text)
    with pytest.raises(RecipeError, match=f"its column {column} is already one of the signal table"):
        apply(recipe(world, OWN.replace("hedging_words", column)), run)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("mine.py:Hedging", "hegding"), "'hegding' is not known"),
        (("mine.py:Hedging", "their.py:Hedging"), "their.py cannot be read"),
        (("mine.py:Hedging", "mine.py:Hedgin"), "defines no Hedgin; it defines Hedging"),
        (("mine.py:Hedging", "mine.py:family"), "a signal is a class with @dataclass"),
    ],
)
def test_a_signal_that_is_not_there_is_refused_with_what_is(world, run, change, message):
    with pytest.raises(RecipeError, match=message):
        apply(recipe(world, OWN.replace(*change)), run)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("    def measure", "    def measured"), r"Hedging\.measure is missing or wrong"),
        (("(self, sample, traces)", "(self, traces)"), r"Hedging\.measure: it takes \(traces\), and is called with"),
        (("frozen=True, ", ""), r"a class with @dataclass\(frozen=True\), and Hedging is a class without it"),
        (('version: ClassVar[str] = "1"', ""), r"Hedging\.version is missing or wrong"),
        (('name: ClassVar[str] = "hedging"', 'name: ClassVar[str] = "answer"'), "first column must be answer_state"),
        (("hedging_words=(", "words=("), "the columns words must begin with hedging_"),
        (
            ("from typing", "import nowhere\nfrom typing"),
            r"ModuleNotFoundError: .* \(mine\.py, line 3\); install the package of nowhere",
        ),
        (("@dataclass(frozen=True, kw_only=True)", "@dataclass((frozen=True"), "SyntaxError"),
    ],
)
def test_a_file_that_is_no_signal_says_what_it_lacks(world, run, change, message):
    (world / "mine.py").write_text(HEDGING.replace(*change))
    with pytest.raises(RecipeError, match=message):
        apply(recipe(world, OWN), run)
    assert not (run / "filter/signals").exists()


ROW = """
from dataclasses import dataclass
from typing import ClassVar
import pyarrow as pa
from filters.signals.base import OK, SignalOfEachTrace, family

@dataclass(frozen=True, kw_only=True)
class Hedging(SignalOfEachTrace):
    name: ClassVar[str] = "hedging"
    version: ClassVar[str] = "1"
    columns: ClassVar[pa.Schema] = family("hedging", hedging_words=("count", "words of doubt"))

    def row(self, sample, trace):
        return {"hedging_state": OK, "hedging_words": trace.reasoning.lower().split().count("guess")}
"""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("    def row", "    def rows"), r"from_recipe failed: TypeError: Can't instantiate abstract class Hedging"),
        (("(self, sample, trace)", "(self, trace)"), r"Hedging\.row: it takes \(trace\), and is called with"),
    ],
)
def test_a_signal_of_each_trace_that_cannot_be_measured_is_refused(world, run, change, message):
    (world / "mine.py").write_text(ROW.replace(*change))
    with pytest.raises(RecipeError, match=message):
        apply(recipe(world, OWN), run)
    assert not (run / "filter/signals").exists()


def test_a_run_keeps_the_whole_path_of_the_file_in_its_recipe(world, run):
    (world / "copy").mkdir()
    read = recipe(world, OWN)
    (world / "copy/recipe.toml").write_text(read.to_toml())
    done = apply(read, run)
    assert apply(load(world / "copy/recipe.toml"), run).created == done.created


def test_a_trace_on_which_a_signal_failed_is_measured_again(world, run):
    """It may ask a server, or read a file, that is there again."""
    asked = HEDGING.replace(
        "        return [\n            {",
        "        open(sample.images[0].path + '.note').close()\n        return [\n            {",
    )
    (world / "mine.py").write_text(asked)
    notes = [path.with_name(f"{path.name}.note") for path in sorted((world / "pictures").glob("*.png"))]
    for note in notes[1:]:
        note.touch()
    counts = apply(recipe(world, OWN), run).counts
    assert (counts["error.hedging"], counts["measured"]) == (4, 24)
    notes[0].touch()
    counts = apply(recipe(world, OWN), run, fresh=True).counts
    assert "error.hedging" not in counts and (counts["measured"], counts["reused"]) == (4, 20)
    assert apply(recipe(world, OWN), run, fresh=True).counts["reused"] == 24


KILLING = """
    def measure(self, sample, traces):
        import os, signal
        from pathlib import Path
        if not Path({mark!r}).exists():
            Path({mark!r}).touch()
            Path({left!r}).touch()
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_that_is_killed_once_changes_no_byte_and_leaves_no_file(tmp_path, run):
    settings = OWN.replace("[filter]", "[filter]\nworkers = 2\npartition_rows = 5")
    expected = generate_folder(tmp_path / "expected", *small_world(tmp_path / "pictures")).parent
    (tmp_path / "mine.py").write_text(HEDGING)
    apply(recipe(tmp_path, settings), expected)
    killing = KILLING.format(
        mark=str(tmp_path / "killed"), left=str(run / "filter/signals/.part-00000.parquet.a.tmp")
    )
    (tmp_path / "mine.py").write_text(HEDGING.replace("    def measure(self, sample, traces):\n", killing[1:]))
    apply(recipe(tmp_path, settings), run)
    assert (tmp_path / "killed").exists() and not list(run.rglob("*.tmp"))
    for table in (expected / "filter/dataset").rglob("*.parquet"):
        assert table.read_bytes() == (run / table.relative_to(expected)).read_bytes()
