"""The traces of a run as a table: facets, conditions, orders; a run that grows and one that is gone."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from servers.view_servers import unfiltered
from worlds.run_fixtures import generate_folder, small_world

from distill.artifacts.journal import Journal
from distill.errors import DataError, RecipeError
from distill.view.trace_table import Query, TraceTable


def test_facets_add_up_to_all_traces_and_a_chosen_value_narrows_them(run: Path) -> None:
    table = TraceTable(run)
    everything = table.search(Query())
    fates = dict(everything["facets"]["fate"])
    assert sum(fates.values()) == everything["total"] == len(table.search(Query(limit=1000))["rows"])
    dropped = table.search(Query(chosen={"fate": ["dropped"]}, limit=1000))
    assert dropped["total"] == fates["dropped"] == len(dropped["rows"])
    assert {row["fate"] for row in dropped["rows"]} == {"dropped"}
    rule, count = dropped["facets"]["rule"][0]
    of_rule = table.search(Query(chosen={"rule": [rule]}, limit=1000))
    assert of_rule["total"] == count and all(rule in row["rules"] for row in of_rule["rows"])


def test_values_of_one_heading_are_joined_by_or_and_each_shows_what_it_would_add(run: Path) -> None:
    table = TraceTable(run)
    fates = dict(table.search(Query())["facets"]["fate"])
    found = table.search(Query(chosen={"fate": ["dropped"], "teacher": ["brief"]}))
    assert found["total"] == table.search(Query(where="fate = 'dropped' AND teacher = 'brief'"))["total"] > 0
    of_brief = dict(table.search(Query(where="teacher = 'brief'"))["facets"]["fate"])
    of_dropped = dict(table.search(Query(where="fate = 'dropped'"))["facets"]["teacher"])
    assert (dict(found["facets"]["fate"]), dict(found["facets"]["teacher"])) == (of_brief, of_dropped)
    both = table.search(Query(chosen={"fate": list(fates)}))
    assert both["total"] == sum(fates.values()) and dict(both["facets"]["fate"]) == fates


def test_conditions_words_and_orders_are_those_of_sql(run: Path) -> None:
    table = TraceTable(run)
    wrong = table.search(Query(where="answer_verdict = 'wrong' -- as rules say", limit=1000))
    assert wrong["total"] == dict(table.search(Query())["facets"]["answer_verdict"])["wrong"]
    ordered = table.search(Query(order="-rationale_tokens", limit=1000))["rows"]
    tokens = [row["rationale_tokens"] for row in ordered if row["rationale_tokens"] is not None]
    assert tokens == sorted(tokens, reverse=True)
    question = ordered[0]["question"]
    word = max(question.split(), key=len)
    found = table.search(Query(words=word.upper(), limit=1000))["rows"]
    assert found and all(word.lower() in row["question"].lower() for row in found)
    first, second = (table.search(Query(limit=5, offset=offset))["rows"] for offset in (0, 5))
    assert not {row["id"] for row in first} & {row["id"] for row in second}


@pytest.mark.parametrize(
    "where",
    [
        "answer_verdict",
        "true) UNION SELECT 1 --",
        "(SELECT count(*) FROM traces) > 0",
        "read_text('/etc/passwd') <> ''",
        "no_such_column = 1",
        "steps >",
    ],
)
def test_what_is_no_condition_on_one_trace_is_refused(run: Path, where: str) -> None:
    with pytest.raises(RecipeError, match="condition = "):
        TraceTable(run).search(Query(where=where))


def test_an_unknown_column_to_order_by_names_the_columns(run: Path) -> None:
    with pytest.raises(DataError, match=r"no column of this run.*rationale_tokens"):
        TraceTable(run).search(Query(order='id" DESC; DROP TABLE labels; --'))


def test_a_reply_that_a_further_attempt_replaced_is_counted_apart(run: Path, tmp_path: Path) -> None:
    here = unfiltered(run, tmp_path)
    journal = sorted((here / "generate").glob("*/part-*.jsonl"))[0]
    table = TraceTable(here)
    table.refresh()
    before = table.search(Query())
    assert before["facets"]["fate"] == [("not filtered", before["total"])]
    last = orjson.loads(journal.read_bytes().splitlines()[-1])
    with journal.open("ab") as file:
        file.write(orjson.dumps(last | {"id": "f" * 20, "attempt": 1}, option=orjson.OPT_APPEND_NEWLINE))
    table.refresh()
    after = table.search(Query())
    replaced = "replaced by another attempt"
    assert after["facets"]["fate"] == [("not filtered", before["total"]), (replaced, 1)]
    assert (before["replaced"], after["total"], after["replaced"]) == (0, before["total"] + 1, 1)
    assert table.search(Query(chosen={"fate": ["not filtered"]}))["replaced"] == 0
    (row,) = table.search(Query(chosen={"fate": [replaced]}))["rows"]
    assert row["id"] == last["id"]


def test_more_values_than_a_page_shows_are_counted_found_by_their_text_and_shown_when_chosen(tmp_path: Path) -> None:
    asked, traces = small_world(tmp_path / "pictures", questions=40)
    asked = [replace(sample, domain=f"Field {number}") for number, sample in enumerate(asked)]
    generate_folder(tmp_path / "run", asked, traces)
    table = TraceTable(tmp_path / "run")
    table.refresh()
    everything = table.search(Query())
    shown = [value for value, _ in everything["facets"]["domain"]]
    hidden = sorted({sample.domain for sample in asked} - set(shown))
    assert len(shown) == 30 and everything["more"] == {"domain": 10} and len(hidden) == 10
    found = table.search(Query(find={"domain": hidden[0].upper()}))
    assert hidden[0] in dict(found["facets"]["domain"]) and found["total"] == everything["total"]
    assert "domain" not in found["more"]
    chosen = table.search(Query(chosen={"domain": [hidden[0]]}))
    assert dict(chosen["facets"]["domain"])[hidden[0]] == chosen["total"] > 0
    assert chosen["more"] == {"domain": 9} and len(chosen["facets"]["domain"]) == 31


def test_a_run_that_is_being_generated_grows_and_gets_its_decisions(run: Path, tmp_path: Path) -> None:
    here = unfiltered(run, tmp_path)
    journal = sorted((here / "generate").glob("*/part-*.jsonl"))[0]
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:2]) + lines[2][:40])  # the third record is not whole yet
    table = TraceTable(here)
    table.refresh()
    before = table.search(Query())["total"]
    journal.write_bytes(b"".join(lines))
    table.refresh()
    after = table.search(Query(where="outcome = 'complete'", limit=1000))
    assert table.search(Query())["total"] == before + len(lines) - 2
    assert {row["fate"] for row in after["rows"]} == {"not filtered"} and after["rows"][0]["question"]
    shutil.copytree(run / "filter", here / "filter")
    table.set_label(after["rows"][0]["id"], "wrong")
    table.refresh()
    assert table.filtered and table.search(Query(chosen={"label": ["wrong"]}))["total"] == 1


def test_a_finished_record_replaces_an_error_and_never_the_other_way_round(run: Path, tmp_path: Path) -> None:
    here = unfiltered(run, tmp_path)
    journal = sorted((here / "generate").glob("*/part-*.jsonl"))[0]
    record = orjson.loads(journal.read_bytes().splitlines()[0])
    failed = {name: value for name, value in record.items() if name != "crc"} | {"outcome": "error", "error": "503"}
    new = failed | {"id": "ab" * 10}
    with Journal(journal) as open_journal:
        for each in (failed, new):
            open_journal.append(each)
    table = TraceTable(here)
    table.refresh()
    assert table.search(Query(where=f"id = '{record['id']}'"))["facets"]["outcome"] == [(record["outcome"], 1)]
    with Journal(journal) as open_journal:
        open_journal.append(new | {"outcome": "complete"})
    table.refresh()
    assert table.search(Query(where=f"id = '{new['id']}'"))["facets"]["outcome"] == [("complete", 1)]


def test_a_folder_without_traces_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no run directory with traces"):
        TraceTable(tmp_path)


def test_counts_are_made_once_for_all_pages_and_orders_until_a_label_changes_them(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, count = list[str](), TraceTable._counted

    def watched(table: TraceTable, *arguments: Any) -> list[dict[str, Any]]:
        counted.append(arguments[0])
        return count(table, *arguments)

    monkeypatch.setattr(TraceTable, "_counted", watched)
    table = TraceTable(run)
    first = table.search(Query())
    assert table.search(Query(offset=5, order="-teacher"))["facets"] == first["facets"] and len(counted) == 1
    table.search(Query(where="k = 0"))
    table.search(Query(chosen={"fate": ["dropped"]}))
    assert len(counted) == 3
    table.set_label(first["rows"][0]["id"], "wrong")
    assert table.search(Query())["facets"]["label"] == [("wrong", 1)] and len(counted) == 4


def test_a_whole_page_of_words_is_looked_for_at_once(run: Path) -> None:
    """Samples are read once and not once for each word: a pasted text of 300 words took more than ten seconds."""
    table = TraceTable(run)
    question = table.search(Query())["rows"][0]["question"]
    words = " ".join([question, *(question[:length] for length in range(1, len(question)))] * 9)
    condition, values = table._condition(Query(words=words))
    assert condition.count("FROM samples") == 1 and len(values) == 2 * len(set(words.split()))
    found = table.search(Query(words=words, limit=1000))
    assert found["total"] and {row["question"] for row in found["rows"]} == {question}
    assert table.search(Query(words=f"{words} nowhere"))["total"] == 0
