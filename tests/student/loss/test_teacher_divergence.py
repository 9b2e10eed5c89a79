"""Divergence from a teacher's likeliest tokens: the full KL where all are known, never more, safe at the edges."""

import itertools
import math

import pytest
import torch

from student.loss.teacher_divergence import from_teacher, topk_divergence

VOCABULARY = 50


def distributions(positions: int = 6, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of a student and log-probabilities of a teacher, both over the whole vocabulary."""
    torch.manual_seed(0)
    student = 3 * torch.randn(positions, VOCABULARY, dtype=dtype)
    teacher = (3 * torch.randn(positions, VOCABULARY, dtype=dtype)).log_softmax(-1)
    return student, teacher


def full(logits: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    return (teacher.exp() * (teacher - logits.log_softmax(-1))).sum(-1)


def bucketed(logits: torch.Tensor, ids: torch.Tensor, logprobs: torch.Tensor) -> torch.Tensor:
    """The definition, word for word, for autograd; every place known."""
    student = logits.log_softmax(-1).gather(1, ids)
    rest, rest_student = 1 - logprobs.exp().sum(-1), 1 - student.exp().sum(-1)
    return (logprobs.exp() * (logprobs - student)).sum(-1) + rest * (rest.log() - rest_student.log())


def gradient(values: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    weights = torch.arange(1, len(values) + 1, dtype=values.dtype)
    (found,) = torch.autograd.grad((values * weights).sum(), logits)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_with_every_token_known_it_is_the_kl_over_the_vocabulary(dtype: torch.dtype) -> None:
    logits, teacher = distributions(dtype=dtype)
    logits.requires_grad_()
    logprobs, ids = teacher.sort(descending=True)
    found = topk_divergence(logits, ids, logprobs)
    assert torch.allclose(found, full(logits, teacher), rtol=1e-6, atol=1e-6)
    assert torch.allclose(gradient(found, logits), gradient(full(logits, teacher), logits), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("k", [1, 5, VOCABULARY - 1])
def test_values_and_gradients_are_those_of_the_definition(k: int) -> None:
    logits, teacher = distributions()
    logits.requires_grad_()
    logprobs, ids = teacher.topk(k)
    found, expected = topk_divergence(logits, ids, logprobs), bucketed(logits, ids, logprobs)
    assert torch.allclose(found, expected, rtol=1e-10, atol=1e-12)
    assert torch.allclose(gradient(found, logits), gradient(expected, logits), rtol=1e-9, atol=1e-12)
    assert torch.autograd.gradcheck(lambda given: topk_divergence(given, ids, logprobs), (logits,))


def test_more_known_tokens_only_add_and_never_more_than_the_full_kl() -> None:
    logits, teacher = distributions()
    values = [topk_divergence(logits, *reversed(teacher.topk(k))) for k in range(1, VOCABULARY + 1)]
    assert all((later >= earlier - 1e-12).all() for earlier, later in itertools.pairwise(values))
    assert (values[0] >= 0).all() and torch.allclose(values[-1], full(logits, teacher))


def test_a_student_equal_to_the_teacher_has_neither_divergence_nor_gradient() -> None:
    _, teacher = distributions(dtype=torch.float32)
    logits = (teacher + 5).requires_grad_()
    logprobs, ids = teacher.topk(4)
    found = topk_divergence(logits, ids, logprobs)
    assert found.abs().max() < 1e-6 and gradient(found, logits).abs().max() < 1e-5


def test_empty_places_and_unknown_tokens_fall_to_the_rest() -> None:
    logits, teacher = distributions()
    logits.requires_grad_()
    logprobs, ids = teacher.topk(3)
    nothing = torch.full_like(ids[:, :1], -1)
    token_0, unknown = torch.zeros_like(nothing), torch.full_like(nothing, VOCABULARY)
    wider_ids = torch.cat([nothing, ids, token_0, unknown], dim=1)
    empty = torch.full_like(logprobs[:, :1], -torch.inf)
    wider = torch.cat([empty, logprobs, empty, torch.full_like(empty, math.log(1e-3))], dim=1)
    found, expected = topk_divergence(logits, wider_ids, wider), topk_divergence(logits, ids, logprobs)
    assert torch.equal(found, expected)
    assert torch.equal(gradient(found, logits), gradient(expected, logits))


def test_a_position_about_which_the_teacher_says_nothing_contributes_exactly_nothing() -> None:
    logits, teacher = distributions()
    logits.requires_grad_()
    logprobs, ids = teacher.topk(3)
    ids[2], logprobs[2] = -1, -torch.inf
    found = topk_divergence(logits, ids, logprobs)
    assert found[2] == 0 and (found[[0, 1, 3, 4, 5]] > 0).all()
    assert (gradient(found, logits)[2] == 0).all()


@pytest.mark.parametrize("gap", [0.0, 30.0, 200.0, 1e4])
@pytest.mark.parametrize("told", [0.0, -1e-4, -1e-3, -20.0])
def test_it_is_finite_and_its_gradient_exact_when_hardly_anything_remains_on_either_side(
    gap: float, told: float
) -> None:
    """`told` as rounded by the store: probabilities may sum to more than one, to one, or to nearly nothing."""
    logits = torch.zeros(2, VOCABULARY)
    logits[0, 7] = gap  # sure of the teacher's token
    logits[1, 8] = gap  # sure of another one
    logits.requires_grad_()
    ids = torch.tensor([[7, 3], [7, 3]])
    logprobs = torch.tensor([[told, -8.0], [told, -8.0]])
    found = topk_divergence(logits, ids, logprobs)
    slope = gradient(found, logits)
    assert found.isfinite().all() and slope.isfinite().all() and (found > -1e-6).all()
    # Of a shift of all logits nothing remains, and no token is pulled harder than from one to none.
    assert slope.sum(-1).abs().max() < 1e-5 and slope.abs().max() <= 2 + 1e-5
    # The student that is sure of a wrong token is pulled to the teacher's by the whole probability.
    if gap >= 30 and told == 0:
        assert slope[1, 7] == pytest.approx(-2, abs=1e-3) and slope[1, 8] == pytest.approx(2, abs=1e-3)


def test_a_student_surer_than_single_precision_can_say_still_gets_the_teacher_s_rest() -> None:
    """1 - sum(q) would be exactly 0 here, and its logarithm infinite."""
    logits = torch.zeros(1, VOCABULARY)
    logits[0, 7] = 40.0
    ids, logprobs = torch.tensor([[7]]), torch.tensor([[math.log(0.9)]])
    found = topk_divergence(logits.requires_grad_(), ids, logprobs)
    rest = math.log(VOCABULARY - 1) - 40
    assert found.item() == pytest.approx(0.9 * math.log(0.9) + 0.1 * (math.log(0.1) - rest), rel=1e-5)
    slope = gradient(found, logits)
    assert slope[0, 7].item() == pytest.approx(0.1, rel=1e-4)
    assert torch.allclose(slope[0, :7], torch.full((7,), -0.1 / (VOCABULARY - 1)), rtol=1e-4)


def test_the_loss_of_a_pass_is_the_weighted_sum_over_its_parts() -> None:
    logits, teacher = distributions()
    logprobs, ids = teacher.topk(3)
    weights = torch.arange(6, dtype=torch.float64)
    extra = from_teacher(ids, logprobs, weights)
    expected = topk_divergence(logits, ids, logprobs) @ weights
    assert torch.allclose(extra(logits, slice(None)), expected)
    assert torch.allclose(extra(logits[:4], slice(0, 4)) + extra(logits[4:], slice(4, 8)), expected)
