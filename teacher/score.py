"""A teacher scores given texts: the likelihood of each token, with the image, without it, or both.

Every score is appended to a journal at once. So a killed run loses only the requests in flight, and the same command
asks for the missing scores. Does not choose texts (distill/wiring/scored_traces.py) or use scores.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from distill.artifacts.damaged_lines import recovered
from distill.artifacts.files import storage_errors
from distill.artifacts.journal import Journal
from distill.artifacts.manifest import fingerprint
from distill.machine import event_loop
from distill.recipe.recipe import Recipe
from distill.recipe.sections.teachers import Teacher
from distill.trace_records import scores
from distill.types import Progress, ProgressCallback, Sample
from teacher.engines.connect import connect, engine_settings, getter
from teacher.messages.completion import Completion
from teacher.messages.prompts import prompt, prompt_key
from teacher.messages.request import Request, model_of, precision_key, single_request

VERSION = "1"
"""Raised whenever the same text could get another score."""
EMPTY, NO_IMAGE = "empty_text", "no_picture"
"""Why a text is not scored: there is nothing to compare."""
_VIEWS = (scores.WITH_IMAGE, scores.BLIND)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenText:
    """The text of a trace, and the sample that it answers."""

    trace: str
    sample: Sample
    text: str


def journal_name(recipe: Recipe, teacher: Teacher, *, top_k: int) -> str:
    """The journal of a teacher's scores: its name, and a digest of what changes them besides question and text."""
    identity = {
        "model": model_of(recipe, teacher).key,
        "system": teacher.system,
        "prompt": prompt_key(teacher),
        "chat_template_kwargs": dict(teacher.chat_template_kwargs),
        "mm_processor_kwargs": dict(teacher.mm_processor_kwargs),
        "extra_body": teacher.model_dump(mode="json")["extra_body"],
        "max_pixels": recipe.max_pixels,
        "top_k": top_k,
        "version": VERSION,
        **precision_key(teacher),
    }
    return f"{teacher.name}-{fingerprint(identity)[:16]}.jsonl"


def score_texts(
    recipe: Recipe,
    teacher: Teacher,
    texts: Iterable[GivenText],
    folder: Path,
    *,
    top_k: int,
    views: Sequence[str] = _VIEWS,
    on_done: Callable[[bool], None] = lambda reused: None,
) -> Counter[str]:
    """Score each text in these views (with its image, without), unless its journal in `folder` has the scores.

    Gives the numbers of texts and views that have none, by reason. `on_done` is called for each text and view, with
    whether its score was there. Raises what `generate` raises for teachers that are not there or fail.
    """
    path = folder / journal_name(recipe, teacher, top_k=top_k)
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    known = {record["key"] for record in recovered(path, scores.check_score)}
    failed: Counter[str] = Counter()
    teacher = teacher.direct.model_copy(update={"logprobs": top_k})
    missing = _missing(teacher, texts, views, known, failed, on_done)
    first = next(missing, None)
    if first is not None:
        with Journal(path) as journal:
            noted = time.perf_counter()

            def done(request: Request, completion: Completion) -> None:
                nonlocal noted
                seconds, noted = time.perf_counter() - noted, time.perf_counter()
                if completion.error:
                    failed[completion.error.partition(":")[0]] += 1
                else:
                    journal.append(_record(request, completion, seconds))
                on_done(False)

            event_loop.run(_ask(recipe, teacher, folder, chain([first], missing), done))
    return failed


def reporting(on_progress: ProgressCallback, teacher: str, total: int, unit: str) -> Callable[[bool], None]:
    """What to give `score_texts` as `on_done`, so that the progress of a teacher is reported in these units."""
    done = reused = 0

    def report(was_there: bool) -> None:
        nonlocal done, reused
        done, reused = done + 1, reused + was_there
        facts = {"scored before": reused} if reused else {}
        on_progress(Progress(stage=f"score {teacher}", done=done, total=total, unit=unit, facts=facts))

    return report


def _missing(
    teacher: Teacher,
    texts: Iterable[GivenText],
    views: Sequence[str],
    known: set[str],
    failed: Counter[str],
    on_done: Callable[[bool], None],
) -> Iterator[Request]:
    """A request for each text and view that has no score yet."""
    for each in texts:
        # Templates and servers take white space away at the ends of a turn.
        given = each.text.strip()
        if not given or (scores.BLIND in views and not each.sample.images):
            failed[NO_IMAGE if given else EMPTY] += len(views)
            for _ in views:
                on_done(True)
            continue
        for view in views:
            asked = prompt(teacher, each.sample)
            if view == scores.BLIND:
                asked = replace(asked, images=())
            request = single_request(teacher, each.sample, asked, given=given)
            key = hashlib.sha256(f"{each.trace}\0{request.prompt_sha}\0{given}".encode()).hexdigest()[:32]
            if key in known:
                on_done(True)
                continue
            known.add(key)
            request.id = f"{each.trace}\0{view}\0{key}"
            yield request


def _record(request: Request, completion: Completion, seconds: float) -> dict[str, Any]:
    ids, values, ends = completion.token_ids, completion.token_logprobs, completion.token_ends
    assert request.given is not None and ids is not None and values is not None and ends is not None
    trace, view, key = request.id.split("\0")
    scored = scores.ScoredText(text=request.given, ids=ids, values=values, ends=ends)
    return scores.record_of(key, trace, view, scored, seconds)


async def _ask(
    recipe: Recipe,
    teacher: Teacher,
    folder: Path,
    requests: Iterator[Request],
    done: Callable[[Request, Completion], None],
) -> None:
    # Images may come from any source of the recipe.
    settings = engine_settings(
        recipe, teacher, model_of(recipe, teacher), folder / "logs", max_pixels=recipe.max_pixels
    )
    async with connect(settings) as engine:
        await engine.answer(getter(requests), done)
