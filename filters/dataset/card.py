"""The dataset card: what `datasets` needs to open the folder, and what a person must know before using it.

Every number comes from the funnel, the signal table or the decisions (filters/dataset/card_facts.py); what was not
measured is said to be not measured. Licences are what the recipe says they are.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import astuple
from pathlib import Path, PurePath

import duckdb
import orjson

from distill.artifacts import manifest
from distill.artifacts.manifest import Manifest
from distill.rationale import CLOSE, OPEN
from distill.recipe.recipe import Recipe
from filters.dataset.card_facts import DUPLICATES, STATES, CardFacts, ComparedQuestions, facts
from filters.decisions.dataset_checks import DatasetCheck, Health
from filters.decisions.funnel import STEPS, Funnel
from filters.decisions.rules import UNREADABLE_IMAGE
from filters.tables.trace_index import Maker
from filters.text.minhash import Scheme

VERSION = "2"
"""Raised whenever the same dataset would get another card."""
ASKED = "questions"
"""The data source that teachers are asked about."""
NOT_SAID = "not said"
LIMITS = (
    "Distillation does not correct the teachers: where a teacher sees or reasons wrongly and no rule notices, the "
    "student learns the mistake. Verdicts look at the answer and need a gold one; a right answer may stand on a "
    "wrong rationale.",
    "It creates no new perception: what the student's vision tower cannot resolve, a rationale cannot teach.",
    "The data inherits the biases of its teachers, of their prompts and of the questions. Personal data and harmful "
    "content were looked for only where a rule above names them.",
    "All signals are automatic. The answer judge is held to at most 0.5 % false accepts and 2 % false rejects on "
    "the labelled pairs that it is tested with; on other answers it may err more often. The error rates of the "
    "signals on this very dataset are not known.",
)
_PICTURES = {
    "all": "",
    "matching": " Pictures were compared by their pixels where the words of the question match a test question, "
    "and by their bytes elsewhere.",
    "bytes": " Pictures were compared by their bytes only.",
}
_MATCHES = {
    "pair": "the question, word for word or lightly edited, with its picture",
    "image": "the picture, under another question",
    "text": "the question, about another picture",
}
_SIZES = (("n<1K", 10**3), ("1K<n<10K", 10**4), ("10K<n<100K", 10**5), ("100K<n<1M", 10**6), ("1M<n<10M", 10**7))


def card(
    recipe: Recipe,
    found: Funnel,
    database: duckdb.DuckDBPyConnection,
    makers: Counter[Maker],
    rows: int,
    generated: Manifest | None = None,
    health: Health | None = None,
    digest: str = "",
) -> str:
    """README.md of the dataset with `rows` examples, from a database with the tables `signals` and `decisions`.

    `digest` is one of the content of the dataset's files.
    """
    known = facts(database)
    sections = [
        f"{_header(recipe, rows, digest)}\n# {recipe.name}: reasoning traces for a small vision-language model",
        f"{rows:,} examples about {found.questions['selected']:,} questions: image, question, rationale and answer, "
        "written by the teachers below, measured and selected by rules.",
        _contents(recipe),
        "## Lineage",
        *_lineage(recipe, makers, generated),
        "## Funnel",
        *_selection(recipe, found, known),
        "## What was measured",
        *_measured(recipe, known),
        *(["## Checks of the dataset as a whole", *_checks(health)] if health is not None else []),
        "## Contamination",
        *_contamination(recipe, known.contamination),
        "## Licences",
        *_licences(recipe, makers),
        "## Limits",
        "\n".join(f"- {limit}" for limit in (*LIMITS, _hinted(known), _language(recipe, known))),
    ]
    return "\n\n".join(sections) + "\n"


def _header(recipe: Recipe, rows: int, digest: str) -> str:
    """The YAML front matter. JSON strings are YAML strings, whatever they hold.

    `datasets` keeps its copy of a folder under the folder's name and a hash of `configs`, not of the files, so the
    digest stands there: other content, other copy.
    """
    settings = recipe.filter.card
    lines = [f"license: {_quoted(settings.license)}"]
    if settings.license == "other":
        lines.append(f"license_name: {_quoted(settings.license_name or 'unknown')}")
        if settings.license_link:
            lines.append(f"license_link: {_quoted(settings.license_link)}")
    if settings.language:
        lines += ["language:", *(f"- {_quoted(code)}" for code in settings.language)]
    lines += [
        f"pretty_name: {_quoted(recipe.name)}",
        "annotations_creators:\n- machine-generated",
        f"size_categories:\n- {next((name for name, limit in _SIZES if rows < limit), 'n>10M')}",
        "task_categories:\n- visual-question-answering\n- image-text-to-text",
        "tags:\n- distillation\n- chain-of-thought",
        "configs:\n- config_name: default",
        f"  description: {_quoted(f'content {digest}')}",
        "  data_files:\n  - split: train\n    path: train/*.parquet",
    ]
    return "---\n" + "\n".join(lines) + "\n---\n"


def _contents(recipe: Recipe) -> str:
    style = (
        f"`{OPEN}` rationale `{CLOSE}` answer"
        if recipe.filter.rationale == "think"
        else "the rationale, a blank line, the answer"
    )
    also = ", ".join(recipe.filter.exports)
    exports = f"\n\nThe same examples for other trainers ({also}) are in `../exports`." if also else ""
    return f"""```python
from datasets import load_dataset

train = load_dataset("path/to/this/folder", split="train")
```

