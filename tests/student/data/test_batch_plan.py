"""A stage's plan loses no row, doubles none, and is the same for every look at it."""

import hashlib
import json
from collections import Counter
from itertools import chain, pairwise

import numpy as np
import pytest
from pydantic import ValidationError

from distill.errors import RecipeError, TooFewRows
from distill.recipe.sections.stages import Stage
from student.data import mixture
from student.data.batch_plan import BatchPlan, Step

LENGTHS = np.random.default_rng(0).integers(20, 400, 200)
TEACHERS = ["structured", "analyst", "reader", "reader"] * 50


def plan(lengths=LENGTHS, *, seed: int = 0, processes: int = 1, ranks=None, sources=None, **settings) -> BatchPlan:
    stage = Stage(**{"name": "s", "data": "traces", "train": ("language",), "micro_batch_tokens": 1000, **settings})
    groups = mixture.groups(
        lengths,
        sources or ["traces"] * len(lengths),
        TEACHERS[: len(lengths)],
        own="traces",
        replay=stage.replay,
        weights=stage.teachers,
    )
    ranks = np.arange(len(lengths)) if ranks is None else ranks
    return BatchPlan(
        lengths,
        np.ones(len(lengths), np.int64),
        stage,
        epoch_rows=lambda epoch: mixture.epoch_rows(
            groups, lengths, seed=seed, epoch=epoch, order=stage.order, ranks=ranks
        ),
        seed=seed,
        processes=processes,
    )


def rows_of(step: Step) -> list[int]:
    return [row for process in step for micro_batch in process for row in micro_batch]


BUDGETS = [{"batch_size": 16}, {"batch_tokens": 4000}, {"batch_tokens": 4000, "order": "length"}]


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("settings", BUDGETS)
def test_an_epoch_holds_every_row_once(settings: dict, processes: int):
    steps = plan(processes=processes, epochs=2, **settings)
    seen = Counter(chain.from_iterable(rows_of(step) for step in steps))
    assert seen == Counter(dict.fromkeys(range(200), 2))


@pytest.mark.parametrize("settings", [*BUDGETS, {"batch_tokens": 1000}])
@pytest.mark.parametrize("share", [0.001, 0.4, 1, 2.63])
def test_max_tokens_ends_a_stage_at_the_step_that_comes_nearest(settings: dict, share: float):
    wanted = round(share * int(LENGTHS.sum()))
    longer = plan(epochs=4, **settings)
    reached = np.cumsum([LENGTHS[rows_of(step)].sum() for step in longer])
    nearest = int(np.abs(reached - wanted).argmin()) + 1
    found = plan(max_tokens=wanted, max_steps=3, epochs=0.1, **settings)
    assert len(found) == nearest
    assert [rows_of(step) for step in found] == [rows_of(longer[number]) for number in range(nearest)]


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("settings", BUDGETS)
def test_every_process_has_as_many_micro_batches_and_none_is_over_its_budget(settings: dict, processes: int):
    for step in plan(processes=processes, **settings):
        assert len(step) == processes
        assert len({len(process) for process in step}) == 1
        assert all(LENGTHS[rows].sum() <= 1000 for process in step for rows in process)


def test_processes_have_about_as_many_tokens():
    for settings, bound in (({"batch_size": 64}, 1.05), ({"batch_tokens": 16_000}, 1.05)):
        tokens = np.array(
            [
                [sum(LENGTHS[row] for rows in process for row in rows) for process in step]
                for step in plan(processes=2, **settings)
            ]
        )
        assert (tokens.max(1) / tokens.mean(1))[:-1].max() < bound


