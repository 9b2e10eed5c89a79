"""What tokens count, worked by hand, and the head's gradients against autograd's."""

from pathlib import Path

import numpy as np
import pytest
import torch

from distill.recipe.sections.stages import Loss, SpanWeights
from student.data.encoded_rows import Example
from student.data.responses import ANSWER, FORMAT, RATIONALE
from student.data.rows import TrainingRow
from student.loss import token_weights, training_loss


def example(rationale: int, answer: int, form: int, weight: float = 1.0) -> Example:
    kinds = np.array([RATIONALE] * rationale + [ANSWER] * answer + [FORMAT] * form, dtype=np.uint8)
    row = TrainingRow(id="r", images=(), question="", response="", weight=weight)
    return Example(row=row, ids=np.zeros(len(kinds) + 1, np.int32), begin=1, kinds=kinds)


def weights(examples, settings: Loss, progress: float = 0.0) -> list[list[float]]:
    of_step = token_weights.StepWeights(examples, settings, progress)
    return [pytest.approx(of_step(each).tolist()) for each in examples]


def test_by_default_every_token_of_the_step_has_the_same_weight():
    assert weights([example(3, 1, 2), example(0, 2, 0)], Loss()) == [[1 / 8] * 6, [1 / 8] * 2]


def test_parts_of_a_response_count_by_their_weights():
    settings = Loss(rationale=0.5, answer=2, format=0)
    assert weights([example(2, 1, 1)], settings) == [[0.5 / 3, 0.5 / 3, 2 / 3, 0]]


def test_a_long_rationale_does_not_drown_an_answer_when_spans_are_averaged():
    settings = Loss(normalise="spans", format=0)
    assert weights([example(4, 1, 2)], settings) == [[1 / 8] * 4 + [1 / 2, 0, 0]]
    assert weights([example(4, 1, 0), example(0, 2, 0)], settings) == [[1 / 12] * 4 + [1 / 3], [1 / 6] * 2]


def test_rows_count_by_the_datasets_weights_unless_the_recipe_says_otherwise():
    rows = [example(0, 1, 0, weight=3), example(0, 1, 0)]
    assert weights(rows, Loss()) == [[3 / 4], [1 / 4]]
    assert weights(rows, Loss(sample_weights=False)) == [[1 / 2], [1 / 2]]


def test_weights_move_from_the_first_step_to_the_last():
    settings = Loss(final=SpanWeights(rationale=0, answer=3))
    halfway = token_weights.kind_weights(settings, 0.5)
    assert halfway.tolist() == [0.5, 2, 1]
    assert token_weights.kind_weights(settings, 1).tolist() == [0, 3, 1]


def test_a_step_in_which_nothing_counts_has_no_loss_and_is_no_error():
    assert weights([example(0, 0, 2)], Loss(format=0)) == [[0, 0]]


@pytest.mark.parametrize("chunk", [1, 7, 1000])
@pytest.mark.parametrize("bias", [False, True])
def test_the_heads_gradients_are_autograds(chunk: int, bias: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    torch.manual_seed(0)
    head = torch.nn.Linear(6, 11, bias=bias).double()
    hidden = torch.randn(20, 6, dtype=torch.float64, requires_grad=True)
    labels, counted = torch.randint(0, 11, (20,)), torch.rand(20, dtype=torch.float64)
    monkeypatch.setattr(training_loss, "_LOGITS", 11 * chunk)

    def extra(logits: torch.Tensor, part: slice) -> torch.Tensor:
        return 0.1 * (logits**2).mean(1).mul(counted[part]).sum()

    plain = head(hidden)
    expected = (torch.nn.functional.cross_entropy(plain, labels, reduction="none") * counted).sum()
    expected = expected + 0.1 * ((plain**2).mean(1) * counted).sum()
    expected.backward()
    theirs = [hidden.grad.clone(), *(p.grad.clone() for p in head.parameters())]
    hidden.grad = None
    head.zero_grad()
    scored = training_loss.score(head, hidden, labels, counted, extra)
    (3 * scored.loss).backward()
    assert scored.loss.item() == pytest.approx(expected.item(), rel=1e-5)
    for ours, slope in zip([hidden.grad, *(p.grad for p in head.parameters())], theirs, strict=True):
        torch.testing.assert_close(ours, 3 * slope, rtol=1e-4, atol=1e-5)
    assert torch.equal(scored.right, plain.argmax(1) == labels)


def test_a_frozen_head_gets_no_gradient():
    head = torch.nn.Linear(4, 5).requires_grad_(False)
    hidden = torch.randn(3, 4, requires_grad=True)
    training_loss.score(head, hidden, torch.tensor([0, 1, 2]), torch.ones(3)).loss.backward()
    assert head.weight.grad is None and hidden.grad is not None


def test_bent_logits_have_the_loss_and_gradients_of_the_model_that_bends_them():
    torch.manual_seed(0)
    head, hidden = torch.nn.Linear(8, 30), torch.randn(5, 8, requires_grad=True)
    labels, weights = torch.tensor([3, 0, 29, 7, 7]), torch.rand(5)
    with torch.no_grad():
        head.weight.mul_(8)  # far into the bend

    def gradients(loss: torch.Tensor) -> list[torch.Tensor]:
        return list(torch.autograd.grad(loss, [hidden, head.weight, head.bias]))

    logits = torch.tanh(head(hidden) / 2) * 2
    assert float(logits.detach().abs().max()) > 1.9
    expected = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    scored = training_loss.score(head, hidden, labels, weights, cap=2.0)
    torch.testing.assert_close(scored.nll, expected.detach())
    for mine, theirs in zip(gradients(scored.loss), gradients(expected @ weights), strict=True):
        torch.testing.assert_close(mine, theirs)
