import pytest
from run_fixtures import generate_folder, recipe, small_world

from distill.errors import DataError
from distill.explain import explain
from filters.apply import apply


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explain")
    samples, traces = small_world(folder / "pictures")
    generate_folder(folder / "run", samples, traces)
    apply(recipe(folder, "[filter.select]\nper_question = 1\n"), folder / "run")
    return folder / "run", samples, traces


def test_a_dropped_trace_shows_every_failing_rule_with_value_and_condition(world):
    run, samples, traces = world
    text = explain(run, traces[3].id)
    assert "became   dropped by incomplete, bad_format, repetition" in text
    assert "  incomplete: outcome = truncated_thinking\n    outcome <> 'complete'" in text
    assert "repetition_ngram = 0.9" in text and "    repetition_ngram > 0.6" in text
    assert samples[0].images[0].path in text
    assert "question  Question 0: how many dots?" in text and "gold      0" in text


def test_a_selected_trace_shows_text_signals_and_its_duplicates(world):
    run, _, traces = world
    kept, double = sorted(traces[:3:2], key=lambda item: item.id)
    text = explain(run, kept.id)
    assert "became   selected for the dataset" in text
    assert "I look at each row in turn" in text
    assert "answer_verdict          correct" in text
    assert f"duplicates of this trace\n  {double.id}  similarity 1.000" in text
    assert f"{double.id}  structured        dropped by exact_duplicate" in text
    assert f"duplicate_of            {kept.id}" in explain(run, double.id)


def test_the_beginning_of_an_id_is_enough(world):
    run, _, traces = world
    assert explain(run, f" {traces[0].id[:12].upper()} ") == explain(run, traces[0].id)


def test_an_unknown_id_is_an_error_with_the_nearest_ones(world):
    run, _, traces = world
    wrong = traces[0].id[:20] + "zzz"
    with pytest.raises(DataError, match=f"no trace '{wrong}' in .*; the nearest ids are {traces[0].id}"):
        explain(run, wrong)
    with pytest.raises(DataError, match="no trace ''"):
        explain(run, "")


def test_an_ambiguous_beginning_lists_what_it_could_mean(world):
    run, _, traces = world
    first = max("0123456789abcdef", key=lambda digit: sum(item.id.startswith(digit) for item in traces))
    with pytest.raises(DataError, match=f"'{first}' begins .* trace ids .*; give more characters"):
        explain(run, first)


def test_a_sample_id_leads_to_its_traces(world):
    run, samples, traces = world
    with pytest.raises(DataError, match=f"is a sample .*{min(item.id for item in traces[:4])}"):
        explain(run, samples[0].id)


def test_before_filtering_the_trace_is_shown_as_it_is(tmp_path):
    samples, traces = small_world(tmp_path / "pictures", 1)
    generate_folder(tmp_path / "run", samples, traces)
    text = explain(tmp_path / "run", traces[0].id)
    assert "not filtered yet" in text and "I look at each row in turn" in text and "signals" not in text


def test_a_run_without_traces_is_named(tmp_path):
    with pytest.raises(DataError, match="there are no traces here"):
        explain(tmp_path, "a")
