"""The side table of near duplicates of a run: templates, and the same result however the run came about."""

from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from worlds.run_fixtures import generate_folder, recipe, sample, trace

from distill.artifacts.manifest import Manifest
from distill.errors import StaleError
from filters.apply import apply

SETTINGS = '[filter]\nsignals = ["corpus", "duplicates"]\nrules = []\n'
SAID = (
    "The bar of Graz in the chart is {height} units high and the next one to the right is lower, so the answer that "
    "the question wants must be the {name} bar, which is drawn in a dark colour."
)


def texts() -> list[str]:
    plain = [SAID.format(height=height, name="left") for height in range(20, 30)]
    other = [text.replace("drawn in a dark colour", "indeed drawn in a dark colour") for text in plain[:3]]
    return [*plain, *other, plain[4].upper(), plain[5].lower(), plain[6].replace("Graz", "Linz")]


def filtered(folder, chosen, *, fresh=False):
    """The corpus columns of a run of these texts, one question each, by the number of the text."""
    asked = [sample(f"Question {number}?") for number in range(len(texts()))]
    traces = [trace(asked[number], "", texts()[number], id=f"{number:032x}") for number in chosen]
    generate_folder(folder / "run", asked, traces)
    apply(recipe(folder, SETTINGS), folder / "run", fresh=fresh)
    rows = pq.read_table(folder / "run/filter/corpus/part-00000.parquet").to_pylist()
    return {int(row.pop("id"), 16): row for row in rows}


def test_the_same_words_with_other_values_are_a_class_of_their_own_and_no_duplicates(tmp_path):
    rows = filtered(tmp_path, range(16))
    assert [number for number, row in rows.items() if row["corpus_duplicate"]] == [10, 11, 12, 13, 14]
    assert {rows[number]["corpus_duplicate_of"] for number in (0, 1, 2, 4, 5, 15)} == {None}
    assert rows[13]["corpus_duplicate_of"] == f"{4:032x}" and rows[13]["corpus_jaccard"] == 1
    assert [row["corpus_template_size"] for row in rows.values()] == [*[13] * 10, *[3] * 3, 13, 13, 13]
    assert all(rows[number]["corpus_other_values"] for number in (*range(13), 15))
    counts = Manifest.read(tmp_path / "run/filter").counts
    assert counts["selected.templated"] >= 14
    page = (tmp_path / "run/filter/report.html").read_text()
    assert "Same words, other values" in page and "they follow a template" in page


def test_a_run_that_grew_ends_where_one_go_would_when_a_new_trace_says_more_of_names(tmp_path):
    (tmp_path / "grown").mkdir()
    (tmp_path / "whole").mkdir()
    # The capitals come first: their words say nothing of names until the same words come in ordinary case.
    for chosen in ([13, 14], [13, 14, 10, 15], [13, 14, 10, 15, 4, 5, 0]):
        grown = filtered(tmp_path / "grown", chosen)
    whole = filtered(tmp_path / "whole", [0, 4, 5, 10, 13, 14, 15])
    assert grown == whole and sum(row["corpus_duplicate"] for row in whole.values()) == 3


def test_similarities_of_shingles_of_another_length_are_measured_again(tmp_path, short_report):
    said = SAID.format(height=20, name="left")
    asked = [sample(f"Question {number}?") for number in range(2)]
    longer = f"{said} It stands where a vase with a plant stands, too."
    generate_folder(tmp_path / "run", asked, [trace(asked[0], "", said), trace(asked[1], "", longer)])

    def jaccard(shingle):
        settings = f"{SETTINGS}[filter.corpus]\nthreshold = 0.4\nshingle = {shingle}\n"
        apply(recipe(tmp_path, settings), tmp_path / "run", fresh=shingle > 1)
        (value,) = filter(
            None, pq.read_table(tmp_path / "run/filter/corpus/part-00000.parquet")["corpus_jaccard"].to_pylist()
        )
        return value

    assert jaccard(1) > jaccard(3) > jaccard(5)


def test_a_run_of_an_older_search_is_measured_again_after_a_plain_message(tmp_path):
    filtered(tmp_path, range(3))
    manifest = Manifest.read(tmp_path / "run/filter")
    assert manifest is not None and manifest.fields["extractors.corpus.version"] > 2
    older = {**manifest.fields, "extractors.corpus.version": 2}
    replace(manifest, fields=older, fingerprint="of an older search").write(tmp_path / "run/filter")
    with pytest.raises(StaleError, match="--fresh") as caught:
        apply(recipe(tmp_path, SETTINGS), tmp_path / "run")
    assert "extractors.corpus.version" in str(caught.value)
    assert len(filtered(tmp_path, range(3), fresh=True)) == 3
