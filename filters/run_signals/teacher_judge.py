"""A teacher as judge: it decides whether two answers mean the same where the typed judge cannot.

It is asked only about `undecided` verdicts, once for each question and answer, independent of the teacher that gave
the answer. Replies are journaled verbatim, so no request is sent twice and every verdict can be checked. The caller
passes the function that sends a request.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from distill.artifacts.damaged_lines import recovered
from distill.artifacts.files import storage_errors
from distill.artifacts.journal import Journal
from distill.artifacts.json_lines import requiring
from distill.artifacts.manifest import fingerprint
from distill.types import Sample, Trace
from filters.signals.base import ERROR, OK, UNDECIDABLE
from filters.signals.families.answer import judge_trace
from filters.signals.schema import JUDGE
from filters.tables import run_signal_tables
from filters.tables.run_signal_tables import Done, Item

VERSION = "1"
JOURNAL = "replies.jsonl"
ROUND = 256
"""Questions handed over at once; each round's replies are on disk before the next."""
_PART_ROWS = 50_000
_REASON_CHARACTERS = 200
NO_REPLY = "no reply"

_PLACEHOLDER = re.compile("{(question|gold|prediction)}")
_FIRST = re.compile(r"\W*(yes|no)(?=\s*(?:[.,;:!?()*\"'\n\u2014\u2013-]|$))", re.IGNORECASE)
_LAST = re.compile(r"(?:^|[:\n*]|\banswer is|\bverdict is)\s*[*\"'(]*(yes|no)\W*$", re.IGNORECASE)
_WORDS = re.compile(r"\b(?:yes|no)\b", re.IGNORECASE)

Ask = Callable[[list[str]], list[str]]
"""Questions to replies, in their order; an empty reply says that there is none, and it is asked again next time."""


def measure(
    items: Iterable[Item],
    folder: Path,
    ask: Ask,
    *,
    prompt: str,
    identity: Mapping[str, Any],
    relative_tolerance: float = 0.0,
    on_done: Done = lambda rows, reused: None,
) -> list[Path]:
    """Write the teacher's verdicts on all undecided traces to `folder`; returns its files in order.

    Other traces have no row. `identity` says what replies depend on besides the question. `on_done` is called with
    the number of finished rows and whether their reply was reused.
    """
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    own_identity = fingerprint({**identity, "columns": JUDGE.names, "version": VERSION, "prompt": prompt})
    key_of_trace: dict[str, bytes] = {}
    questions: dict[bytes, str] = {}
    for name, sample, trace in items:
        if is_undecided(sample, trace, relative_tolerance):
            text = question(prompt, sample, trace)
            key = hashlib.blake2b(text.encode(), digest_size=16).digest()
            key_of_trace[name] = key
            questions[key] = text
    replies = _replies(questions, folder / JOURNAL, own_identity, ask, key_of_trace, on_done)
    paths: list[Path] = []
    names = sorted(key_of_trace)
    for start in range(0, len(names), _PART_ROWS):
        rows = [
            {"id": name, **_row(replies.get(key_of_trace[name], ""))} for name in names[start : start + _PART_ROWS]
        ]
        path = run_signal_tables.part(folder, len(paths))
        paths.append(path)
        stamp = {
            run_signal_tables.FINGERPRINT: fingerprint(
                {"identity": own_identity, "rows": fingerprint({"rows": rows})}
            )
        }
        if run_signal_tables.metadata(path) != stamp:
            run_signal_tables.write(path, rows, JUDGE, stamp)
    with storage_errors(folder):
        for stale in set(folder.glob("*.parquet")) - set(paths):
            stale.unlink()
    return paths


def is_undecided(sample: Sample, trace: Trace, relative_tolerance: float) -> bool:
    """Whether the typed judge leaves the trace's answer open: with a gold answer and an answer, and no verdict."""
    if not trace.answer.strip():
        return False
    judgement = judge_trace(sample, trace, relative_tolerance)
    return judgement is not None and judgement.verdict == "undecided"


def question(prompt: str, sample: Sample, trace: Trace) -> str:
    """The question to the teacher. Values are inserted unchanged, braces included."""
    values = {"question": sample.question, "gold": " or ".join(sample.answers), "prediction": trace.answer.strip()}
    return _PLACEHOLDER.sub(lambda match: values[match[1]], prompt)


def verdict(reply: str) -> str:
    """correct for a clear yes, wrong for a clear no, else undecided.

    A clear reply begins or ends with one of the words, separated from the rest, and does not hold the other word.
    """
    text = reply.strip()
    match = _FIRST.match(text) or _LAST.search(text)
    if match is None or len({word.lower() for word in _WORDS.findall(text)}) > 1:
        return "undecided"
    return "correct" if match[1].lower() == "yes" else "wrong"


def _row(reply: str) -> dict[str, str]:
    if not reply.strip():
        return {"judge_state": ERROR, "judge_verdict": "undecided", "judge_reason": NO_REPLY}
    judgement = verdict(reply)
    reply_text = " ".join(reply.split())
    return {
        "judge_state": UNDECIDABLE if judgement == "undecided" else OK,
        "judge_verdict": judgement,
        "judge_reason": reply_text
        if len(reply_text) <= _REASON_CHARACTERS
        else f"{reply_text[: _REASON_CHARACTERS - 3]}...",
    }


def _replies(
    questions: Mapping[bytes, str],
    path: Path,
    own_identity: str,
    ask: Ask,
    key_of_trace: Mapping[str, bytes],
    on_done: Done,
) -> dict[bytes, str]:
    """The reply to each question, from the journal or from the teacher."""
    traces_of_question: dict[bytes, int] = dict.fromkeys(questions, 0)
    for key in key_of_trace.values():
        traces_of_question[key] += 1
    replies: dict[bytes, str] = {}
    for record in recovered(path, requiring("question", "identity", "reply")):
        key = bytes.fromhex(record["question"])
        if record["identity"] == own_identity and key in questions:
            replies[key] = record["reply"]
    with Journal(path) as journal:
        if known_traces := sum(traces_of_question[key] for key in replies):
            on_done(known_traces, True)
        # In the order of their digests, so that the order of the traces does not change the rounds.
        missing = sorted(questions.keys() - replies.keys())
        for start in range(0, len(missing), ROUND):
            keys = missing[start : start + ROUND]
            new_replies = ask([questions[key] for key in keys])
            for key, reply in zip(keys, new_replies, strict=True):
                if reply.strip():
                    replies[key] = reply
                    journal.append(
                        {"identity": own_identity, "question": key.hex(), "text": questions[key], "reply": reply}
                    )
            journal.flush()
            on_done(sum(traces_of_question[key] for key in keys), False)
    return replies
