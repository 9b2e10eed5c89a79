"""The recipe's section about held-out evaluation.

Part of the recipe models: distill/recipe/recipe.py checks what refers to what.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Literal, Self

from pydantic import model_validator

from distill.errors import RecipeError
from distill.extensions import METRICS
from distill.local_paths import from_home
from distill.rationale import NO_THINK
from distill.recipe.base import LocalOrHub, Name, NameOrCode, Section, key

eval_key = partial(key, affects="eval")
BASE = "base"
"""The student before any stage, where a stage could be named."""
FEW_QUESTIONS = 100
"""With fewer questions the interval of an accuracy is wider than 20 points."""

MetricEntry = Annotated[str, NameOrCode(METRICS)]


class AnyStudent(Section):
    """A student that was not trained by this recipe."""

    model: LocalOrHub = eval_key(
        ..., "Directory (checkpoint or export) or hub name; with base_url the name that the server knows it by."
    )
    revision: str | None = eval_key(None, "Revision (branch, tag or commit) of a hub name; default: the newest.")
    adapter: LocalOrHub | None = eval_key(None, "Directory of a PEFT adapter for `model`.")
    base_url: str | None = eval_key(
        None, "An OpenAI-compatible server of this model, such as http://127.0.0.1:8000/v1."
    )
    api_key_env: str | None = key(
        None,
        "Name of the environment variable that holds the server's key; the key itself never enters a recipe.",
        because="it says where the key is",
    )

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.base_url is not None and (self.adapter is not None or self.revision is not None):
            raise ValueError("base_url: a server decides adapter and revision of its model; leave them out")
        if self.api_key_env is not None and self.base_url is None:
            raise ValueError("api_key_env is for a server; it needs base_url")
        return self


class Eval(Section):
    """Held-out evaluation: which stages' students answer which questions."""

    data: str = key("test", "The source whose questions are asked.", affects="signals eval")
    max_new_tokens: int = eval_key(512, "Largest number of tokens of a reply.", ge=1, usual=(32, None))
    batch_size: int = eval_key(32, "Number of questions answered at once by an embedded student.", ge=1)
    arms: Mapping[Name, Name] = eval_key(
        {},
        'Arm name and stage name, or "base" for the student before any stage; default: every stage but the first, '
        "under its own name.",
        compared_by="the student of each arm",
    )
    students: Mapping[Name, AnyStudent] = key(
        {},
        "Further arms: students that were not trained by this recipe.",
        compared_by="what each student is, wherever it lies",
    )
    engine: Literal["embedded", "vllm"] = eval_key(
        "embedded",
        "embedded: students answer in this process. vllm: every arm is exported, and served while it is asked.",
    )
    temperature: float = eval_key(
        0.0,
        "0: greedy replies. Larger: each reply is sampled at this temperature, from `seed`; embedded students only.",
        omit_default="eval",
        ge=0,
        usual=(0, 1),
    )
    think: bool = eval_key(
        True,
        'False: questions end with "/no_think"; for students that learned this mode with stages.no_think.',
        usual=(True,),
    )
    without_image: bool = eval_key(
        True,
        "Also ask every question with images without its images, to measure what the images contribute. A change "
        "keeps the replies with images.",
        compared_by="a count of the manifest",
    )
    allow_overlap: bool = key(
        False,
        "Continue although training data contains images or questions of evaluation data.",
        because="it only says whether an overlap with the training data is refused; the overlap is always counted",
        usual=(False,),
    )
    metrics: tuple[MetricEntry, ...] = eval_key(
        (),
        'Metrics of your own: "FILE.py:NAME", or entry points of packages. A change scores the stored replies '
        "again; no student is asked.",
        compared_by="the code of each metric",
        strict=False,
    )
    gallery: int = key(
        24,
        "Number of questions that the report shows with images.",
        because="it changes only how many questions the page shows; the page is written again",
        ge=0,
    )

    @property
    def ending(self) -> str:
        """What questions to a student end with: one of two modes is asked for in the words that it learned."""
        return "" if self.think else NO_THINK

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        both = sorted(set(self.arms) & set(self.students))
        if both:
            raise ValueError(f"students and arms share names: {', '.join(both)}")
        served = self.engine != "embedded" or any(each.base_url is not None for each in self.students.values())
        if self.temperature and served:
            raise ValueError(
                f"temperature = {self.temperature:g} works for embedded students only, and some students are "
                'served; set it to 0, or engine = "embedded" without eval.students that have a base_url'
            )
        return self


def student_values(arguments: Sequence[str]) -> dict[str, str]:
    """What --student says as the recipe's keys and values (JSON). Raises RecipeError."""
    pairs: dict[str, str] = {}
    for text in arguments:
        name, equals, setting = text.partition("=")
        url, _, model = setting.partition("#")
        served = url.startswith(("http://", "https://"))
        if not (name and equals and setting) or "." in name or (served and not model):
            raise RecipeError(
                f"--student {text}: write NAME=FOLDER, NAME=HUB_NAME or NAME=URL#MODEL, such as "
                "big=http://127.0.0.1:8000/v1#Qwen3-VL-8B; a name has no dot"
            )
        path = from_home(setting)
        values = (
            {"base_url": url, "model": model}
            if served
            else {"model": str(path.resolve() if path.exists() else setting)}
        )
        pairs |= {f"eval.students.{name}.{key}": json.dumps(value) for key, value in values.items()}
    return pairs
