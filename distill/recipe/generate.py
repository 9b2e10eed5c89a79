"""The `[generate]` section of a recipe: what belongs to no single teacher."""

from typing import Literal

from pydantic import Field

from distill.recipe.base import Section, Share

OutcomePolicy = Literal["keep", "resample", "raise_cap", "budget", "drop"]


class Outcomes(Section):
    """What follows a trace that ended in some way.

    keep: it stays as it is. resample: asked again with a new seed. raise_cap: asked again with `max_tokens` times
    `cap_factor`. budget: asked again with a thinking budget of `budget_share` of max_tokens (vLLM only). drop: it
    stays in the journals, and later stages don't see it. What was asked again is replaced by its last attempt.
    """

    truncated_thinking: OutcomePolicy = "keep"
    truncated_answer: OutcomePolicy = "keep"
    empty_answer: OutcomePolicy = "resample"
    repetition: OutcomePolicy = "resample"
    refusal: OutcomePolicy = "keep"
    malformed: OutcomePolicy = "resample"
    attempts: int = Field(default=2, ge=1, le=16)
    """Most attempts at one trace, the first included."""
    cap_factor: float = Field(default=2.0, gt=1)
    budget_share: float = Field(default=0.5, gt=0, lt=1)

    @property
    def policies(self) -> frozenset[str]:
        """The policies in use."""
        return frozenset(value for value in self.model_dump().values() if isinstance(value, str))


class Generate(Section):
    """Settings of the generate stage that belong to no single teacher."""

    outcomes: Outcomes = Outcomes()

    flush_interval_s: float = Field(default=0.2, gt=0)
    """Longest time a finished trace may wait for its fsync."""
    max_failure_share: Share = 0.5
    """Of the last 100 requests; more failures than this open the circuit breaker (exit 3)."""
    patience_s: float = Field(default=900.0, ge=0)
    """How long to wait for a server or a folder of images that is away for all rows; then the run stops (exit 3)."""
