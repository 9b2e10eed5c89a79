"""The `[generate]` section of a recipe: what belongs to no single teacher."""

from typing import Literal

from distill.recipe.base import Section, Share, generate_key, key

OutcomePolicy = Literal["keep", "resample", "raise_cap", "budget", "drop"]


class Outcomes(Section):
    """What follows a trace that ended in some way.

    keep: it stays as it is. resample: asked again with a new seed. raise_cap: asked again with `max_tokens` times
    `cap_factor`. budget: asked again with a thinking budget of `budget_share` of max_tokens (vLLM only). drop: it
    stays in the journals, and later stages don't see it. What was asked again is replaced by its last attempt.
    """

    truncated_thinking: OutcomePolicy = generate_key(
        "keep", "What follows a trace that reached max_tokens inside the thinking."
    )
    truncated_answer: OutcomePolicy = generate_key(
        "keep", "What follows a trace that reached max_tokens inside the answer."
    )
    empty_answer: OutcomePolicy = generate_key(
        "resample", "What follows a trace that ended inside the thinking or has no answer."
    )
    repetition: OutcomePolicy = generate_key("resample", "What follows a trace that repeats itself without end.")
    refusal: OutcomePolicy = generate_key("keep", "What follows a trace that declines to answer.")
    malformed: OutcomePolicy = generate_key("resample", "What follows a trace whose thinking tags do not match.")
    attempts: int = generate_key(
        2, "Largest number of attempts at one trace, the first included.", ge=1, le=16, usual=(1, 5)
    )
    cap_factor: float = generate_key(
        2.0, "raise_cap: the next attempt has max_tokens times this factor.", gt=1, usual=(1.2, 8)
    )
    budget_share: float = generate_key(
        0.5,
        "budget: the next attempt has a thinking budget of this share of max_tokens.",
        gt=0,
        lt=1,
        usual=(0.1, 0.95),
    )

    @property
    def policies(self) -> frozenset[str]:
        return frozenset(value for value in self.model_dump().values() if isinstance(value, str))


class Generate(Section):
    """Settings of the generate stage that belong to no single teacher."""

    outcomes: Outcomes = key(Outcomes(), "What follows a trace that ended badly.")
    flush_interval_s: float = key(
        0.2,
        "Longest time in seconds until a finished trace is safe on disk.",
        because="it changes only how soon a trace is durable",
        gt=0,
    )
    max_failure_share: Share = key(
        0.5,
        "Largest share of failures among the last 100 requests; more of them stop the run (exit code 3).",
        because="it changes only when a run stops early; the next run continues",
    )
    patience_s: float = key(
        900.0,
        "How many seconds to wait for a server or a folder of images that is away for all rows; then the run stops "
        "(exit code 3).",
        because="it changes only how long the run waits; requests that waited are asked again",
        ge=0,
    )
