"""Near duplicates and contamination on the report page."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from filters.report.table import TableFacts

BIGGEST = 3
LEAKS = 3
LEAK = "pair"
"""The kind of match that is a leak: question and image. Questions about charts are templates, so the same words
about another image are no leak."""
_SIZES = ((2, 2), (3, 3), (4, 5), (6, 9), (10, 19), (20, 49), (50, None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A group of near duplicates: its preferred trace, and the trace that is least similar to it."""

    preferred: str
    other: str | None
    size: int
    questions: int
    teachers: int
    kept: int
    jaccard: float | None
    """The similarity of the preferred trace and the member that is least similar to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateCounts:
    measured: bool
    traces: int = 0
    duplicates: int = 0
    kept: int = 0
    """Duplicates that are kept."""
    clusters: int = 0
    sizes: list[tuple[str, int, int]] = field(default_factory=list)
    """Size of clusters, their number, traces in them."""
    biggest: list[Cluster] = field(default_factory=list)
    varied: int = 0
    """Traces with the words of another one and other numbers or names."""
    templates: int = 0
    """How many different words those have."""
    largest: int = 0
    """Traces of the most common ones."""
    within: list[tuple[str, str, int]] = field(default_factory=list)
    """Duplicates within one question: column, what it means, traces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContaminationCounts:
    measured: bool
    checked: int = 0
    rows: list[tuple[str, str, int, int, int, int]] = field(default_factory=list)
    """Test set, what matches, questions, traces, kept, selected."""
    examples: list[str] = field(default_factory=list)
    matches: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """The match of each example: its kind, the test set, and the sample."""

    @property
    def leaks(self) -> int:
        """Traces about a question that is in a test set with its image."""
        return sum(row[3] for row in self.rows if row[1] == LEAK)

    @property
    def selected(self) -> int:
        """Number of matches among the selected traces."""
        return sum(row[5] for row in self.rows if row[1] == LEAK)


def duplicates(facts: TableFacts) -> DuplicateCounts:
    within = [
        (name, facts.columns[name].description, facts.row(f'SELECT count(*) FILTER ("{name}") FROM page')[0])
        for name in ("exact_duplicate", "near_duplicate", "other_values")
        if facts.has(name)
    ]
    if not facts.has("corpus_duplicate"):
        return DuplicateCounts(measured=False, within=within)
    traces, count, kept = facts.row(
        """SELECT count(corpus_duplicate), count(*) FILTER (corpus_duplicate),
            count(*) FILTER (corpus_duplicate AND kept) FROM page"""
    )
    of_size = facts.rows(
        # The preferred trace of a cluster is its only member that is no duplicate.
        """SELECT corpus_cluster_size, count(*) FROM page
        WHERE corpus_cluster_size > 1 AND NOT corpus_duplicate GROUP BY 1 ORDER BY 1"""
    )
    # The number of traces with the same template.
    varied, templates, largest = facts.row(
        """SELECT count(*), coalesce(sum(1.0 / corpus_template_size), 0), coalesce(max(corpus_template_size), 0)
        FROM page WHERE corpus_other_values"""
    )
    return DuplicateCounts(
        measured=True,
        varied=varied,
        templates=round(templates),
        largest=largest,
        traces=traces,
        duplicates=count,
        kept=kept,
        clusters=sum(number for _, number in of_size),
        sizes=_sizes(of_size),
        biggest=_biggest(facts) if count else [],
        within=within,
    )


def _sizes(of_size: Sequence[tuple[int, int]]) -> list[tuple[str, int, int]]:
    sizes = []
    for low, high in _SIZES:
        counts = [(size, number) for size, number in of_size if size >= low and (high is None or size <= high)]
        if counts:
            name = f"{low} or more" if high is None else str(low) if low == high else f"{low} to {high}"
            sizes.append((name, sum(number for _, number in counts), sum(size * number for size, number in counts)))
    return sizes


def _biggest(facts: TableFacts) -> list[Cluster]:
    rows = facts.rows(
        f"""WITH heads AS (
            SELECT id AS head FROM page WHERE corpus_cluster_size > 1 AND NOT corpus_duplicate
            ORDER BY corpus_cluster_size DESC, id LIMIT {BIGGEST}
        )
        SELECT head, count(*), count(DISTINCT sample_id), count(DISTINCT teacher), count(*) FILTER (kept),
            min(corpus_jaccard), min_by(id, (corpus_jaccard, id)) FILTER (corpus_duplicate)
        FROM page JOIN heads ON head = coalesce(corpus_duplicate_of, id) GROUP BY 1 ORDER BY 2 DESC, 1"""
    )
    return [
        Cluster(
            preferred=head,
            other=least_alike,
            size=size,
            questions=questions,
            teachers=teachers,
            kept=kept,
            jaccard=min_jaccard,
        )
        for head, size, questions, teachers, kept, min_jaccard, least_alike in rows
    ]


def contamination(facts: TableFacts) -> ContaminationCounts:
    if not facts.has("contamination"):
        return ContaminationCounts(measured=False)
    hit = "contamination IS NOT NULL AND contamination <> 'none'"
    (checked,) = facts.row("SELECT count(DISTINCT hash(sample_id)) FROM page WHERE contamination IS NOT NULL")
    rows = facts.rows(
        f"""SELECT coalesce(contamination_source, ''), contamination, count(DISTINCT hash(sample_id)), count(*),
            count(*) FILTER (kept), count(*) FILTER (selected)
        FROM page WHERE {hit} GROUP BY 1, 2 ORDER BY 1, 4 DESC, 2"""
    )
    # Leaks in the dataset come first, then the others; one for each question.
    examples = facts.rows(
        f"""SELECT min_by(id, (NOT selected, id)), any_value(contamination),
            any_value(coalesce(contamination_source, '')), any_value(coalesce(contamination_sample, ''))
        FROM page WHERE {hit} GROUP BY sample_id
        HAVING any_value(contamination) IN ('{LEAK}', 'image')
        ORDER BY any_value(contamination) <> '{LEAK}', min(NOT selected), sample_id LIMIT {LEAKS}"""
    )
    return ContaminationCounts(
        measured=True,
        checked=checked,
        rows=rows,
        examples=[name for name, *_ in examples],
        matches={name: (kind, test_set, test_sample) for name, kind, test_set, test_sample in examples},
    )
