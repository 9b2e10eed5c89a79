import re
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from worlds.run_fixtures import generate_folder, recipe, sample, small_world, trace

from distill.commands.explain import explain_trace, gather
from distill.errors import DataError
from distill.recipe.sections.filter import SIGNAL_NAMES
from distill.trace_records.human_labels import LabelJournal
from filters.apply import apply
from filters.dataset.exports import export
from filters.signals import registry, schema
from filters.signals.families.repetition import Repetition

FACTS = schema.FACTS.names


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explain")
    samples, traces = small_world(folder / "pictures")
    generate_folder(folder / "run", samples, traces)
    apply(recipe(folder, "[filter.select]\nper_question = 1\n"), folder / "run")
    return folder / "run", samples, traces


def _values(known):
    return {name: value for family in known.families for name, value in family.values.items()}


def copied(world, folder, name="run"):
    """The world with a run of its own, to change."""
    run, samples, traces = world
    return shutil.copytree(run, folder / name), samples, traces


def test_a_dropped_trace_shows_every_failing_rule_with_value_and_condition(world):
    run, samples, traces = world
    text = explain_trace(run, traces[3].id)
    assert "became   dropped by incomplete, bad_format, repetition" in text
    assert "  incomplete: outcome = truncated_thinking\n    outcome <> 'complete'" in text
    assert "repetition_ngram = 0.9" in text and "    repetition_ngram > 0.6" in text
    assert samples[0].images[0].path in text
    assert "question  Question 0: how many dots?" in text and "gold      0" in text


def test_a_selected_trace_shows_text_signals_and_its_duplicates(world):
    run, _, traces = world
    kept, double = sorted(traces[:3:2], key=lambda item: item.id)
    text = explain_trace(run, kept.id)
    assert "became   selected for the dataset" in text
    assert "I look at each row in turn" in text
    assert "answer_verdict         correct" in text
    assert f"duplicates within the question\n  {double.id}  similarity 1.000\n" in text
    assert f"{double.id}  structured        dropped by exact_duplicate" in text
    other = explain_trace(run, double.id)
    assert re.search(f"duplicate_of +{kept.id}", other)
    assert f"duplicates within the question\n  {kept.id}  similarity 1.000  stays\n" in other


@pytest.mark.parametrize(
    "name", ["filter/decisions.parquet", "filter/signals/part-00000.parquet", "filter/manifest.json"]
)
def test_a_damaged_file_is_named_with_what_lists_the_damage(world, tmp_path, name):
    run, _, traces = copied(world, tmp_path)
    (run / name).write_bytes(b"")
    with pytest.raises(DataError, match=f"1 damaged file, such as {name}: .*`distill repair"):
        explain_trace(run, traces[0].id)


def test_a_damaged_note_of_places_only_costs_a_search(world, tmp_path):
    run, _, traces = copied(world, tmp_path)
    (run / "filter/samples/places.parquet").write_bytes(b"")
    assert traces[0].text.strip() and traces[0].id in explain_trace(run, traces[0].id)


def test_every_family_is_shown_with_its_state_and_what_the_tables_remember_of_texts_is_not(world):
    run, _, traces = world
    known = gather(run, traces[3].id)
    states = {family.name: family.state for family in known.families}
    assert states.keys() >= {*registry.FAMILIES, "corpus"}
    table = pq.read_table(run / "filter/signals/part-00000.parquet").to_pylist()
    row = next(item for item in table if item["id"] == traces[3].id)
    assert all(states[name] == row[f"{name}_state"] for name in registry.FAMILIES)
    shown = {column for family in known.families for column in family.values}
    columns = {*registry.LOCAL.names, *schema.CORPUS.names} - {*FACTS, "signal_errors"}
    assert shown == {name for name in columns if not name.endswith("_state")}
    text = explain_trace(run, traces[3].id)
    assert f"  repetition: ok (version {Repetition.version}, ngram 4)\n    repetition_ngram" in text


