"""Planted faults of sources, their files and images (tests/support/faults/planted_faults.py)."""

from faults.fault_plants import (
    PlantedFault,
    add_source,
    add_stage,
    both,
    copy_images,
    damage_images,
    edit,
    put,
    remove,
    write,
)

WITH_IMAGE = {"image": "0.png", "question": "What is there?"}
LINES = [{"image": "", "question": f"{number} + 1?", "answer": str(number + 1)} for number in range(8)]

ROUNDS: dict[str, tuple[PlantedFault, ...]] = {
    "sources missing, without columns, empty": (
        PlantedFault(remove("captions.jsonl"), "data.captions", r"captions\.jsonl does not exist"),
        PlantedFault(
            edit("test", lambda _, row: {"image": row["image"], "query": row["question"], "label": row["answer"]}),
            "data.test",
            "no column 'question'.*answer.*image.*|no column 'question'.*label",
        ),
        PlantedFault(write("questions.jsonl", b""), "data.questions", "holds no rows"),
        PlantedFault(put("filter", "contamination", "sources", ["tset"]), "filter.contamination", "tset"),
    ),
    "no answers, copied test pictures": (
        PlantedFault(
            edit("captions", lambda _, row: {**row, "answer": ""}),
            "data.captions.columns.answer",
            "no row has an answer; needed by stages.align.data",
        ),
        PlantedFault(copy_images, "data.questions", "show a test image"),
        PlantedFault(
            edit("test", lambda number, row: {**row, "answer": "" if number < 5 else row["answer"]}),
            "data.test.columns.answer",
            "5 of 12 rows have no answer, such as 'Picture 52",
            "warning",
        ),
        PlantedFault(
            both(
                edit("questions", lambda n, row: {**row, "domain": "maths" if n < 9 else row["domain"]}),
                put("teachers", 0, "domains", ["scenes", "charts"]),
            ),
            "teachers.domains",
            "9 questions are for no teacher.*'maths': 9",
            "warning",
        ),
    ),
    "pictures": (
        PlantedFault(damage_images, "data.questions", "3 of 40 rows cannot be used.*DOCTYPE", "warning"),
        PlantedFault(put("data", "captions", "images_root", "imagse"), "data.captions", "did you mean 'images'"),
        PlantedFault(
            edit("test", lambda number, row: {**row, "image": f"gone/{number}.png"} if number < 4 else row),
            "data.test",
            r"missing_image: 4.*max_bad_share|max_bad_share.*missing_image: 4",
        ),
        PlantedFault(put("teachers", 0, "domains", ["scene"]), "teachers.structured", "did you mean 'scenes'"),
    ),
    "broken files": (
        PlantedFault(write("captions.jsonl", b"{not json\n" * 5), "data.captions", "malformed_row"),
        PlantedFault(
            both(write("test.parquet", b"PAR1 cut"), put("data", "test", "source", "test.parquet")),
            "data.test",
            "test.parquet: cannot be read",
        ),
        PlantedFault(put("data", "questions", "source", "questionz"), "data.questions", "did you mean 'questions"),
    ),
    "names of sources": (
        PlantedFault(
            put("data", "captions", "source", "nobody/Captions"),
            "data.captions.source",
            "no network",
            "not checked",
        ),
        PlantedFault(
            both(
                add_source("more", LINES),
                put("data", "more", "source", "nobody/more"),
                put("data", "more", "split", "train[:9]"),
                put("stages", 1, "replay", {"more": 0.1}),
            ),
            "data.more",
            "slices are not read; use limit",
        ),
        PlantedFault(put("eval", "data", "tests"), "data.tests", "no such source.*did you mean 'test'"),
    ),
    "a format of its own": (
        PlantedFault(put("data", "test", "source", "test.xlsx"), "data.test", "there is no .*test.xlsx"),
        PlantedFault(put("data", "questions", "format", "llava"), "data.questions", "no column 'conversations'"),
    ),
    "rows of stages": (
        PlantedFault(put("stages", 0, "validation", {"hold_out": 12}), "stages.align.validation.hold_out", "12 rows"),
        PlantedFault(
            both(
                add_source("plain", LINES, columns={"image": ""}),
                add_stage(name="blind", data="plain", train=["projector"]),
            ),
            "stages.blind.train",
            "no row of 'plain' has an image",
        ),
        PlantedFault(
            both(add_source("silent", [WITH_IMAGE]), put("stages", 1, "replay", {"silent": 0.1})),
            "data.silent.columns.answer",
            "needed by stages.instruct.replay",
        ),
        PlantedFault(
            both(
                add_source("unasked", [WITH_IMAGE]),
                put("stages", 2, "validation", {"data": "unasked", "every_steps": 1}),
            ),
            "data.unasked.columns.answer",
            r"needed by stages\.reason\.validation\.data",
        ),
        PlantedFault(
            add_stage(name="mute", data="captions", loss={"answer": 0.0, "format": 0.0}),
            "stages.mute.loss",
            "nothing would be learned",
        ),
    ),
}
