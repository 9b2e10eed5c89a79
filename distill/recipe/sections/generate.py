"""The `[generate]` section of a recipe: what belongs to no single teacher."""

from typing import Literal

from distill.recipe.base import Section, Share, generate_key, key

OutcomePolicy = Literal["keep", "resample", "raise_cap", "budget", "drop"]


class Outcomes(Section):
    """What the run does with a trace, by its outcome. keep: keep the trace. resample: ask again with a new seed.
    raise_cap: ask again with `max_tokens` times `cap_factor`. budget: ask again with a thinking budget of
    `budget_share` of max_tokens (vLLM only). drop: the trace stays in the journals, but later stages do not see it.
    If a trace has several attempts, the last one counts.
    """

    truncated_thinking: OutcomePolicy = generate_key(
        "keep", "Policy for a trace that reached max_tokens inside the thinking."
    )
    truncated_answer: OutcomePolicy = generate_key(
        "keep", "Policy for a trace that reached max_tokens inside the answer."
    )
    empty_answer: OutcomePolicy = generate_key(
        "resample", "Policy for a trace that ended inside the thinking or has no answer."
    )
    repetition: OutcomePolicy = generate_key("resample", "Policy for a trace that repeats itself without end.")
    refusal: OutcomePolicy = generate_key("keep", "Policy for a trace that declines to answer.")
    malformed: OutcomePolicy = generate_key("resample", "Policy for a trace whose thinking tags do not match.")
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

    outcomes: Outcomes = key(Outcomes(), "What the run does with traces that are not complete.")
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
        "Longest time in seconds to wait for a server or an image folder that is not available for any row; then "
        "the run stops (exit code 3).",
        because="it changes only how long the run waits; requests that waited are sent again",
        ge=0,
    )
