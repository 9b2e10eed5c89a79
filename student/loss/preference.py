"""Direct preference optimisation of pairs of replies (arXiv 2305.18290), from the likelihoods of their tokens.

    loss of a pair = -log sigmoid(r_right - r_wrong),   r = beta (log p(reply) - log p_reference(reply))

The reference is the student that the stage starts from; its log-probabilities are computed before the stage trains.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class PairLoss:
    """The loss of the pairs of one pass; a `student.loss.training_loss.Joint`."""

    reply: torch.Tensor
    """The reply that a scored position belongs to, int64[positions]: twice the pair, plus 1 for the wrong one."""
    reference: torch.Tensor
    """Log-probabilities of the replies before the stage, float32[2 * pairs]."""
    weights: torch.Tensor
    """Weight of each pair, float32[pairs]; the weights of a step sum to one."""
    beta: float

    def rewards(self, nll: torch.Tensor) -> torch.Tensor:
        """Rewards of the right and the wrong reply of each pair, float32[pairs, 2]."""
        log_probs = torch.zeros_like(self.reference).index_add_(0, self.reply, -nll)
        return self.beta * (log_probs - self.reference).view(-1, 2)

    def __call__(self, nll: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss, and its slope at each position."""
        right, wrong = self.rewards(nll).unbind(1)
        value = -(self.weights * torch.nn.functional.logsigmoid(right - wrong)).sum()
        slope = self.weights * self.beta * torch.sigmoid(wrong - right)
        return value, torch.stack([slope, -slope], 1).flatten()[self.reply]

    def measures(self, nll: torch.Tensor) -> dict[str, torch.Tensor]:
        """What this pass adds to the step's means: rewards, their margin, and how often the right reply wins."""
        right, wrong = self.rewards(nll).unbind(1)
        return {
            "preference_loss": self(nll)[0],
            "reward_right": self.weights @ right,
            "reward_wrong": self.weights @ wrong,
            "reward_margin": self.weights @ (right - wrong),
            "reward_accuracy": self.weights @ (right > wrong).float(),
        }
