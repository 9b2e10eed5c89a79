"""The policy bench of `distill view`: another policy is compared, and written to a recipe that was named."""

import shutil
import threading
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from servers.view_servers import Visitor, unfiltered, viewed
from worlds.run_fixtures import generate_folder, make_image, recipe, sample, small_world, trace

from distill.errors import DataError, RecipeError
from distill.recipe.loading import load
from distill.view import server
from distill.view.policy import compare_policy, policy, write_policy
from distill.view.server import view_run
from distill.view.trace_table import Query, TraceTable
from filters.apply import apply
from filters.what_if import LastTraces

OWN_SIGNAL = """
from dataclasses import dataclass
from typing import ClassVar
import pyarrow as pa
from filters.signals.base import OK, SignalOfEachTrace, family

@dataclass(frozen=True, kw_only=True)
class Size(SignalOfEachTrace):
    name: ClassVar[str] = "size"
    version: ClassVar[str] = "1"
    columns: ClassVar[pa.Schema] = family("size", size_words=("count", "words of the rationale"))

    def row(self, sample, trace):
        return {"size_state": OK, "size_words": len(trace.reasoning.split())}
"""


def test_the_policy_of_the_run_changes_nothing_and_another_one_is_compared_with_it(run: Path) -> None:
    table = TraceTable(run)
    own = policy(table)
    same = compare_policy(table, own)
    assert same["total"]["kept"] == same["total"]["now_kept"] > 0
    assert {name: one["count"] for name, one in same["moved"].items()} == dict.fromkeys(same["moved"], 0)
    wider = [rule for rule in own["rules"] if rule["name"] != "wrong_answer"]
    found = compare_policy(table, {"rules": wider, "per_question": 2})
    assert found["total"]["now_kept"] > found["total"]["kept"]
    assert found["reasons"]["wrong_answer"][0] > 0 == found["reasons"]["wrong_answer"][1]
    lines = tomllib.loads(found["recipe"])["filter"]
    assert lines["select"] == {"per_question": 2}
    assert [rule["name"] for rule in lines["rules"]] == [rule["name"] for rule in wider]


def test_a_threshold_comes_with_the_range_of_its_column(run: Path) -> None:
    (rule,) = [rule for rule in policy(TraceTable(run))["rules"] if rule["name"] == "repetition"]
    threshold = rule["threshold"]
    assert threshold["column"] == "repetition_ngram" and 0 <= threshold["low"] <= threshold["high"] <= 1


def test_the_range_of_a_column_is_that_of_its_finite_numbers(tmp_path: Path) -> None:
    """The error of an answer relative to a gold answer of 0 is infinite, and JSON holds no such number."""
    asked = [sample(f"How many dots, {gold}?", gold, images=[make_image(tmp_path, int(gold))]) for gold in "048"]
    generate_folder(tmp_path / "run", asked, [trace(one, "6", "I see 6 of them.") for one in asked])
    made = recipe(tmp_path, '[[filter.rules]]\nname = "far"\ndrop = "answer_relative_error > 0.3"\n')
    (tmp_path / "run/recipe.toml").write_text(made.to_toml())
    apply(made, tmp_path / "run")
    with closing(TraceTable(tmp_path / "run")) as table:
        (rule,) = policy(table)["rules"]
    assert (rule["threshold"]["low"], rule["threshold"]["high"]) == (0.25, 0.5)


def test_rules_over_an_own_signal_are_shown_searched_and_compared(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN_SIGNAL)
    samples, traces = small_world(tmp_path / "images")
    run = generate_folder(tmp_path / "run", samples, traces).parent
    made = recipe(
        tmp_path,
        '[filter]\nsignals = ["answer", "mine.py:Size"]\n[[filter.rules]]\nname = "long"\ndrop = "size_words > 99"\n',
    )
    (run / "recipe.toml").write_text(made.to_toml())
    apply(made, run)
    with closing(TraceTable(run)) as table:
        own = policy(table)
        (rule,) = own["rules"]
        assert rule["threshold"]["column"] == "size_words" and rule["threshold"]["high"] > 0
        assert [condition.name for condition in table.conditions()] == ["long"]
        assert table.search(Query(where="size_words >= 0", order="-size_words"))["total"] == len(traces)
        assert compare_policy(table, own)["total"]["now_kept"] > 0