Columns: `images` (decoded on access), `messages` (user: the question; assistant: {style}), `sample_id`, `trace_id`,
`teacher`, `domain`, `rationale`, `answer` (the gold answer where the trace's is correct, else the trace's), `weight`,
`signals` (JSON: everything that was measured). TRL's `SFTTrainer` takes `images` and `messages` as they are; text is
never altered, so it may hold letters that a model takes for a picture's mark, such as `<image>`.{exports}"""


def _lineage(recipe: Recipe, makers: Counter[Maker], generated: Manifest | None) -> list[str]:
    student = recipe.student
    parts = (student.model, student.vision, student.language) if student else ()
    origin = [
        ("recipe", f"`{recipe.path.name}`, seed {recipe.seed}"),
        ("fingerprint of the traces", generated.fingerprint if generated else "not known"),
        ("student", ", ".join(_public(part, recipe) for part in parts if part) or "none is named"),
        ("made with", ", ".join(f"{name} {version}" for name, version in manifest.versions("math-verify").items())),
    ]
    listed = sorted(makers.items(), key=lambda item: astuple(item[0]))
    teachers = _table(
        ("teacher", "model", "revision", "engine", "shown the answer", "traces"),
        [
            (
                *(maker.teacher, _public(maker.model, recipe), maker.revision, maker.engine),
                *("yes" if maker.hinted else "no", f"{count:,}"),
            )
            for maker, count in listed
        ],
    )
    return [_table(("", ""), origin), teachers]


def _selection(recipe: Recipe, found: Funnel, known: CardFacts) -> list[str]:
    rules: list[tuple[str, ...]] = [
        (rule.name, f"`{rule.drop}`", f"{found.rules.get(rule.name, 0):,}", f"{found.only.get(rule.name, 0):,}")
        for rule in recipe.filter.rules
    ]
    if UNREADABLE_IMAGE in found.rules:
        counts = (f"{table.get(UNREADABLE_IMAGE, 0):,}" for table in (found.rules, found.only))
        rules.append((UNREADABLE_IMAGE, "an image can no longer be read", *counts))
    total = found.total
    return [
        f"{total['asked']:,} traces came in; {total['kept']:,} were kept, {found.dropped:,} dropped; of those kept, "
        f"{total['selected']:,} were selected: {_chosen(recipe)}.",
        _funnel("domain", found.by_domain, total),
        _funnel("teacher", found.by_teacher, total),
        _table(("rule", "drops a trace when", "traces", "by this rule alone"), rules),
        "A trace may break several rules.",
        f"Answers of the examples: {_listed(known.verdicts, {'': 'without a gold answer to compare with'})}.",
    ]


def _chosen(recipe: Recipe) -> str:
    select = recipe.filter.select
    limits = [
        f"at most {limit:,} {what}"
        for limit, what in (
            (select.per_question, "a question"),
            (select.per_teacher, "of one teacher for a question"),
            (select.limit, "in all"),
        )
        if limit is not None
    ]
    limits += [f"shares by `{mix.by}` ({_shares(mix.shares)})" for mix in select.mix]
    return ", ".join(limits) if limits else "all of them"


def _measured(recipe: Recipe, known: CardFacts) -> list[str]:
    states = _table(
        ("signals", *(state.replace("_", " ") for state in STATES)),
        [(name, *(f"{counts.get(state, 0):,}" for state in STATES)) for name, counts in known.states.items()],
    )
    parts = ["Traces by what came of measuring them. A signal that is not listed was not measured.", states]
    if known.duplicates:
        rows = [
            (name, DUPLICATES[name], f"{all_:,}", f"{chosen:,}") for name, (all_, chosen) in known.duplicates.items()
        ]
        parts.append(_table(("flag", "says that a trace has", "traces", "of them in the dataset"), rows))
    if "corpus" in known.states:
        scheme = Scheme(shingle=recipe.filter.corpus.shingle)
        values = ", ".join(f"{key} {value}" for key, value in scheme.as_fields().items())
        parts.append(
            f"Near duplicates of the whole run: {values}; a pair that shares a band is compared, and counts from a "
            f"Jaccard similarity of {recipe.filter.corpus.threshold}."
        )
    return parts


