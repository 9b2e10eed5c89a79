"""The benchmark recipes against files of exactly the hub's schema, read and judged without network."""

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from distill.answers import reference_metrics
from distill.answers.verdicts import judge
from distill.data import reader
from distill.data.gold_answers import RowError, golds, votes
from distill.recipe import loading
from distill.recipe.recipe import Recipe
from distill.types import BadRow, Sample

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
TEXTS = pa.list_(pa.string())
SCHEMAS = {
    "chartqa": pa.schema(
        [("image", IMAGE), ("query", pa.string()), ("label", TEXTS), ("human_or_machine", pa.int64())]
    ),
    "a-okvqa": pa.schema(
        [
            ("image", IMAGE),
            ("question_id", pa.string()),
            ("question", pa.string()),
            ("choices", TEXTS),
            ("correct_choice_idx", pa.int8()),
            ("direct_answers", pa.string()),
            ("difficult_direct_answer", pa.bool_()),
            ("rationales", TEXTS),
        ]
    ),
    "textvqa": pa.schema(
        [
            ("image_id", pa.string()),
            ("question_id", pa.int32()),
            ("question", pa.string()),
            ("question_tokens", TEXTS),
            ("image", IMAGE),
            ("image_width", pa.int32()),
            ("image_height", pa.int32()),
            ("flickr_original_url", pa.string()),
            ("flickr_300k_url", pa.string()),
            ("answers", TEXTS),
            ("image_classes", TEXTS),
            ("set_name", pa.string()),
            ("ocr_tokens", TEXTS),
        ]
    ),
    "docvqa": pa.schema(
        [
            ("questionId", pa.string()),
            ("question", pa.string()),
            ("question_types", TEXTS),
            ("image", IMAGE),
            ("docId", pa.int64()),
            ("ucsf_document_id", pa.string()),
            ("ucsf_document_page_no", pa.string()),
            ("answers", TEXTS),
            ("data_split", pa.string()),
        ]
    ),
    "scienceqa": pa.schema(
        [
            ("image", IMAGE),
            ("question", pa.string()),
            ("choices", TEXTS),
            ("answer", pa.int8()),
            *((name, pa.string()) for name in ("hint", "task", "grade", "subject", "topic", "category", "skill")),
            ("lecture", pa.string()),
            ("solution", pa.string()),
        ]
    ),
}
"""Features as the cards of the data sets state them; what a row below leaves out is null."""
TEN = ["nous les gosses", "dakota", "clos culombu", "dakota digital", *["dakota"] * 6]
DIRECT = "['ride', 'ride', 'bus', 'taxi', 'travelling', 'traffic', 'taxi', 'cab', 'cab', 'cab']"


def make_image(number: int = 0) -> dict[str, Any]:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (number, 0, 0)).save(buffer, "PNG")
    return {"bytes": buffer.getvalue(), "path": None}


def read(tmp_path: Path, name: str, source: str, kind: str, *rows: dict[str, Any]) -> list[Sample]:
    """The samples that a recipe's source makes of rows in a data set's schema."""
    file = tmp_path / "rows.parquet"
    schema = SCHEMAS[kind]
    full = [{field: row.get(field) for field in schema.names} for row in rows]
    pq.write_table(pa.Table.from_pylist(full, schema=schema), file)
    bad: list[BadRow] = []
    here = loading.load(name, {f"data.{source}.source": str(file), f"data.{source}.split": "train"})
    found = list(reader.samples(here, source, on_bad=bad.append))
    assert not bad, bad
    return found


@pytest.mark.parametrize("source", ["questions", "test", "val"])
def test_chartqa_tells_peoples_questions_from_machines(source: str, tmp_path: Path) -> None:
    human, machine = read(
        tmp_path,
        "chartqa",
        source,
        "chartqa",
        {"image": make_image(1), "query": "What is the sum?", "label": ["14.5"], "human_or_machine": 0},
        {"image": make_image(2), "query": "Which year?", "label": ["2019"], "human_or_machine": 1},
    )
    assert (human.question, human.answers, human.domain, len(human.images)) == (
        "What is the sum?",
        ("14.5",),
        "charts",
        1,
    )
    assert [sample.meta["difficulty"] for sample in (human, machine)] == ["0", "1"]
    tolerance = loading.load("chartqa").filter.answer.relative_tolerance
    assert judge("about 15.1", human.answers, human.answer_type, relative_tolerance=tolerance).verdict == "correct"
    assert judge("16", human.answers, human.answer_type, relative_tolerance=tolerance).verdict == "wrong"


