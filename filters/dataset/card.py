"""The dataset card: what `datasets` needs to open the folder, and what a person must know before using it.

The text is a template (templates/dataset_card.md); every number comes from the funnel, the signal table or the
decisions (filters/dataset/card_facts.py), and the card says what was not measured. Licences are the recipe's word.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

from distill.artifacts import manifest
from distill.artifacts.files import Output
from distill.artifacts.manifest import Manifest
from distill.rationale import CLOSE, OPEN
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.reports.markdown import environment
from filters.dataset.card_facts import DUPLICATES, STATES, CardFacts
from filters.decisions.dataset_checks import Health
from filters.decisions.funnel import STEPS, Funnel
from filters.decisions.rules import UNREADABLE_IMAGE
from filters.tables.journal_pieces import Maker
from filters.text.minhash import Scheme

VERSION = "5"
"""Raised whenever the same dataset would get another card."""
NOT_SAID = "not said"
_IMAGES = {
    "all": "",
    "matching": " Images were compared by their pixels where the words of the question match a test question, "
    "and by their bytes elsewhere.",
    "bytes": " Images were compared by their bytes only.",
}
_MATCHES = {
    "pair": "the question, word for word or lightly edited, with its image",
    "image": "the image, under another question",
    "text": "the question, about another image",
}
_SIZES = (("n<1K", 10**3), ("1K<n<10K", 10**4), ("10K<n<100K", 10**5), ("100K<n<1M", 10**6), ("1M<n<10M", 10**7))


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What is known of the decisions besides the dataset that they make."""

    funnel: Funnel
    known: CardFacts
    health: Health | None = None
    agreement: Mapping[str, Any] | None = None
    """People's labels against the judge."""


def render_card(
    recipe: Recipe,
    described: Described,
    files: Mapping[str, Output],
    makers: Counter[Maker],
    generated: Manifest | None = None,
) -> str:
    """README.md of the dataset with these files."""
    settings, funnel, known, agreement = recipe.filter.card, described.funnel, described.known, described.agreement
    rows = sum(file.count or 0 for file in files.values())
    default = (recipe.eval.data,) if recipe.eval.data in recipe.data else ()
    named = recipe.filter.contamination.sources
    test_sets = default if named is None else named
    scheme = Scheme(shingle=recipe.filter.corpus.shingle).as_fields() if "corpus" in known.states else {}
    return (
        environment("filters.dataset")
        .get_template("dataset_card.md")
        .render(
            header=_header(recipe, rows, manifest.fingerprint({name: file.sha256 for name, file in files.items()})),
            listed=_listed,
            rate=_rate,
            recipe=recipe,
            card=settings,
            rows=rows,
            think=(OPEN, CLOSE),
            funnel=funnel,
            known=known,
            health=described.health,
            agreement=agreement if agreement and agreement["labels"] else None,
            steps=STEPS,
            states=STATES,
            duplicates=DUPLICATES,
            origin=_origin(recipe, generated),
            teachers=_teachers(recipe, makers),
            selection=_selection(recipe),
            rules=_rules(recipe, funnel),
            scheme=", ".join(f"{key} {value}" for key, value in scheme.items()),
            compared=known.contamination,
            matches=_MATCHES,
            test_sets=", ".join(f"`{name}` ({_source(recipe, name)})" for name in test_sets),
            pictures=_IMAGES[recipe.filter.contamination.images],
            elsewhere=_elsewhere(recipe),
            licence=settings.license if settings.license != "other" else settings.license_name or "unknown",
            sources=[(ASKED, _source(recipe, ASKED), settings.sources.get(ASKED, NOT_SAID))],
            teacher_licences=[
                (name, settings.teachers.get(name, NOT_SAID)) for name in sorted({maker.teacher for maker in makers})
            ],
        )
    )


def _rate(rate: Mapping[str, Any]) -> str:
    """A rate of people's labels: share, interval and counts."""
    if not rate["of"]:
        return "not known (no such label)"
    low, high = rate["ci95"]
    return f"{100 * rate['share']:.1f} % [{100 * low:.1f}, {100 * high:.1f}] ({rate['n']} of {rate['of']})"


def _header(recipe: Recipe, rows: int, digest: str) -> str:
    """The YAML front matter.

    `datasets` caches a folder under its name and a hash of `configs`, not of the files. So the digest is in
    `configs`: other content makes another cache entry.
    """
    from huggingface_hub import DatasetCardData  # takes 0.1 s to import

    settings = recipe.filter.card
    is_other_license = settings.license == "other"
    data = DatasetCardData(
        license=settings.license,
        license_name=settings.license_name or "unknown" if is_other_license else None,
        license_link=settings.license_link if is_other_license else None,
        language=list(settings.language) or None,
        pretty_name=recipe.name,
        annotations_creators=["machine-generated"],
        size_categories=[next((name for name, limit in _SIZES if rows < limit), "n>10M")],
        task_categories=["visual-question-answering", "image-text-to-text"],
        tags=["distillation", "chain-of-thought"],
        configs=[
            {
                "config_name": "default",
                "description": f"content {digest}",
                "data_files": [{"split": "train", "path": "train/*.parquet"}],
            }
        ],
    )
    text: str = data.to_yaml()
    return text


def _origin(recipe: Recipe, generated: Manifest | None) -> list[tuple[str, str]]:
    student = recipe.student
    parts = (student.model, student.vision, student.language) if student else ()
    return [
        ("recipe", f"`{recipe.path.name}`, seed {recipe.seed}"),
        ("fingerprint of the traces", generated.fingerprint if generated else "not known"),
        ("student", ", ".join(recipe.public_name(part) for part in parts if part) or "none is named"),
        ("made with", ", ".join(f"{name} {version}" for name, version in manifest.versions("math-verify").items())),
    ]


def _teachers(recipe: Recipe, makers: Counter[Maker]) -> list[tuple[str, ...]]:
    return [
        (
            *(maker.teacher, recipe.public_name(maker.model), maker.revision, maker.engine),
            *("yes" if maker.hinted else "no", f"{count:,}"),
        )
        for maker, count in sorted(makers.items(), key=lambda item: astuple(item[0]))
    ]


def _rules(recipe: Recipe, funnel: Funnel) -> list[tuple[str, ...]]:
    named = [(rule.name, f"`{rule.drop}`") for rule in recipe.filter.rules]
    if UNREADABLE_IMAGE in funnel.rules:
        named.append((UNREADABLE_IMAGE, "an image can no longer be read"))
    return [(name, drop, f"{funnel.rules.get(name, 0):,}", f"{funnel.only.get(name, 0):,}") for name, drop in named]


def _selection(recipe: Recipe) -> str:
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
    for mix in select.mix:
        shares = ", ".join(f"{value} {100 * share:g} %" for value, share in mix.shares.items())
        limits.append(f"shares by `{mix.by}` ({shares})")
    return ", ".join(limits) if limits else "all of them"


def _elsewhere(recipe: Recipe) -> str:
    """Sources that stages train on, besides what teachers wrote."""
    used = {source for stage in recipe.stages for source in (stage.data, *stage.replay)}
    others = [f"`{name}`" for name in recipe.data if name in used and name != ASKED]
    return f" ({', '.join(others)})" if others else ""


def _source(recipe: Recipe, name: str) -> str:
    source = recipe.data[name]
    split = source.split if source.split != "train" else ""
    where = [recipe.public_name(source.source), source.subset or "", split]
    return ", ".join(part for part in where if part)


def _listed(counts: Mapping[str, int], names: Mapping[str, str]) -> str:
    return ", ".join(f"{count:,} {names.get(name, name)}" for name, count in counts.items())
