"""Columns of the signal table that no family measures on one trace: facts of a trace, and side tables of the run."""

from collections.abc import Mapping
from typing import Literal

import pyarrow as pa

from filters.signals.base import family

_FACTS: list[tuple[str, pa.DataType]] = [
    ("id", pa.string()),
    ("sample_id", pa.string()),
    ("teacher", pa.string()),
    ("k", pa.int64()),
    ("domain", pa.string()),
    ("outcome", pa.string()),
    ("finish_reason", pa.string()),
    ("hinted", pa.bool_()),
]
FACTS = pa.schema(_FACTS)
"""What the signal table says of a trace before anything is measured."""
WEIGHT, DATASET_FILE, DATASET_PLACE = "row_weight", "dataset_file", "dataset_place"
"""What stands beside the signals of a row while the dataset is written."""
OWN_COLUMNS = (*FACTS.names, "signal_errors", WEIGHT, DATASET_FILE, DATASET_PLACE)
"""Columns that no family may have."""

CORPUS = family(
    "corpus",
    corpus_duplicate=("flag", "another trace of the run is as good as the same and is preferred"),
    corpus_duplicate_of=("text", "id of the preferred trace"),
    corpus_jaccard=("number", "Jaccard similarity of the word shingles of both"),
    corpus_cluster_size=("count", "traces in its group of near duplicates, itself included"),
    corpus_other_values=("flag", "another trace of the run has the same words but for other numbers or names"),
    corpus_template_size=("count", "traces with the same words but for numbers and names, itself included"),
)
QUESTION = family(
    "question",
    question_duplicate_of=("text", "id of the sample that asks the same of the same images and is kept before it"),
    question_cluster_size=("count", "samples that ask the same of the same images, itself included"),
    question_picture_cluster=(
        "text",
        "smallest id of the samples whose images are the same; none without images",
    ),
    question_picture_questions=("count", "samples whose images are the same, itself included"),
    question_pictures=("count", "images of the question"),
)
STUDENT = family(
    "student",
    student_nll=("number", "surprisal of the response given image and question, nats a token of the untuned student"),
    student_rank_surprisal=(
        "number",
        "sum of its tokens' ranks, at most 100 each, over the sum of their surprisals (arXiv 2601.14249): low fits",
    ),
    student_ifd=("number", "surprisal given image and question over that without either: high is hard to follow"),
    student_blind_gap=("number", "by how many nats per token the image lowers the surprisal; NULL without an image"),
    student_answer_nll=("number", "surprisal of the answer given image, question and rationale, nats a token"),
    student_tokens=("count", "length of the response in the student's tokens, the end of the turn included"),
    student_reason=("text", "why there is no value"),
)
JUDGE = family(
    "judge",
    judge_verdict=("text", "correct, wrong or undecided: a teacher's word on an answer_verdict that is undecided"),
    judge_reason=("text", "what the teacher said"),
)

HUMAN = family(
    "human",
    human_verdict=("text", "correct, wrong or unsure: the last label that a person gave the trace in `distill view`"),
    human_blind=("flag", "the person did not see the judge's verdict before"),
)

SIDE: Mapping[str, tuple[Literal["id", "sample_id"], pa.Schema]] = {
    "corpus": ("id", CORPUS),
    "question": ("sample_id", QUESTION),
    "student": ("id", STUDENT),
    "judge": ("id", JUDGE),
    "human": ("id", HUMAN),
}
"""What one partition alone, or this process, cannot measure: the key by which a table is joined, and its columns."""

MODELS = ("student", "judge")
"""Side tables that a model measures."""
