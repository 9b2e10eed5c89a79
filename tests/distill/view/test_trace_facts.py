"""What `distill view` tells of one trace: the texts beside it, marks, what became of it in the student."""

import json
import re
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from servers.view_servers import unfiltered
from worlds.run_fixtures import generate_folder, recipe, small_world

from distill.artifacts.layout import rollouts_folder
from distill.artifacts.manifest import Manifest
from distill.trace_records import scores
from distill.view.trace_facts import marks, trace_facts
from distill.view.trace_table import Query, TraceTable
from filters.apply import apply


@pytest.mark.parametrize("filtered", [True, False])
def test_a_trace_brings_the_texts_of_the_other_traces_of_its_question(
    run: Path, tmp_path: Path, filtered: bool
) -> None:
    table = TraceTable(run if filtered else unfiltered(run, tmp_path))
    table.refresh()
    facts = trace_facts(table, table.search(Query(limit=1))["rows"][0]["id"])
    others = [trace_facts(table, one["id"]) for one in facts["siblings"]]
    assert len(others) == 3 and {one["sample_id"] for one in others} == {facts["sample_id"]}
    assert [(one["text"], one["answer"]) for one in facts["siblings"]] == [
        (one["reasoning"] or one["text"], one["answer"]) for one in others
    ]


def test_marks_stand_where_the_signals_say() -> None:
    text = "Blue is 42, red 4: 4 + 3 = 8."
    values = {
        "arithmetic_slip": json.dumps([{"written": "4 + 3 = 8", "expected": 7.0}]),
        "unsupported": json.dumps([{"value": "4", "expected": [5.0]}, {"value": "99", "expected": []}]),
    }
    assert [(text[mark["start"] : mark["end"]], mark["kind"], mark["note"]) for mark in marks(text, values)] == [
        ("4", "unsupported", "the table says 5"),
        ("4 + 3 = 8", "slip", "comes out as 7"),
    ]
    right, wrong = marks("Blue is 4, red 4.", {"unsupported": json.dumps([{"value": "4", "expected": []}])}, [(8, 9)])
    assert (right["start"], right["kind"], wrong["start"], wrong["kind"]) == (8, "supported", 15, "unsupported")


def test_a_trace_tells_what_became_of_it_in_the_student(tmp_path: Path) -> None:
    run = tmp_path / "run"
    generate_folder(run, *small_world(tmp_path / "pictures", questions=4))
    stage = '[[stages]]\nname = "{}"\ndata = "traces"\ntrain = ["language"]\n'
    settings = recipe(tmp_path, stage.format("first") + stage.format("second"))
    apply(settings, run)
    (run / "recipe.toml").write_text(settings.to_toml(), encoding="utf-8")
    table = TraceTable(run)
    rows = table.search(Query(limit=1000))["rows"]
    selected, dropped = (next(row for row in rows if row["fate"] == fate) for fate in ("selected", "dropped"))
    wrong = next(
        row
        for row in rows
        if row["sample_id"] == selected["sample_id"] and row["fate"] != "selected" and row["rationale_tokens"]
    )
    assert trace_facts(table, selected["id"])["student"] == []  # no stage has learned yet
    (run / "train" / "first").mkdir(parents=True)
    weighed = {"stage.visual.strength": 1.0, "stage.visual.least": 0.25, "stage.visual.most": 4.0}
    fields = weighed | {"scores.structured": "structured.jsonl"}
    Manifest(stage="train", fingerprint="x", fields=fields).write(run / "train" / "first")
    (run / scores.FOLDER).mkdir()
    with (run / scores.FOLDER / "structured.jsonl").open("wb") as journal:
        for view, values in ((scores.WITH_IMAGE, [-0.1, -0.1]), (scores.BLIND, [-3.0, -0.1])):
            scored = scores.ScoredText(
                "two dots", np.array([[1], [2]], "i4"), np.array(values, "f4")[:, None], np.array([3, 8], "i4")
            )
            journal.write(orjson.dumps(scores.record_of("x", selected["id"], view, scored)) + b"\n")
    pair = {
        "sample_id": selected["sample_id"],
        "reason": None,
        "chosen": selected["id"],
        "rejected": wrong["id"],
        "chosen_tokens": 9,
        "rejected_tokens": 7,
    }
    (run / "filter" / "arms" / "pairs").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist([pair]), run / "filter" / "arms" / "pairs" / "pairs.parquet")
    replies = rollouts_folder(run, "second") / "train"
    replies.mkdir(parents=True)
    reply = {
        "sample_id": selected["sample_id"],
        "trace_id": "reply",
        "messages": [{"role": "assistant", "content": "<b>two</b>\n dots"}],
    }
    pq.write_table(pa.Table.from_pylist([reply]), replies / "part-00000.parquet")
    facts = trace_facts(table, selected["id"])
    assert facts["student"] == [
        "learned in stage first",
        f"pair: chosen, with {wrong['id']} rejected (9 and 7 tokens)",
    ]
    other = dropped["teacher"]
    assert other not in {selected["teacher"], wrong["teacher"]}
    settings = recipe(
        tmp_path,
        stage.format("first")
        + stage.format("second").replace('"traces"', '"traces:pairs"')
        + "[stages.preference]\n"
        + stage.format("third").replace('"traces"', '"traces:unfiltered"')
        + stage.format("others")
        + f"[stages.teachers]\n{other} = 1.0\n",
    )
    (run / "recipe.toml").write_text(settings.to_toml(), encoding="utf-8")
    for name in ("second", "third", "others"):
        (run / "train" / name).mkdir()
        Manifest(stage="train", fingerprint="x", fields={}).write(run / "train" / name)
    told = {name: trace_facts(table, row["id"])["student"] for name, row in (("kept", selected), ("bad", wrong))}
    assert told["kept"][:-1] == [f"learned in stage {name}" for name in ("first", "second", "third")]
    assert told["bad"][:-1] == [f"learned in stage {name}" for name in ("second", "third")]
    (title, weights), replied = facts["lines"]
    seen, unseen = (float(word) for word in re.findall(r"\[([\d.]+)\]", weights))
    assert title == "Weights of its tokens by the image, first" and seen > 1 > unseen
    assert replied == ["Replies of the student, second", "not scored: <b>two</b> dots"]