def test_near_duplicates_across_the_run_come_with_their_similarity(tmp_path):
    text = " ".join(f"I see word {number} of the picture" for number in range(30))
    samples = [sample(f"Question {number}?", "4") for number in range(3)]
    traces = [
        trace(each, reasoning=f"{text} and end {word}")
        for word, each in zip(("here", "there", "now"), samples, strict=True)
    ]
    run = generate_folder(tmp_path / "run", samples, traces).parent
    apply(recipe(tmp_path), run)
    best, *others = sorted(traces, key=lambda item: item.id)
    known = gather(run, others[0].id)
    assert [(twin.id, twin.preferred) for twin in known.twins] == [(best.id, True), (others[1].id, False)]
    assert known.twins[0].similarity == _values(known)["corpus_jaccard"] > 0.9
    shown = f"near duplicates across the run\n  {best.id}  similarity {known.twins[0].similarity:.3f}"
    assert shown in explain_trace(run, others[0].id)
    assert {twin.id for twin in gather(run, best.id).twins} == {item.id for item in others}
    assert "near duplicates across the run (this one is preferred)" in explain_trace(run, best.id)


def test_a_side_table_is_joined_by_trace_or_by_sample(world, tmp_path):
    run, samples, traces = copied(world, tmp_path)
    tables = {
        "critic": {"id": [item.id for item in traces], "critic_state": ["ok"] * 24, "critic_note": ["fine"] * 24},
        "place": {"sample_id": [samples[0].id], "place_state": ["ok"], "place_name": ["attic"]},
    }
    for name, columns in tables.items():
        (run / "filter" / name).mkdir()
        pq.write_table(pa.table(columns), run / "filter" / name / "part-00000.parquet")
    assert "critic" not in explain_trace(run, traces[0].id), "the finished stage did not use these tables"
    (run / "filter/manifest.json").unlink()
    text = explain_trace(run, traces[0].id)
    assert "  critic: ok\n    critic_note  fine" in text and "  place: ok\n    place_name  attic" in text
    assert "  measured, but not for this trace: place\n" in explain_trace(run, traces[-1].id)


def test_every_family_without_a_value_is_listed_with_the_reason(world, tmp_path):
    run, _, traces = copied(world, tmp_path)
    text = explain_trace(run, traces[0].id)
    line = "  not measured, because filter.signals lacks them: "
    listed = next(row for row in text.splitlines() if row.startswith(line)).removeprefix(line).split(", ")
    measured = [family.name for family in gather(run, traces[0].id).families if family.state is not None]
    assert sorted([*listed, *measured]) == sorted(SIGNAL_NAMES)
    assert {"student", "judge", "human", "ocr", "question"} <= {*listed} and "measured, but" not in text


def test_a_trace_without_a_label_says_so_where_others_have_one(tmp_path):
    samples = [sample("How many?", "4")]
    traces = [trace(samples[0], k=k, reasoning=f"I count {word}.") for k, word in enumerate(("here", "there"))]
    run = generate_folder(tmp_path / "run", samples, traces).parent
    journal = LabelJournal(run)
    asked = recipe(tmp_path, '[filter]\nsignals = ["answer", "format", "repetition", "human"]\n')
    apply(asked, run)
    assert "for this trace: human (no person has labelled it)" in explain_trace(run, traces[0].id)
    journal.add({"trace": traces[0].id, "label": "correct"})
    journal.close()
    apply(asked, run, fresh=True)
    assert "human_verdict  correct" in explain_trace(run, traces[0].id)
    assert "for this trace: human (no person has labelled it)" in explain_trace(run, traces[1].id)


def test_where_a_selected_trace_went_and_which_arms_contain_it(world, tmp_path):
    run, _, traces = copied(world, tmp_path)
    export(run, ["llava", "ms-swift"], run / "filter/exports")
    (run / "filter/arms").mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": sorted(item.id for item in traces)}), run / "filter/arms/everything.parquet")
    pq.write_table(pa.table({"id": [traces[3].id]}), run / "filter/arms/another.parquet")
    rows = pq.read_table(run / "filter/dataset/train/part-00000.parquet")["trace_id"].to_pylist()
    for place, name in enumerate(rows):
        assert f"where    filter/dataset/train/part-00000.parquet, row {place}\n" in explain_trace(run, name)
        assert "everything" in gather(run, name).arms and "another" not in gather(run, name).arms
        assert "exports  llava.json, ms-swift.jsonl\n" in explain_trace(run, name)
    dropped = explain_trace(run, traces[3].id)
    assert "filter/dataset" not in dropped and "exports" not in dropped
    assert re.search("arms +another, everything\n", dropped)


