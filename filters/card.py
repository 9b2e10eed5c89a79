"""The dataset card: what `datasets` needs to open the folder, and what a person must know before using it."""

from collections import Counter

import orjson

from distill.recipe import Recipe
from filters.funnel import STEPS, Funnel
from filters.traces import Maker

LIMITS = (
    "Distillation does not correct the teachers: where a teacher sees or reasons wrongly and no rule notices, the "
    "student learns the mistake. Verdicts need gold answers; a right answer may stand on a wrong rationale.",
    "The data inherits the biases of its teachers, of their prompts and of the questions.",
    "It creates no new perception: what the student's vision tower cannot resolve, a rationale cannot teach.",
)


def card(recipe: Recipe, found: Funnel, makers: Counter[Maker], rows: int) -> str:
    """README.md of the dataset: YAML header, contents, lineage, funnel, limits."""
    header = f"""---
license: other
license_name: unknown
pretty_name: {orjson.dumps(recipe.name).decode()}
task_categories:
- visual-question-answering
- image-text-to-text
tags:
- distillation
- chain-of-thought
configs:
- config_name: default
  data_files:
  - split: train
    path: train/*.parquet
---
"""
    teachers = _table(
        ("teacher", "model", "revision", "engine", "shown the answer", "traces"),
        [
            (maker.teacher, maker.model, maker.revision, maker.engine, "yes" if maker.hinted else "no", f"{count:,}")
            for maker, count in sorted(
                makers.items(), key=lambda item: (item[0].teacher, item[0].model, item[0].revision)
            )
        ],
    )
    rules = _table(
        ("rule", "drops a trace when", "traces", "by this rule alone"),
        [
            (rule.name, f"`{rule.drop}`", f"{found.rules.get(rule.name, 0):,}", f"{found.only.get(rule.name, 0):,}")
            for rule in recipe.filter.rules
        ],
    )
    select = recipe.filter.select
    chosen = [
        f"at most {limit:,} {what}"
        for limit, what in (
            (select.per_question, "a question"),
            (select.per_teacher, "of one teacher for a question"),
        )
        if limit is not None
    ]
    return f"""{header}
# {recipe.name}: reasoning traces for a small vision-language model

{rows:,} examples about {found.questions["selected"]:,} questions: image, question, rationale and answer, written by
the teachers below, measured and selected by rules. Made by `distill` from the recipe `{recipe.path.name}`.

```python
from datasets import load_dataset

train = load_dataset("path/to/this/folder", split="train")
```

Columns: `images` (decoded on access), `messages` (user: the question; assistant: {_style(recipe)}), `sample_id`,
`trace_id`, `teacher`, `domain`, `rationale`, `answer` (the gold answer where the trace's is correct, else the
trace's), `weight`, `signals` (JSON: everything that was measured).

## Lineage

{teachers}

## Funnel

{_funnel("domain", found, by_domain=True)}

{_funnel("teacher", found, by_domain=False)}

{rules}

A trace may break several rules. Of what was kept, {" and ".join(chosen) if chosen else "everything"} was selected
({found.total["selected"]:,} of {found.total["kept"]:,} traces).

## Licence

Other or unknown: set it. The licences of the images, of the questions and of the teachers' output all apply.

## Limits

{chr(10).join(f"- {limit}" for limit in LIMITS)}
"""


def _style(recipe: Recipe) -> str:
    return (
        "`<think>` rationale `</think>` answer"
        if recipe.filter.rationale == "think"
        else "the rationale, a blank line, the answer"
    )


def _funnel(head: str, found: Funnel, *, by_domain: bool) -> str:
    groups = found.by_domain if by_domain else found.by_teacher
    rows = [(name or "(none)", *(f"{counts[step]:,}" for step in STEPS)) for name, counts in groups.items()]
    rows.append(("**all**", *(f"{found.total[step]:,}" for step in STEPS)))
    return _table((head, *STEPS), rows)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