@pytest.mark.parametrize("source", ["choices", "test_choices"])
def test_a_okvqa_offers_letters_and_keeps_how_people_explain_them(source: str, tmp_path: Path) -> None:
    (sample,) = read(
        tmp_path,
        "coco-qa",
        source,
        "a-okvqa",
        {
            "image": make_image(),
            "question": "What is he awaiting?",
            "choices": ["skateboarder", "train", "delivery", "cab"],
            "correct_choice_idx": 3,
            "direct_answers": DIRECT,
            "rationales": ["A train would not be on the street."],
        },
    )
    assert sample.question == "What is he awaiting?\nA. skateboarder\nB. train\nC. delivery\nD. cab"
    assert (sample.answers, sample.answer_type, sample.domain) == (("D",), "choice", "a-okvqa")
    assert sample.options == ("skateboarder", "train", "delivery", "cab")
    assert sample.meta["rationales"] == ["A train would not be on the street."]
    for said, verdict in (("(D)", "correct"), ("a cab", "correct"), ("B. train", "wrong")):
        assert judge(said, sample.answers, "choice", options=sample.options).verdict == verdict


def test_open_questions_of_a_okvqa_are_judged_by_what_ten_people_said(tmp_path: Path) -> None:
    (sample,) = read(
        tmp_path,
        "coco-qa",
        "test_open",
        "a-okvqa",
        {"image": make_image(), "question": "What is he awaiting?", "choices": ["a"], "direct_answers": DIRECT},
    )
    assert sample.question == "What is he awaiting?"
    assert sample.answers == ("cab", "ride", "taxi", "bus", "travelling", "traffic")
    assert len(sample.meta["votes"]) == 10
    # Of ten, three said cab: leaving one of them out two are left, seven times all three are.
    assert reference_metrics.vqa_accuracy("a cab", sample.meta["votes"]) == pytest.approx((3 * 2 / 3 + 7 * 1) / 10)
    assert reference_metrics.vqa_accuracy("Ride.", sample.meta["votes"]) == pytest.approx(
        (2 * 1 / 3 + 8 * 2 / 3) / 10
    )


def test_coco_qa_comes_from_the_files_its_authors_publish(tmp_path: Path) -> None:
    folder = tmp_path / "cocoqa" / "test"
    folder.mkdir(parents=True)
    lines = {
        "questions": ("what is there", "how many cats"),
        "answers": ("plane", "two"),
        "types": (0, 1),
        "img_ids": (7, 12),
    }
    for file, values in lines.items():
        (folder / f"{file}.txt").write_text("".join(f"{value}\n" for value in values))
    images = tmp_path / "coco" / "val2014"
    images.mkdir(parents=True)
    for number in (7, 12):
        (images / f"COCO_val2014_{number:012d}.jpg").write_bytes(make_image(number)["bytes"])
    overrides = {"data.test.source": str(folder.parent), "data.test.images_root": str(tmp_path / "coco")}
    plane, cats = reader.samples(loading.load("coco-qa", overrides), "test")
    assert (plane.question, plane.answers, plane.domain) == ("what is there", ("plane",), "coco-qa")
    assert plane.images[0].path.endswith("COCO_val2014_000000000007.jpg")
    assert judge("2", cats.answers, cats.answer_type).verdict == "correct"


@pytest.mark.parametrize("source", ["instruct", "test"])
def test_textvqa_takes_the_most_frequent_of_ten_answers_and_keeps_them_all(source: str, tmp_path: Path) -> None:
    (sample,) = read(
        tmp_path,
        "textvqa-docvqa",
        source,
        "textvqa",
        {"question": "what is the brand of this camera?", "image": make_image(), "answers": TEN, "set_name": "val"},
    )
    assert (sample.answer, sample.domain, sample.meta) == ("dakota", "textvqa", {"votes": TEN})
    assert reference_metrics.vqa_accuracy(sample.answer, sample.meta["votes"]) == 1.0
    assert reference_metrics.vqa_accuracy("nous les gosses", sample.meta["votes"]) == pytest.approx(0.3)


def test_docvqa_accepts_every_spelling_and_measures_how_near_an_answer_comes(tmp_path: Path) -> None:
    (sample,) = read(
        tmp_path,
        "textvqa-docvqa",
        "test_documents",
        "docvqa",
        {"question": "Who signed?", "image": make_image(), "answers": ["T.F. Riehl", "TF Riehl"], "docId": 14465},
    )
    assert (sample.answers, sample.domain, sample.meta) == (("T.F. Riehl", "TF Riehl"), "docvqa", {})
    assert judge("TF Riehl", sample.answers, sample.answer_type).verdict == "correct"
    # One letter of eight is wrong; more than half of them gives nothing.
    assert reference_metrics.anls("TF Riehk", sample.answers) == pytest.approx(7 / 8)
    assert reference_metrics.anls("somebody else", sample.answers) == 0.0