def test_the_rows_of_a_step_depend_on_seed_and_epoch_and_not_on_lengths_or_memory():
    def steps(lengths=LENGTHS, **settings):
        return [set(rows_of(step)) for step in plan(lengths, batch_size=16, **settings)]

    assert steps() == steps(LENGTHS[::-1].copy()) == steps(micro_batch_tokens=500) == steps(processes=2)
    assert steps() != steps(seed=1)
    two = steps(epochs=2)
    assert two[: len(two) // 2] == steps() and two[len(two) // 2 :] != steps()


@pytest.mark.parametrize("order", ["shuffle", "length"])
def test_the_rows_of_a_step_of_tokens_are_the_same_for_any_number_of_processes(order: str):
    def steps(processes: int) -> list[set[int]]:
        return [set(rows_of(step)) for step in plan(batch_tokens=4000, order=order, processes=processes, epochs=2)]

    assert steps(1) == steps(2) == steps(3) == steps(4) == steps(8)


TOKENS = {"batch_tokens": 800, "micro_batch_tokens": 400}
PINNED = {
    ("samples", 1): "b983a419fcd509eb",
    ("samples", 3): "aad8693e1ff8376a",
    ("tokens", 1): "489c3e328ac8ea7e",
    ("tokens", 3): "ae873862fd8fda18",
    ("length", 1): "d02639abdf42d006",
    ("length", 3): "2a85c80b04695c2b",
}
"""Digests of the plans that the lists of rows gave before rows became arrays."""


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("name", ["samples", "tokens", "length"])
def test_a_plan_is_that_of_earlier_versions_to_the_row(name: str, processes: int):
    settings = {"samples": {"batch_size": 16}, "tokens": TOKENS, "length": TOKENS | {"order": "length"}}[name]
    steps = plan(processes=processes, epochs=1.5, ranks=LENGTHS, **settings)
    digest = hashlib.sha256(json.dumps([steps[number] for number in range(len(steps))]).encode()).hexdigest()
    assert digest[:16] == PINNED[name, processes]


@pytest.mark.parametrize("settings", BUDGETS)
def test_any_step_is_the_same_whether_or_not_those_before_it_were_asked_for(settings: dict):
    whole = list(plan(epochs=3, **settings))
    for step in (len(whole) - 1, 0, len(whole) // 2):
        assert plan(epochs=3, **settings)[step] == whole[step]


def test_steps_and_epochs_add_up():
    half = plan(batch_size=16, epochs=1.5)
    assert len(half) == 13 + 6
    assert half.epoch(13) == 1 and half.epoch(26 - 7) == pytest.approx(1 + 6 / 13)
    longer = plan(batch_size=16, max_steps=40)
    assert len(longer) == 40 and longer.epoch(40) == pytest.approx(3 + 1 / 13)
    with pytest.raises(IndexError):
        longer[40]


def test_a_curriculum_is_followed_step_by_step():
    ordered = [rows_of(step) for step in plan(batch_size=16, order="data")]
    assert [sorted(rows) for rows in ordered] == [list(range(at, min(200, at + 16))) for at in range(0, 200, 16)]
    easy = [rows_of(step) for step in plan(batch_size=16, order="difficulty", ranks=-LENGTHS)]
    assert all(min(LENGTHS[rows]) >= max(LENGTHS[after]) for rows, after in pairwise(easy))


@pytest.mark.parametrize(("order", "ranks"), [("data", np.arange(200)), ("length", LENGTHS)])
def test_replayed_rows_come_all_along_a_curriculum(order: str, ranks: np.ndarray):
    sources = ["traces"] * 150 + ["instruct"] * 50
    found = plan(sources=sources, replay={"instruct": 0.25}, order=order, ranks=ranks, batch_size=8)
    steps = [rows_of(step) for step in found]
    own = [ranks[[row for row in rows if row < 150]] for rows in steps]
    assert sum(map(len, own)) == 150 and all(max(before) <= min(after) for before, after in pairwise(own))
    replayed = [sum(row >= 150 for row in rows) for rows in steps]
    assert min(replayed[:-1]) >= 1 and max(replayed) <= 4


def test_packs_of_a_budget_are_full():
    chance = np.random.default_rng(1)
    lengths = np.clip(chance.lognormal(5, 0.8, 5000), 20, 2000).astype(int)
    stage = Stage(name="s", data="traces", train=("language",), micro_batch_tokens=8192, batch_tokens=32_768)
    packed = BatchPlan(lengths, np.ones(5000, np.int64), stage, epoch_rows=lambda epoch: np.arange(5000), seed=0)
    assert packed.fill() > 0.97


def shares(steps: BatchPlan, names: list[str]) -> dict[str, float]:
    tokens: Counter[str] = Counter()
    for step in steps:
        for row in rows_of(step):
            tokens[names[row]] += int(LENGTHS[row])
    return {name: count / sum(tokens.values()) for name, count in tokens.items()}


def test_teachers_get_the_shares_of_the_tokens_that_were_asked_for():
    found = shares(plan(epochs=20, teachers={"structured": 2, "reader": 1}), TEACHERS)
    assert found == {"structured": pytest.approx(2 / 3, abs=0.01), "reader": pytest.approx(1 / 3, abs=0.01)}


def test_replayed_rows_take_their_share_and_the_stages_own_rows_still_come_once():
    sources = ["traces"] * 150 + ["instruct"] * 50
    steps = plan(sources=sources, replay={"instruct": 0.1}, epochs=4, batch_size=8)
    found = shares(steps, sources)
    assert found["instruct"] == pytest.approx(0.1, abs=0.01)
    seen = Counter(chain.from_iterable(rows_of(step) for step in steps))
    assert all(seen[row] == 4 for row in range(150))
    assert max(seen[row] for row in range(150, 200)) - min(seen[row] for row in range(150, 200)) <= 1


def test_a_share_of_less_than_a_token_takes_nothing():
    sources = ["traces"] * 150 + ["instruct"] * 50
    steps = plan(sources=sources, replay={"instruct": 1e-6}, epochs=2, batch_size=8)
    assert {row for step in steps for row in rows_of(step)} == set(range(150))


def test_a_share_for_rows_that_are_not_there_is_an_error():
    with pytest.raises(TooFewRows, match=r"teachers\.poet has a share of the tokens"):
        plan(teachers={"poet": 1})


@pytest.mark.parametrize("name", ["captions", "instruct"])
def test_packs_of_the_tiny_recipe_are_full(name: str):
    import torch

    from distill.recipe.loading import load
    from student.data import encode, rows
    from student.data.images import ImageStore
    from student.models import inputs
    from student.models.siq_vl import build

    recipe = load("tiny")
    assets = recipe.path.parent / "tiny"
    model, processor = build(str(assets / "tower"), str(assets / "decoder"), 2)
    stage = recipe.stages[0].model_copy(
        update={"data": name, "limit": 1500, "replay": {}, "batch_tokens": 16_384, "max_steps": None}
    )
    examples = encode.encode(
        rows.read(recipe, assets, stage, Counter()),
        encode.Encoder(processor, inputs.end_ids(model)),
        ImageStore(processor, torch.float32),
        encode.RowLimits(stage.max_length, 10**6),
    )
    packed = BatchPlan(
        examples.columns.lengths,
        examples.columns.images,
        stage,
        epoch_rows=lambda epoch: np.arange(len(examples)),
        seed=0,
    )
    # The last pack of an epoch is what is left over.
    last = sum(examples.lengths) % stage.pass_tokens
    bins = [rows for step in packed for process in step for rows in process]
    tokens = [sum(examples.lengths[row] for row in rows) for rows in bins]
    full = sorted(tokens, reverse=True)[: len(tokens) - bool(last)]
    assert sum(full) / (len(full) * stage.pass_tokens) > 0.97


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"max_tokens": 10**15, "batch_size": 16}, "max_tokens = 1,000,000,000,000,000"),
        ({"max_tokens": 10**15, "batch_tokens": 4000}, "max_tokens = "),
        ({"epochs": 100_000, "batch_size": 1}, "epochs = 100,000"),
        ({"max_steps": 10_000_000, "batch_size": 200}, "max_steps = 10,000,000"),
    ],
)
def test_a_stage_of_an_endless_plan_is_refused_before_it_is_planned(settings: dict, named: str):
    with pytest.raises(RecipeError, match=f"stage 's': {named}.*lower {named.split(' ')[0]}"):
        plan(**settings)
    for endless in ({"epochs": 1e9}, {"max_steps": 10**12}):
        with pytest.raises(ValidationError, match="less than or equal to"):
            plan(batch_size=16, **endless)