def test_the_record_is_found_by_its_noted_place_and_without_it(world, tmp_path):
    run, _, traces = copied(world, tmp_path)
    expected = {item.id: explain_trace(run, item.id) for item in traces[:4]}
    places = run / "filter/samples/places.parquet"
    assert pq.read_table(places)["id"].to_pylist() == sorted(item.id for item in traces)
    table = pq.read_table(places)
    wrong = table.set_column(2, "start", pa.array([start + 7 for start in table["start"].to_pylist()]))
    pq.write_table(wrong, places)
    assert {name: explain_trace(run, name) for name in expected} == expected
    places.unlink()
    assert {name: explain_trace(run, name) for name in expected} == expected


def test_a_trace_that_is_newer_than_the_decisions_is_not_filtered_yet(world, tmp_path):
    run, samples, traces = copied(world, tmp_path)
    newer = trace(samples[0], "0", k=9)
    generate_folder(run, samples, [*traces, newer])
    assert "became   not filtered yet" in explain_trace(run, newer.id)
    assert "became   selected" in explain_trace(run, min(traces[:3:2], key=lambda item: item.id).id)


def test_a_run_may_lie_in_a_folder_whose_name_looks_like_a_pattern(world, tmp_path):
    run, _, traces = copied(world, tmp_path, "run [1]*")
    assert "became   dropped by incomplete" in explain_trace(run, traces[3].id)


def test_the_beginning_of_an_id_is_enough(world):
    run, _, traces = world
    assert explain_trace(run, f" {traces[0].id[:12].upper()} ") == explain_trace(run, traces[0].id)


def test_an_unknown_id_is_an_error_with_the_nearest_ones(world):
    run, _, traces = world
    wrong = traces[0].id[:20] + "zzz"
    with pytest.raises(DataError, match=f"no trace '{wrong}' in .*; the nearest ids are {traces[0].id}"):
        explain_trace(run, wrong)
    with pytest.raises(DataError, match="no trace ''"):
        explain_trace(run, "")


def test_an_ambiguous_beginning_lists_what_it_could_mean(world):
    run, _, traces = world
    first = max("0123456789abcdef", key=lambda digit: sum(item.id.startswith(digit) for item in traces))
    with pytest.raises(DataError, match=f"'{first}' begins .* trace ids .*; give more characters"):
        explain_trace(run, first)


def test_a_sample_id_shows_each_of_its_traces(world):
    run, samples, traces = world
    text = explain_trace(run, samples[0].id)
    assert all(explain_trace(run, item.id) in text for item in traces[:4])


def test_the_beginning_of_a_sample_id_leads_to_its_traces(world):
    run, samples, traces = world
    with pytest.raises(DataError, match=f"is a sample .*{min(item.id for item in traces[:4])}"):
        explain_trace(run, samples[0].id[:-1])


def test_before_filtering_the_trace_is_shown_as_it_is(tmp_path):
    samples, traces = small_world(tmp_path / "pictures", 1)
    generate_folder(tmp_path / "run", samples, traces)
    text = explain_trace(tmp_path / "run", traces[0].id)
    assert "not filtered yet" in text and "I look at each row in turn" in text and "signals" not in text
    assert "other traces of the question" in text


def test_a_run_without_traces_is_named(tmp_path):
    with pytest.raises(DataError, match="there are no traces here"):
        explain_trace(tmp_path, "a")


def test_the_students_replies_that_a_stage_learns_from_are_shown(world, tmp_path):
    run, _, traces = copied(world, tmp_path)
    own = traces[0]
    rows = [
        {"sample_id": own.sample_id, "trace_id": "r1", "messages": [{"content": "q"}, {"content": "two\nthree"}]},
        {"sample_id": "another", "trace_id": "r2", "messages": [{"content": "q"}, {"content": "never shown"}]},
    ]
    folder = run / "rollouts" / "later" / "train"
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "part-00000.parquet")
    text = explain_trace(run, own.id)
    assert "the student's replies that stage later learns from\n  not scored: two three\n" in text
    assert "never shown" not in text