@pytest.mark.parametrize("source", ["questions", "test", "val"])
def test_scienceqa_goes_by_subject_and_grade_with_and_without_a_image(source: str, tmp_path: Path) -> None:
    row = {
        "question": "Which is farthest north?",
        "choices": ["West Virginia", "Louisiana"],
        "answer": 0,
        "hint": "",
        "grade": "grade2",
        "subject": "social science",
        "lecture": "Maps have four cardinal directions.",
        "solution": "West Virginia is farthest north.",
    }
    seen, hinted = read(
        tmp_path,
        "scienceqa",
        source,
        "scienceqa",
        {**row, "image": make_image()},
        {**row, "hint": "Mind the Arctic.", "subject": "natural science", "answer": 1},
    )
    assert seen.question == "Which is farthest north?\nA. West Virginia\nB. Louisiana"
    assert (seen.answers, seen.answer_type, seen.domain, len(seen.images)) == (("A",), "choice", "social science", 1)
    assert (seen.meta["difficulty"], seen.meta["solution"]) == ("grade2", "West Virginia is farthest north.")
    assert hinted.question == f"Mind the Arctic.\n\n{seen.question}"
    assert (hinted.answers, hinted.images, hinted.domain) == (("B",), (), "natural science")
    assert "cardinal" not in seen.question + hinted.question and "farthest north." not in seen.question


def trained(found: Recipe) -> set[str]:
    """The sources that a recipe asks its teachers about or trains on."""
    names = {"questions"} & set(found.data)
    for stage in found.stages:
        names |= ({stage.data} | set(stage.replay)) & set(found.data)
    return names


@pytest.mark.parametrize("name", ["chartqa", "coco-qa", "textvqa-docvqa", "scienceqa"])
def test_what_a_recipe_evaluates_on_is_never_trained_on_and_kept_out_of_the_traces(name: str) -> None:
    found = loading.load(name)
    held_out = set(found.data) - trained(found)
    assert found.eval.data in held_out
    assert set(found.filter.contamination.sources) <= held_out

    def part(source: str) -> tuple[str, str | None, str]:
        return (found.data[source].source, found.data[source].subset, found.data[source].split)

    assert not {part(source) for source in held_out} & {part(source) for source in trained(found)}
    # Sources of the same rows under other columns are compared once.
    assert {part(source) for source in held_out} == {part(source) for source in found.filter.contamination.sources}


def test_the_most_frequent_answer_is_canonical_and_ties_keep_their_order() -> None:
    assert golds(["b", "a", "c", "a", "c"]) == ("a", "c", "b")
    assert golds(["b", "a"]) == ("b", "a")
    assert golds([{"answer": "yes"}, {"answer": "no"}, {"answer": "no"}]) == ("no", "yes")


def test_a_list_that_was_written_as_text_is_read_and_other_brackets_stay_text() -> None:
    assert golds(DIRECT)[0] == "cab"
    assert golds('["two", "2"]') == ("two", "2")
    assert golds("[1, 2]") == ("[1, 2]",)
    assert golds("['a', 2]") == ("['a', 2]",)
    assert golds("['a' + 'b']") == ("['a' + 'b']",)
    with pytest.raises(RowError):
        golds([["nested"]])


def test_votes_are_kept_where_ten_people_were_asked() -> None:
    assert votes(TEN) == {"votes": TEN}
    assert votes(TEN[:9]) == {}
    assert votes(None) == votes("14") == {}


@pytest.mark.parametrize(
    ("answer", "written"),
    [
        # As MMF's EvalAI processor (of lmms-eval 0.7.3) writes them.
        ("The Dakota's", "dakota 's"),
        ("T-shirt", "t shirt"),
        ("t - shirt", "t shirt"),
        ("U.S.A.", "usa"),
        ("$4.99", "$4.99"),
        ("two dogs", "2 dogs"),
        ("dont know", "don't know"),
        ("1,000", "1000"),
        ("yes?", "yes"),
        ("a/b", "b"),
        ("10:30 am.", "10:30 am"),
        ("None", "0"),
        ("somebody'd", "somebodyd"),
        ("y'all'dve", "y'all'd've"),
    ],
)
def test_answers_are_written_as_the_leaderboard_of_textvqa_writes_them(answer: str, written: str) -> None:
    assert reference_metrics.normalise(answer) == written
    assert reference_metrics.vqa_accuracy(answer, [written] * 4) == 1.0


def test_without_votes_the_vqa_accuracy_is_zero() -> None:
    assert reference_metrics.vqa_accuracy("dakota", []) == 0.0
