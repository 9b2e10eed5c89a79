"""Only texts that share a key are compared, and near duplicates stay the same."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from worlds.run_fixtures import generate_folder, recipe, sample, trace

from filters.apply import apply, corpus_scheme
from filters.matching.near_duplicates import LshIndex
from filters.run_signals import corpus_duplicates
from filters.run_signals.shared_keys import find_shared, keys_by_bucket, read_shared
from filters.tables.trace_index import index

pytestmark = pytest.mark.usefixtures("short_report")

PARTITIONS = 4
SETTINGS = '[filter]\nsignals = ["corpus", "duplicates"]\nrules = []\n'
SAID = (
    "The bar of Graz in the chart is {height} units high and the next one to the right is lower, so the answer that "
    "the question wants must be the left bar, which is drawn in a dark colour."
)


def texts() -> list[str]:
    """Texts of one template with other values, near duplicates and equal words among them."""
    plain = [SAID.format(height=height) for height in range(20, 30)]
    other = [text.replace("drawn in a dark colour", "indeed drawn in a dark colour") for text in plain[:3]]
    return [*plain, *other, plain[4].upper(), plain[5].lower(), plain[6].replace("Graz", "Linz")]


@pytest.mark.parametrize("buckets", [1, 2, 16])
def test_near_duplicates_among_the_texts_that_share_a_key_are_those_among_all(tmp_path: Path, buckets: int) -> None:
    written = [
        *texts(),
        *(
            f"The colour of shape number {number} is {number * 7}, of {chr(97 + number)} others."
            for number in range(20)
        ),
        "",
        texts()[3],
    ]
    asked = [sample(f"Question {number}?") for number in range(len(written))]
    traces = [trace(asked[number], "", text, id=f"{number:032x}") for number, text in enumerate(written)]
    generate_folder(tmp_path / "run", asked, traces)
    settings = f"{SETTINGS}partition_rows = {len(written) // PARTITIONS + 1}\n"
    chosen = recipe(tmp_path, settings)
    apply(chosen, tmp_path / "run")
    signals = tuple(sorted((tmp_path / "run/filter/signals").glob("*.parquet")))
    assert len(signals) == PARTITIONS
    scheme, threshold = corpus_scheme(chosen), chosen.filter.corpus.threshold
    assert scheme is not None
    keys = [list(keys_by_bucket(pq.read_table(path), scheme, buckets)) for path in signals]
    assert all(len(parts) == buckets for parts in keys)
    shared = read_shared(find_shared(parts) for parts in zip(*keys, strict=True))
    planned = index(tmp_path / "run/generate", tmp_path / "samples", chosen.filter.partition_rows)
    found = corpus_duplicates.write(planned, signals, tmp_path / "corpus", scheme, threshold, shared)
    assert found.read_bytes() == (tmp_path / "run/filter/corpus/part-00000.parquet").read_bytes()
    compared, every = (
        LshIndex.open(folder / "index", scheme, threshold)
        for folder in (tmp_path / "corpus", tmp_path / "run/filter/corpus")
    )
    assert 0 < len(compared) < len(every) - 15, "texts that share no key are in no index"
