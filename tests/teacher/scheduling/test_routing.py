"""Which teachers answer which sample."""

import random

from distill.recipe.sections.teachers import Teacher
from distill.types import Sample
from teacher.scheduling.routing import covers, may_share, route


def teacher(name: str, *domains: str, weight: float = 1.0) -> Teacher:
    return Teacher(name=name, model="m", domains=domains, weight=weight)


def samples(count: int, domain: str = "charts") -> list[Sample]:
    return [Sample(id=f"{index:020x}", images=(), question=str(index), domain=domain) for index in range(count)]


def test_every_teacher_that_covers_the_domain_answers_and_no_other() -> None:
    teachers = [teacher("all"), teacher("charts", "charts", "tables"), teacher("scenes", "scenes")]
    (sample,) = samples(1)
    assert [chosen.name for chosen in route(teachers, sample)] == ["all", "charts"]


def test_a_domain_that_no_teacher_names_is_not_covered() -> None:
    (sample,) = samples(1, "maps")
    assert not covers(teacher("charts", "charts"), sample) and not covers(teacher("scenes", "scenes"), sample)
    assert covers(teacher("all"), sample)


def test_a_weight_below_one_is_the_share_of_samples_answered() -> None:
    chosen = [sample for sample in samples(20_000) if route([teacher("part", weight=0.3)], sample)]
    assert 0.28 < len(chosen) / 20_000 < 0.32


def test_a_weight_above_one_is_all_samples() -> None:
    assert all(route([teacher("all", weight=2.5)], sample) for sample in samples(1000))


def test_the_choice_does_not_depend_on_order_and_a_larger_weight_only_adds() -> None:
    pool = samples(2000)
    small = {sample.id for sample in pool if route([teacher("part", weight=0.2)], sample)}
    random.Random(0).shuffle(pool)
    again = {sample.id for sample in pool if route([teacher("part", weight=0.2)], sample)}
    large = {sample.id for sample in pool if route([teacher("part", weight=0.6)], sample)}
    assert small == again
    assert small < large


def test_two_teachers_with_weights_choose_independently() -> None:
    pool = samples(10_000)
    both = [
        sample for sample in pool if len(route([teacher("a", weight=0.5), teacher("b", weight=0.5)], sample)) == 2
    ]
    assert 0.22 < len(both) / len(pool) < 0.28


def test_a_fallback_answers_only_what_no_other_teacher_covers() -> None:
    teachers = [teacher("charts", "charts", weight=0.5), teacher("rest").model_copy(update={"fallback": True})]
    assert {len(route(teachers, sample)) for sample in samples(100)} == {0, 1}
    assert all(chosen.name == "charts" for sample in samples(100) for chosen in route(teachers, sample))
    (sample,) = samples(1, "maps")
    assert [chosen.name for chosen in route(teachers, sample)] == ["rest"]


def test_a_teacher_that_comes_after_another_answers_only_with_it() -> None:
    teachers = [teacher("small", weight=0.3), teacher("large").model_copy(update={"after": "small"})]
    assert {len(route(teachers, sample)) for sample in samples(100)} == {0, 2}


def test_two_teachers_may_share_samples_unless_a_setting_keeps_them_apart() -> None:
    def may(first: dict[str, object], second: dict[str, object]) -> bool:
        one, other = (teacher(name).model_copy(update=values) for name, values in (("a", first), ("b", second)))
        assert may_share(one, other) == may_share(other, one)
        return may_share(one, other)

    assert may({}, {}) and may({"modality": "image"}, {}) and may({"modality": "text"}, {"modality": "text"})
    assert not may({"modality": "image"}, {"modality": "text"})
    assert may({"domains": ("x", "y")}, {"domains": ("y",)}) and may({"domains": ("x",)}, {})
    assert not may({"domains": ("x",)}, {"domains": ("y",)})
    assert not may({"difficulty": ("easy",)}, {"difficulty": ("hard",)})
    assert not may({"fallback": True}, {}) and may({"fallback": True}, {"fallback": True})
