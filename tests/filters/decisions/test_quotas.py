"""How many traces of each kind make a mix: shares are met, nothing is taken twice, contradictions are named."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distill.errors import DataError
from distill.recipe.sections.filter import Mix
from filters.decisions.quotas import find_scarcest, target_counts


def mix(by="teacher", **shares):
    return Mix(by=by, shares=shares)


def test_without_a_mix_everything_is_taken():
    assert target_counts({(): 17}, []) == {(): 17}


def test_a_limit_alone_is_the_largest_number_of_traces():
    assert target_counts({(): 17}, [], limit=5) == {(): 5}
    assert target_counts({(): 3}, [], limit=5) == {(): 3}


def test_one_mix_is_as_large_as_its_scarcest_value_allows():
    assert target_counts({("a",): 1000, ("b",): 30}, [mix(a=0.7, b=0.3)]) == {("a",): 70, ("b",): 30}


def test_what_is_left_of_one_goes_to_the_other_values_as_they_come():
    found = target_counts({("a",): 100, ("b",): 40, ("c",): 10}, [mix(a=0.5)])
    assert found == {("a",): 50, ("b",): 40, ("c",): 10}


def test_values_without_a_share_are_left_out_when_the_shares_add_up_to_one():
    assert target_counts({("a",): 10, ("b",): 10, ("c",): 99}, [mix(a=0.5, b=0.5)])[("c",)] == 0


def test_a_share_of_nothing_leaves_a_value_out():
    assert target_counts({("a",): 10, ("b",): 10}, [mix(a=0.0)]) == {("a",): 0, ("b",): 10}


def test_two_mixes_are_met_at_once():
    counts = {("a", "hard"): 500, ("a", "easy"): 300, ("b", "hard"): 100, ("b", "easy"): 900}
    found = target_counts(counts, [mix(a=0.5, b=0.5), mix("difficulty", hard=0.4, easy=0.6)])
    total = sum(found.values())
    assert all(found[kind] <= counts[kind] for kind in counts) and total > 500
    assert found["a", "hard"] + found["a", "easy"] == pytest.approx(total / 2, abs=1)
    assert found["a", "hard"] + found["b", "hard"] == pytest.approx(0.4 * total, abs=1)
    # What goes with what is kept: b was mostly easy, and still is.
    assert found["b", "easy"] > 2 * found["b", "hard"]


def test_a_limit_makes_a_mix_smaller_and_keeps_its_shares():
    found = target_counts({("a",): 1000, ("b",): 900}, [mix(a=0.25, b=0.75)], limit=101)
    assert sum(found.values()) == 101 and found[("a",)] in (25, 26)


def test_a_value_that_no_trace_has_is_named():
    with pytest.raises(DataError, match=r"teacher = 'c' has a share of 50 % .*values of kept traces: a, b"):
        target_counts({("a",): 10, ("b",): 10}, [mix(a=0.5, c=0.5)])
    with pytest.raises(DataError, match="teacher without a share of its own has a share of 50 %"):
        target_counts({("a",): 10}, [mix(a=0.5)])
    many = {(f"t{number:02}",): 10 for number in range(30)}
    with pytest.raises(DataError, match=r"traces: t00, .*, t19\)"):
        target_counts(many, [mix(c=0.5)])


def test_mixes_that_contradict_each_other_are_named():
    with pytest.raises(DataError, match="teacher and domain cannot be met together"):
        target_counts({("a", "x"): 10, ("b", "y"): 10}, [mix(a=0.9, b=0.1), mix("domain", x=0.1, y=0.9)])


def test_the_order_of_the_kinds_changes_nothing():
    counts = {("a",): 331, ("b",): 97, ("c",): 55}
    wanted = [mix(a=1 / 3, b=1 / 3, c=1 / 3)]
    assert (
        target_counts(counts, wanted)
        == target_counts(dict(reversed(counts.items())), wanted)
        == dict.fromkeys(counts, 55)
    )


def test_no_traces_are_no_mix():
    assert target_counts({}, [mix(a=1.0)]) == {}


def test_the_scarcest_kind_is_named_with_what_there_is_of_it():
    found = find_scarcest({("a",): 591, ("b",): 7, ("c",): 2}, [mix(a=0.5, b=0.5)])
    assert (found.total, found.there, found.share, found.without_share) == (14, 7, 0.5, 2)
    said = str(found)
    assert said == "teacher = b has only 7 traces for 50 % of the dataset; 2 traces are of kinds without a share"
    others = find_scarcest({("a",): 500, ("b",): 4, ("c",): 6}, [mix(a=0.5)])
    assert (others.total, others.there, others.share) == (20, 10, 0.5)
    assert "teacher without a share of its own" in str(others)
    both = find_scarcest({("a", "x"): 90, ("b", "y"): 10}, [mix(a=0.5, b=0.5), mix("domain", x=0.5, y=0.5)])
    assert both.total == 20 and "teacher = b, domain = y" in str(both)


@pytest.mark.filterwarnings("error")
def test_the_scarcest_kind_is_the_one_with_the_least_for_its_share():
    assert "= b" in find_scarcest({("a",): 10, ("b",): 60}, [mix(a=0.1, b=0.9)]).kind


def test_a_kind_without_a_share_is_never_the_scarcest_and_costs_no_warning():
    found = find_scarcest({("a",): 1, ("b",): 6, ("c",): 9}, [mix(a=0.0, b=0.5, c=0.5)])
    assert (found.total, found.kind, found.there, found.without_share) == (12, "teacher = b", 6, 1)


def test_shares_that_go_out_even_are_taken_exactly_and_add_up_to_the_limit():
    # In floating point 0.55 * 100 is a little more than 55, and 0.29 * 100 a little less than 29.
    for hundreds in range(1, 9):
        found = target_counts({("a",): 990, ("b",): 990, ("c",): 990}, [mix(a=0.55, b=0.29, c=0.16)], 100 * hundreds)
        assert found == {("a",): 55 * hundreds, ("b",): 29 * hundreds, ("c",): 16 * hundreds}


def test_a_value_without_a_share_gets_nothing_where_written_shares_add_up_to_a_little_less_than_one():
    third = 0.3333333333
    there = {("a",): 10**12, ("b",): 10**12, ("c",): 10**12, ("d",): 10**12}
    found = target_counts(there, [mix(a=third, b=third, c=third)], limit=10**11)
    assert found == {("a",): 33333333330, ("b",): 33333333330, ("c",): 33333333330, ("d",): 0}


def test_whole_numbers_are_parts_of_the_whole_dataset():
    there = {("a",): 990, ("b",): 990, ("c",): 990, ("d",): 990}
    found = target_counts(there, [mix(a=7, b=2, c=1)], 100)
    assert found == {("a",): 70, ("b",): 20, ("c",): 10, ("d",): 0}
    written = Mix(by="teacher", shares={"a": 7, "b": 2, "c": 1})
    assert written == Mix(by="teacher", shares={"a": 70, "b": 20, "c": 10})
    assert Mix.model_validate(written.model_dump()) == written


@pytest.mark.parametrize("shares", [{"a": 70}, {"a": 70, "b": 0}, {"a": 0.7, "b": 0.5}, {"a": 1.5, "b": 1}])
def test_shares_above_one_that_are_not_parts_are_refused(shares):
    with pytest.raises(ValueError, match="at most 1, or whole numbers such as 7, 2 and 1"):
        Mix(by="teacher", shares=shares)


@given(
    counts=st.lists(st.integers(1, 400), min_size=3, max_size=3),
    cuts=st.lists(st.integers(1, 99), min_size=2, max_size=2, unique=True),
    limit=st.none() | st.integers(1, 500),
)
def test_a_mix_is_as_large_as_can_be_and_every_share_is_met_to_one_trace(counts, cuts, limit):
    first, second = sorted(cuts)
    percent = {"a": first, "b": second - first, "c": 100 - second}
    there = dict(zip([("a",), ("b",), ("c",)], counts, strict=True))
    wanted = [mix(**{name: share / 100 for name, share in percent.items()})]
    found = target_counts(there, wanted, limit)
    largest = math.floor(min(100 * there[(name,)] / share for name, share in percent.items()) + 1e-9)
    assert sum(found.values()) == min(largest, limit or largest)
    for (name,), count in found.items():
        assert count <= there[(name,)] and abs(100 * count - percent[name] * sum(found.values())) < 100
    scarcest = find_scarcest(there, wanted)
    assert scarcest.total == largest and there[(scarcest.kind.removeprefix("teacher = "),)] == scarcest.there
    assert 100 * scarcest.there / (100 * scarcest.share) - largest < 1 and not scarcest.without_share
