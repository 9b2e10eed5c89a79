"""The whole recipe: every section, and what refers to what.

Every default of the toolkit lives in the section models and nowhere else. distill/recipe/loading.py reads the file.
Paths stay as written; `Recipe.local()` resolves one against the recipe's folder.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Self

import tomli_w
from pydantic import Field, model_validator

from distill import redact
from distill.recipe.ablate import Ablate
from distill.recipe.base import Name, Section
from distill.recipe.data import DataSource
from distill.recipe.eval import BASE, Eval
from distill.recipe.filter import ARMS, Filter
from distill.recipe.generate import Generate
from distill.recipe.messages import unknown_value
from distill.recipe.stages import Stage
from distill.recipe.student import Student
from distill.recipe.teachers import Teacher


class Recipe(Section):
    """A whole run. A command needs only the sections that it uses."""

    seed: int = Field(default=0, ge=0, lt=2**31)
    data: Mapping[Name, DataSource] = Field(default_factory=dict)
    teachers: tuple[Teacher, ...] = Field(default=(), strict=False)
    generate: Generate = Generate()
    filter: Filter = Filter()
    student: Student | None = None
    stages: tuple[Stage, ...] = Field(default=(), strict=False)
    eval: Eval = Eval()
    ablate: Ablate = Ablate()

    _path: Path = Path("recipe.toml")

    @model_validator(mode="after")
    def _references(self) -> Self:
        for kind, names in (
            ("teachers", [teacher.name for teacher in self.teachers]),
            ("stages", [stage.name for stage in self.stages]),
        ):
            repeated = sorted({name for name in names if names.count(name) > 1})
            if repeated:
                raise ValueError(f"{kind} must have distinct names; repeated: {', '.join(repeated)}")
        names = [teacher.name for teacher in self.teachers]
        if self.filter.judge.teacher is not None and self.filter.judge.teacher not in names:
            raise ValueError(unknown_value("filter.judge.teacher", self.filter.judge.teacher, names))
        for key, licences, known in (
            ("sources", self.filter.card.sources, list(self.data)),
            ("teachers", self.filter.card.teachers, names),
        ):
            for name in licences:
                if name not in known:
                    raise ValueError(unknown_value(f"filter.card.{key}", name, known))
        asked: list[str] = []
        for teacher in self.teachers:
            if teacher.after is not None and teacher.after not in asked:
                raise ValueError(unknown_value(f"teachers.{teacher.name}.after", teacher.after, asked))
            asked.append(teacher.name)
        seen: list[str] = []
        for stage in self.stages:
            known = ["traces", *(f"traces:{arm}" for arm in ARMS), *self.data]
            if stage.data not in known:
                raise ValueError(unknown_value(f"stages.{stage.name}.data", stage.data, known))
            for source in stage.replay:
                if source not in self.data:
                    raise ValueError(unknown_value(f"stages.{stage.name}.replay", source, list(self.data)))
            for teacher_name in stage.teachers:
                if teacher_name not in names:
                    raise ValueError(unknown_value(f"stages.{stage.name}.teachers", teacher_name, names))
            if stage.distill and self.teachers and not any(teacher.logprobs for teacher in self.teachers):
                raise ValueError(
                    f"stages.{stage.name}.distill learns the distributions that teachers store; set logprobs under "
                    "[[teachers]]"
                )
            asked_of = stage.validation.data if stage.validation is not None else None
            if asked_of is not None and asked_of not in self.data:
                raise ValueError(unknown_value(f"stages.{stage.name}.validation.data", asked_of, list(self.data)))
            if stage.name == BASE:
                raise ValueError(f"stages.{BASE}: {BASE} means the student before any stage; choose another name")
            if stage.start is not None and stage.start not in seen:
                raise ValueError(unknown_value(f"stages.{stage.name}.start", stage.start, seen))
            seen.append(stage.name)
        for arm, stage_name in self.eval.arms.items():
            if stage_name not in (BASE, *seen):
                raise ValueError(unknown_value(f"eval.arms.{arm}", stage_name, [BASE, *seen]))
        return self

    @property
    def path(self) -> Path:
        """The file this recipe was read from."""
        return self._path

    @property
    def name(self) -> str:
        return self._path.parent.name if self._path.stem == "recipe" else self._path.stem

    def local(self, value: str) -> Path:
        """A path of the recipe, relative ones taken from the recipe's folder; it may not exist."""
        return (self._path.parent / Path(value).expanduser()).resolve()

    def local_or_hub(self, value: str) -> str:
        """A directory beside the recipe if there is one, else the value itself: a hub name."""
        local = self.local(value)
        return str(local) if local.exists() else value

    def read_from(self, path: Path) -> Self:
        """This recipe as what the file at `path` holds."""
        self._path = path.resolve()
        return self

    def to_toml(self) -> str:
        """This recipe with every default written out, local paths absolute and secrets masked.

        It serves to look up what a run was made with; a server whose address or options are masked cannot be asked.
        """
        values = redact.settings(self.model_dump(mode="json", exclude_none=True))
        for name, source in values["data"].items():
            # A column that is named must be there; one of the same name by default need not.
            source["columns"] = self.data[name].columns.model_dump(mode="json", exclude_unset=True)
            for key in ("source", "images_root"):
                if key in source:
                    source[key] = self.local_or_hub(source[key])
        for teacher in values["teachers"]:
            teacher["model"] = self.local_or_hub(teacher["model"])
        for key in ("model", "vision", "language"):
            if key in values.get("student", {}):
                values["student"][key] = self.local_or_hub(values["student"][key])
        for student in values["eval"]["students"].values():
            for key in ("model", "adapter") if "base_url" not in student else ():
                if key in student:
                    student[key] = self.local_or_hub(student[key])
        of_student = values["filter"]["student"]
        if "checkpoint" in of_student:
            of_student["checkpoint"] = self.local_or_hub(of_student["checkpoint"])
        return tomli_w.dumps(values)