@pytest.mark.parametrize("failure", [None, DataError("not there"), OSError("gone"), duckdb.Error("changed")])
def test_the_first_comparison_is_prepared_while_a_person_reads_and_its_failure_ends_nothing(
    run: Path, failure: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = threading.Event()

    def prepare(table: TraceTable, asked: dict[str, Any], last: LastTraces) -> dict[str, Any]:
        assert [rule["name"] for rule in asked["rules"]] == [rule["name"] for rule in policy(table)["rules"]]
        prepared.set()
        if failure is not None:
            raise failure
        return compare_policy(table, asked, last)

    monkeypatch.setattr(server, "compare_policy", prepare)
    monkeypatch.setattr(server, "_IDLE_S", 0.1)
    with viewed(run) as (visitor, _):
        assert not prepared.wait(0.3)  # the page is not open yet
        visitor.ask("/api/traces")
        assert prepared.wait(20)
        monkeypatch.undo()
        asked = policy(TraceTable(run))
        assert visitor.ask("/api/policy", asked)[1] == compare_policy(TraceTable(run), asked)


def test_a_policy_that_cannot_be_right_names_the_rule(visitor: Visitor, tmp_path: Path, run: Path) -> None:
    told = visitor.ask("/api/policy", {"rules": [{"name": "long", "drop": "no_column > 3"}], "per_question": None})
    assert told[0] == 400 and "filter.rules.long" in told[1]["error"] and "no_column" in told[1]["error"]
    assert "a list of rules" in visitor.ask("/api/policy", {"rules": "all"})[1]["error"]
    with closing(TraceTable(unfiltered(run, tmp_path))) as table:
        for refused in (lambda: policy(table), lambda: write_policy(table, {"rules": []}, tmp_path / "recipe.toml")):
            with pytest.raises(DataError, match="not filtered yet"):
                refused()


def test_the_policy_is_written_to_a_recipe_only_if_it_is_named_and_other_lines_stay(
    run: Path, visitor: Visitor, tmp_path: Path
) -> None:
    rules = visitor.ask("/api/policy")[1]["rules"]
    asked = {"rules": [{"name": rule["name"], "drop": rule["drop"]} for rule in rules], "per_question": 3}
    assert visitor.ask("/api/policy/write", asked)[0] == 409
    head, _, _ = (run / "recipe.toml").read_text(encoding="utf-8").partition("[filter")
    kept = asked["rules"][0]
    mine = tmp_path / "mine.toml"
    mine.write_text(
        f"# my recipe\n{head}\n[[filter.rules]] # first\nname = {kept['name']!r}\n"
        f"drop = '''{kept['drop']}'''  # kept\n\n"
        '[[filter.rules]]\nname = "gone"\ndrop = "steps > 90"\n# about the selection\n'
        "[filter.select]  # mine\nlimit = 30\n",
        encoding="utf-8",
    )
    table = TraceTable(run)
    write_policy(table, asked, mine)
    written = mine.read_text(encoding="utf-8")
    assert "# my recipe" in written and "# first" in written and "# kept" in written
    assert "# about the selection\n[filter.select]  # mine" in written and "gone" not in written
    after = load(mine).filter
    assert [(rule.name, rule.drop) for rule in after.rules] == [(one["name"], one["drop"]) for one in asked["rules"]]
    assert (after.select.per_question, after.select.limit) == (3, 30)
    write_policy(table, asked, mine)
    assert mine.read_text(encoding="utf-8") == written


def test_a_recipe_of_another_form_is_not_written(run: Path, tmp_path: Path) -> None:
    table, mine = TraceTable(run), tmp_path / "mine.toml"
    text = (run / "recipe.toml").read_text(encoding="utf-8").partition("[filter")[0]
    inline = f'{text}\n[filter]\nrules = [{{ name = "long", drop = "steps > 90" }}]\n'
    mine.write_text(inline, encoding="utf-8")
    rules = [{"name": "short", "drop": "steps < 1"}]
    with pytest.raises(DataError, match="by hand"):
        write_policy(table, {"rules": rules, "per_question": None}, mine)
    with pytest.raises(RecipeError, match="no_column"):
        write_policy(table, {"rules": [{"name": "short", "drop": "no_column < 1"}], "per_question": None}, mine)
    assert mine.read_text(encoding="utf-8") == inline
    mine.write_text(text, encoding="utf-8")
    write_policy(table, {"rules": rules, "per_question": 1}, mine)
    assert [rule.name for rule in load(mine).filter.rules] == ["short"]
    assert load(mine).filter.select.per_question == 1


def test_a_limit_of_the_run_can_be_taken_away_on_the_page(run: Path, tmp_path: Path) -> None:
    here = tmp_path / "run"
    shutil.copytree(run, here, ignore=shutil.ignore_patterns("labels"))
    text = (here / "recipe.toml").read_text(encoding="utf-8")
    limited = text.replace("[filter.select]\n", "[filter.select]\nper_question = 1\n")
    (here / "recipe.toml").write_text(limited, encoding="utf-8")
    table = TraceTable(here)
    asked = {"rules": policy(table)["rules"][:1], "per_question": None}
    found = compare_policy(table, asked)
    assert found["total"]["now_selected"] == found["total"]["now_kept"]
    assert "per_question = " not in found["recipe"] and "remove per_question" in found["recipe"]
    write_policy(table, asked, here / "recipe.toml")
    assert load(here / "recipe.toml").filter.select.per_question is None


def test_the_lines_for_the_recipe_fit_into_one_that_has_a_section_of_the_filter(run: Path) -> None:
    found = compare_policy(TraceTable(run), {"rules": [{"name": "long", "drop": "steps > 9"}], "per_question": 2})
    assert tomllib.loads('[filter]\nrationale = "think"\n' + found["recipe"])["filter"]["select"]["per_question"] == 2


RULE = '[[filter.rules]]\n# why\ndrop = "steps > 90"  # ninety\nname = "long"\n'


@pytest.mark.parametrize("drop", ["steps > 90", "steps > 80"])
def test_a_written_recipe_keeps_comments_line_endings_mark_mode_and_secrets(
    run: Path, tmp_path: Path, drop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "open-sesame-1")
    mine = tmp_path / "mine.toml"
    head = (run / "recipe.toml").read_text(encoding="utf-8").partition("[filter")[0]
    text = f"# a comment with open-sesame-1\n{head}{RULE}"
    mine.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    mine.chmod(0o600)
    write_policy(TraceTable(run), {"rules": [{"name": "long", "drop": drop}], "per_question": None}, mine)
    expected = text.replace("steps > 90", drop).rstrip() + "\n"
    assert mine.read_bytes() == b"\xef\xbb\xbf" + expected.replace("\n", "\r\n").encode()
    assert mine.stat().st_mode & 0o777 == 0o600


def test_a_recipe_that_cannot_be_written_stays_and_says_so(run: Path, tmp_path: Path) -> None:
    table, mine = TraceTable(run), tmp_path / "mine.toml"
    head = (run / "recipe.toml").read_text(encoding="utf-8").partition("[filter")[0]
    text = f'{head}[[filter.rules]]\nname = "lists"\ndrop = """\n[1] = [2]\n"""\n'
    mine.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="by hand"):
        write_policy(table, {"rules": [{"name": "short", "drop": "steps < 1"}], "per_question": None}, mine)
    assert mine.read_text(encoding="utf-8") == text
    with pytest.raises(DataError, match="a shipped recipe is not written to"):
        view_run(run, recipe=Path("tiny"), port=0, on_start=lambda address: None)
