"""What every section of a recipe is made of: the strict base model, its keys, and the shared kinds of values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.annotated_handlers import GetCoreSchemaHandler, GetJsonSchemaHandler

from distill.extensions import problem
from distill.local_paths import address_problem, is_store_address, store_problem

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=100)]
Share = Annotated[float, Field(ge=0, le=1)]
Dtype = Literal["float32", "bfloat16", "float16"]

EFFECTS: Mapping[str, str] = {
    "traces": "this teacher generates its traces again",
    "engine": "traces of a server that the run starts are refused until the folder of the teacher is moved away",
    "generate": "generate runs again; traces that are still wanted stay",
    "source": "every stage that reads this source runs again",
    "signals": "this signal is measured again",
    "filter": "decisions and dataset are made again; valid signals stay",
    "card": "card and exports of the dataset are written again",
    "train": "the stages that use this key, and those that start from them, are trained again",
    "eval": "students are evaluated again",
    "rounds": "the rounds after round 0 that depend on the key are made again",
    "ablate": "the results of the ablation are written again; finished arms stay",
}
"""What a change of a key makes stale, in the order of the pipeline. `traces` includes `generate`, `signals` includes
`filter`. What follows downstream is left out: filter starts from generate, and so on."""

_INCLUDED = {"traces": ("generate",), "signals": ("filter",)}


def key(
    default: Any,
    description: str,
    *,
    affects: str = "",
    because: str = "",
    compared_by: str = "",
    omit_default: str = "",
    spares: str = "",
    overridden_by: str = "",
    usual: tuple[Any, ...] = (),
    **constraints: Any,
) -> Any:
    """A key of a recipe: default (`...`: required), description, and what a change of it makes stale.

    `affects` names entries of EFFECTS; a key without any says in `because` why no result depends on it. A fingerprint
    holds the values of the keys that affect it (`distill.recipe.effects`), with two exceptions: `compared_by` names
    the thing that is compared instead of the value, such as the content of a file. The effects in `omit_default`
    leave a default out, so a new key changes no old fingerprint. `spares` names stages that read the section and not
    this key, and `overridden_by` keys beside it that decide alone where they are set: a finished stage then stays,
    though its fingerprint holds the value (student/training/noted_fields.py). A key that holds a section has the
    effects of its keys. `usual` is for hints and the diagnosis (distill/recipe/usual_values.py): two numbers are the
    ends of a range (None: no upper end), anything else lists values.
    """
    affected = affects.split()
    if unknown := [name for name in affected if name not in EFFECTS]:
        raise ValueError(f"{description}: affects {unknown}, which EFFECTS does not name")
    everything = {*affected, *(more for name in affected for more in _INCLUDED.get(name, ()))}
    extra: dict[str, Any] = {"affects": [name for name in EFFECTS if name in everything]}
    extra |= {"because": because} if because else {}
    extra |= {"compared_by": compared_by} if compared_by else {}
    lists = {"omit_default": omit_default, "spares": spares, "overridden_by": overridden_by}
    extra |= {name: listed.split() for name, listed in lists.items() if listed}
    extra |= {"usual": list(usual)} if usual else {}
    return Field(default, description=description, json_schema_extra=extra, **constraints)


generate_key = partial(key, affects="generate")
"""A key that decides which traces there are."""
train_key = partial(key, affects="train")
"""A key that decides what a stage learns."""


_NAME_BYTES = 255
"""Longest name of a file or folder that the usual file systems allow."""


def _not_too_long(value: str) -> str:
    if long := next((name for name in value.split("/") if len(name.encode()) > _NAME_BYTES), None):
        raise ValueError(
            f"a path holds no name of {len(long.encode()):,} bytes, {_NAME_BYTES} at most: {long:.40}..."
        )
    return value


def _not_an_address(value: str) -> str:
    if problem := address_problem(value):
        raise ValueError(problem)
    return _not_too_long(value)


LocalOrHub = Annotated[str, AfterValidator(_not_an_address)]
"""A path of this machine, or where one is possible the name of a hub."""


def _place(value: str) -> str:
    if problem := store_problem(value) if is_store_address(value) else address_problem(value):
        raise ValueError(problem)
    return _not_too_long(value)


Place = Annotated[str, AfterValidator(_place)]
"""A path of this machine, the name of a hub, or the address of a store."""


@dataclass(frozen=True, slots=True)
class NameOrCode:
    """Marks a text that is one of the project's own names (`known`), FILE.py:NAME, or an entry point of a package."""

    group: str
    known: Sequence[str] = ()

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return AfterValidator(self._checked).__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Editors offer the project's names."""
        own, other = {"type": "string", "enum": list(self.known)}, {"type": "string", "examples": ["mine.py:Name"]}
        return {"anyOf": [own, other]} if self.known else handler(schema)

    def _checked(self, value: str) -> str:
        if wrong := problem(self.group, value, self.known):
            raise ValueError(wrong)
        return value


class Section(BaseModel):
    """A part of a recipe: unknown keys are errors, values never change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class LicensedCard(Section):
    """A card with a licence. Each card says what a change of these keys makes stale."""

    license: str
    license_name: str | None
    license_link: str | None

    @model_validator(mode="after")
    def _one_license(self) -> Self:
        if self.license != "other" and (self.license_name or self.license_link):
            raise ValueError(f"license_name and license_link go with license = 'other', not {self.license!r}")
        return self
