"""Partitions: every sample in one, images together, nothing moved by order or growth."""

import hashlib

from hypothesis import given, settings
from hypothesis import strategies as st

from distill.data.reader import sample_id
from distill.types import ImageRef, Sample
from distill.units.partitions import Partitions, key_histogram, plan_partitions


def sample(question: str, image: str = "") -> Sample:
    digests = [hashlib.sha256(image.encode()).hexdigest()] if image else []
    refs = tuple(ImageRef(sha256=digest, path="x.png") for digest in digests)
    return Sample(id=sample_id(question, digests), images=refs, question=question)


def world(count: int, questions_an_image: int = 3) -> list[Sample]:
    images = [sample(f"question {number}", f"image {number // questions_an_image}") for number in range(count)]
    return [*images, *(sample(f"no image {number}") for number in range(count // 10))]


def groups(partitions: Partitions, samples: list[Sample]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for each in samples:
        found.setdefault(partitions.partition_of(each), set()).add(each.id)
    return found


def test_all_questions_about_an_image_and_all_copies_of_a_question_are_in_one_partition() -> None:
    samples = world(600)
    partitions = plan_partitions(key_histogram(samples), rows=20)
    by_image: dict[str, set[str]] = {}
    for each in samples:
        if each.images:
            by_image.setdefault(each.images[0].sha256, set()).add(partitions.partition_of(each))
    assert partitions.bits == 6 and not partitions.cuts
    assert all(len(names) == 1 for names in by_image.values())
    assert set(groups(partitions, samples)) <= set(partitions.names())
    assert max(map(len, groups(partitions, samples).values())) <= 40


@settings(max_examples=20)
@given(st.permutations(range(40)), st.integers(1, 39))
def test_partitions_do_not_depend_on_order_or_on_how_a_source_is_cut_into_files(order: list[int], cut: int) -> None:
    samples = world(40)[:40]
    shuffled = [samples[number] for number in order]
    parts = key_histogram(shuffled[:cut]) + key_histogram(shuffled[cut:])
    assert plan_partitions(parts, rows=5) == plan_partitions(key_histogram(samples), rows=5)


@given(st.integers(0, 12), st.integers(1, 50))
def test_twice_as_many_partitions_split_each_in_two_and_new_rows_move_no_other(bits: int, new: int) -> None:
    samples = world(60)
    now, twice = Partitions(bits=bits), Partitions(bits=bits + 1)
    for group in groups(now, samples).values():
        assert len({twice.partition_of(each) for each in samples if each.id in group}) <= 2
    grown = groups(now, [*samples, *(sample(f"new {number}", f"new {number}") for number in range(new))])
    assert all(group <= grown[name] for name, group in groups(now, samples).items())


def test_an_image_with_very_many_questions_is_cut_by_sample() -> None:
    samples = [*world(200), *(sample(f"question {number}", "one image") for number in range(800))]
    partitions = plan_partitions(key_histogram(samples), rows=50)
    found = groups(partitions, samples)
    assert len(partitions.cuts) == 1
    assert sum(map(len, found.values())) == len(samples)
    assert max(map(len, found.values())) <= 100
    assert set(found) <= set(partitions.names())
    assert len(set(partitions.names())) == len(partitions.names())


def test_few_samples_are_one_partition() -> None:
    partitions = plan_partitions(key_histogram(world(20)))
    assert partitions.names() == ["00"]
    assert {partitions.partition_of(each) for each in world(20)} == {"00"}