def _checks(health: Health) -> list[str]:
    def cells(check: DatasetCheck) -> tuple[str, ...]:
        if not check.checked:
            return check.about, "not known", "", ""
        interval = f"{100 * check.ci95[0]:.1f} to {100 * check.ci95[1]:.1f} %"
        return check.about, f"{100 * check.share:.1f} %", interval, f"{check.count:,} of {check.checked:,}"

    told = [*(f"- **Warning**: {text}." for text in health.warnings), *(f"- Note: {text}." for text in health.notes)]
    table = _table(("of the examples, those whose", "share", "95 % interval", "counts"), map(cells, health.checks))
    return [table, "\n".join(told) if told else "No check gave a warning."]


def _contamination(recipe: Recipe, known: ComparedQuestions | None) -> list[str]:
    if known is None:
        return ["Not checked: no test set was compared with these questions and pictures."]
    default = (recipe.eval.data,) if recipe.eval.data in recipe.data else ()
    named = recipe.filter.contamination.sources
    sources = default if named is None else named
    pictures = _PICTURES[recipe.filter.contamination.images]
    rows = [
        (source, f"{kind}: {_MATCHES.get(kind, kind)}", f"{asked:,}", f"{chosen:,}")
        for (source, kind), (asked, chosen) in known.matches.items()
    ]
    listed = ", ".join(f"`{name}` ({_source(recipe, name)})" for name in sources)
    table = _table(("test set", "what matches", "questions asked", "questions in the dataset"), rows)
    return [
        f"Questions compared with {listed}: {known.checked:,}; of them with a picture that could not be read: "
        f"{known.undecidable:,}.{pictures} Other test sets were not looked at, "
        f"nor was what else a student trains on{_elsewhere(recipe)}. Of paraphrases, only light edits are found.",
        f"{table}\n\nWhere questions are made from templates, the same words alone are no leak."
        if rows
        else "No match was found.",
    ]


def _elsewhere(recipe: Recipe) -> str:
    """Sources that stages train on, besides what teachers wrote."""
    named = {stage.data for stage in recipe.stages} & set(recipe.data)
    return (
        f" ({', '.join(f'`{name}`' for name in recipe.data if name in named - {ASKED})})" if named - {ASKED} else ""
    )


def _licences(recipe: Recipe, makers: Counter[Maker]) -> list[str]:
    settings = recipe.filter.card
    name = settings.license if settings.license != "other" else settings.license_name or "unknown"
    link = f" ({settings.license_link})" if settings.license_link else ""
    advice = "" if name != "unknown" else " Set `filter.card.license` in the recipe before passing it on."
    sources = [
        (name, _source(recipe, name), settings.sources.get(name, NOT_SAID)) for name in recipe.data if name == ASKED
    ]
    teachers = [(name, settings.teachers.get(name, NOT_SAID)) for name in sorted({one.teacher for one in makers})]
    return [
        f"This dataset: {name}{link}.{advice} The licences of the images, of the questions and of the teachers' "
        "output all apply; those below are the recipe's word, nothing has checked them.",
        _table(("source", "from", "licence"), sources),
        _table(("teacher", "licence of its output"), teachers),
    ]


def _hinted(known: CardFacts) -> str:
    if not known.hinted:
        return "No example was written by a teacher that was shown the gold answer."
    return (
        f"Examples by a teacher that was shown the gold answer: {known.hinted:,}. Such a rationale may argue towards "
        "an answer that the teacher would not have found."
    )


def _language(recipe: Recipe, known: CardFacts) -> str:
    said = f"The recipe says: {', '.join(recipe.filter.card.language)}. " if recipe.filter.card.language else ""
    if known.languages is None:
        return f"{said}The language of the rationales was not measured."
    names = {"": "not told", "und": "undetermined"}
    return f"{said}Rationales by language, guessed by their commonest words: {_listed(known.languages, names)}."


def _funnel(head: str, groups: Mapping[str, Mapping[str, int]], total: Mapping[str, int]) -> str:
    rows = [(name or "(none)", *(f"{counts[step]:,}" for step in STEPS)) for name, counts in groups.items()]
    return _table((head, *STEPS), [*rows, ("**all**", *(f"{total[step]:,}" for step in STEPS))])


def _source(recipe: Recipe, name: str) -> str:
    source = recipe.data[name]
    split = source.split if source.split != "train" else ""
    where = [_public(source.source, recipe), source.subset or "", split]
    return ", ".join(part for part in where if part)


def _public(path: str, recipe: Recipe) -> str:
    """A hub's name as it is; of a path on this machine the last part alone."""
    local = PurePath(path).is_absolute() or path.startswith(("~", "..")) or recipe.local(path).exists()
    return Path(path).name if local else path


def _listed(counts: Mapping[str, int], names: Mapping[str, str]) -> str:
    return ", ".join(f"{count:,} {names.get(name, name)}" for name, count in counts.items())


def _shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{value} {share:.0%}" for value, share in shares.items())


def _quoted(text: str) -> str:
    return orjson.dumps(text).decode()


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\r", " ").replace("\n", " ")
