"""The whole recipe: every section, and what refers to what.

Every default of the toolkit lives in the section models and nowhere else. distill/recipe/loading.py reads the file.
Paths stay as written; `Recipe.local()` resolves one against the recipe's folder.
"""

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, Literal, Self

import tomli_w
from pydantic import model_validator

from distill import redact
from distill.extensions import file_and_name
from distill.local_paths import is_store_address, real_path
from distill.recipe.backends import BACKENDS
from distill.recipe.base import Name, Section, key
from distill.recipe.messages import unknown_value
from distill.recipe.sections.ablate import Ablate
from distill.recipe.sections.data import ASKED, DataSource
from distill.recipe.sections.eval import BASE, Eval
from distill.recipe.sections.filter import ARMS, PAIRS, Filter
from distill.recipe.sections.generate import Generate
from distill.recipe.sections.rollouts import ROLLOUTS
from distill.recipe.sections.rounds import Rounds
from distill.recipe.sections.scale import Placement, StoreSettings
from distill.recipe.sections.stages import Stage, learns_rationales, teachers_before
from distill.recipe.sections.student import Student
from distill.recipe.sections.teachers import Teacher


class Recipe(Section):
    """A whole run. A command needs only the sections that it uses."""

    seed: int = key(
        0,
        "Seed of everything random: traces, selection, order of the rows, initial adapters, intervals.",
        affects="traces filter train eval",
        ge=0,
        lt=2**31,
    )
    report_to: tuple[Literal["trackio", "wandb", "tensorboard"], ...] = key(
        (),
        "Experiment trackers that get the numbers of generate, filter, eval, and stages that name none.",
        because="it changes only who else gets the numbers",
        strict=False,
    )
    data: Mapping[Name, DataSource] = key({}, "Sources of samples, by name; teachers are asked `questions`.")
    teachers: tuple[Teacher, ...] = key((), "The models that write traces.", strict=False)
    generate: Generate = key(Generate(), "Settings of the generate stage that belong to no single teacher.")
    filter: Filter = key(Filter(), "What is measured, what is dropped, what is chosen.")
    student: Student | None = key(None, "The model that is trained.")
    stages: tuple[Stage, ...] = key((), "The training stages, in order.", strict=False)
    eval: Eval = key(Eval(), "Held-out evaluation.")
    rounds: Rounds = key(Rounds(), "Rounds in which the student's failures go to the teachers again.")
    ablate: Ablate = key(Ablate(), "Controlled comparisons.")
    engine: Placement = key(Placement(), "How a run in an object store is worked on.")
    store: StoreSettings = key(StoreSettings(), "The object store of a run whose --run is an address.")

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
        for part, licences, known_names in (
            ("sources", self.filter.card.sources, list(self.data)),
            ("teachers", self.filter.card.teachers, names),
        ):
            for name in licences:
                if name not in known_names:
                    raise ValueError(unknown_value(f"filter.card.{part}", name, known_names))
        asked: list[str] = []
        for teacher in self.teachers:
            if teacher.after is not None and teacher.after not in asked:
                raise ValueError(unknown_value(f"teachers.{teacher.name}.after", teacher.after, asked))
            asked.append(teacher.name)
        seen: list[str] = []
        for stage in self.stages:
            known_names = ["traces", *(f"traces:{arm}" for arm in (*ARMS, PAIRS, ROLLOUTS)), *self.data]
            if stage.data not in known_names:
                raise ValueError(unknown_value(f"stages.{stage.name}.data", stage.data, known_names))
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
            if stage.visual is not None:
                self._require_scorers(f"stages.{stage.name}.visual", stage.visual.teacher)
            if stage.rollouts is not None:
                self._require_scorers(f"stages.{stage.name}.rollouts", stage.rollouts.teacher)
            asked_of = stage.validation.data if stage.validation is not None else None
            if asked_of is not None and asked_of not in self.data:
                raise ValueError(unknown_value(f"stages.{stage.name}.validation.data", asked_of, list(self.data)))
            if stage.name == BASE:
                raise ValueError(f"stages.{BASE}: {BASE} means the student before any stage; choose another name")
            if stage.start is not None and stage.start not in (BASE, *seen):
                raise ValueError(unknown_value(f"stages.{stage.name}.start", stage.start, [BASE, *seen]))
            if stage.rollouts is not None:
                self._require_own_teacher(stage, stage.rollouts.teacher)
            seen.append(stage.name)
        for arm, stage_name in self.eval.arms.items():
            if stage_name not in (BASE, *seen):
                raise ValueError(unknown_value(f"eval.arms.{arm}", stage_name, [BASE, *seen]))
        return self

    @model_validator(mode="after")
    def _rounds_can_be_made(self) -> Self:
        settings = self.rounds
        stages = [stage.name for stage in self.stages if learns_rationales(stage)]
        if settings.count and not stages:
            raise ValueError(
                f'rounds.count = {settings.count} trains a stage again that learns rationales (data = "traces"), and '
                "no [[stages]] block does; add one, or set count = 0"
            )
        # Stage and teachers are checked also where count is 0: a later --set rounds.count=2 uses them.
        teachers = [teacher.name for teacher in self.teachers]
        for name, value, known in (
            ("stage", settings.stage, stages),
            *(("teachers", teacher, teachers) for teacher in settings.teachers),
        ):
            if value is not None and value not in known:
                raise ValueError(unknown_value(f"rounds.{name}", value, known))
        if not settings.count:
            return self
        for teacher in self.teachers:
            samples = settings.samples if teacher.name in (settings.teachers or teachers) else None
            if samples is not None and (wrong := teacher.samples_problem("rounds.samples", samples)):
                raise ValueError(f"teachers.{teacher.name}: {wrong}")
        sources = [name for name in self.data if name != self.eval.data]
        if settings.questions not in sources:
            raise ValueError(unknown_value("rounds.questions", settings.questions, sources))
        if settings.validation is not None and settings.validation not in sources:
            raise ValueError(unknown_value("rounds.validation", settings.validation, sources))
        if settings.attempts > 1 and self.eval.engine != "embedded":
            raise ValueError(
                f"rounds.attempts = {settings.attempts} draws replies of an embedded student, but eval.engine is "
                f'{self.eval.engine!r}; set attempts = 1, or eval.engine = "embedded"'
            )
        if settings.validation in (None, ASKED):
            raise ValueError(
                "rounds.validation names the source whose questions decide whether a round helps: a source beside "
                "[data.questions]. Leave it out, and leave data.questions.part out, to split one off"
            )
        if settings.questions == settings.validation:
            raise ValueError(
                f"rounds.questions = rounds.validation = {settings.questions!r}: the student learns from the first, "
                "so the second would not say whether a round helps; name two sources without a common image"
            )
        return self

    @property
    def round_stage(self) -> Stage:
        """The stage that rounds train again. Raises IndexError for a recipe that can have no rounds."""
        return [each for each in self.stages if learns_rationales(each) and self.rounds.stage in (None, each.name)][
            -1
        ]

    def _require_scorers(self, where: str, name: str | None) -> None:
        """Raise ValueError where a teacher is to score texts that cannot, or that sees more than the student."""
        names = [teacher.name for teacher in self.teachers]
        if name is not None and name not in names:
            raise ValueError(unknown_value(f"{where}.teacher", name, names))
        for teacher in self.teachers:
            if name not in (None, teacher.name):
                continue
            if not teacher.direct.capabilities.scores_texts:
                able = ", ".join(backend for backend, can in BACKENDS.items() if can.scores_texts)
                raise ValueError(
                    f"{where}: teacher {teacher.name!r} cannot score texts, because its backend is "
                    f"{teacher.backend!r}; name another one in {where}.teacher (backends that can: {able})"
                )
            if teacher.hinted or teacher.after or teacher.cues is not None:
                raise ValueError(
                    f"{where}: teacher {teacher.name!r} sees more than question and picture (hinted, after, cues), "
                    f"so its scores would not show what the picture adds; name another one in {where}.teacher"
                )

    def _require_own_teacher(self, stage: Stage, name: str) -> None:
        """Raise ValueError where a teacher is to score replies of a student that never learned from it."""
        where = f"stages.{stage.name}.rollouts.teacher"
        learned = teachers_before(self.stages, stage, [teacher.name for teacher in self.teachers])
        if name not in learned:
            raise ValueError(
                f"{where}: the student that stage {stage.name!r} starts from has not learned from traces of "
                f"{name!r}, and the scores of another teacher draw it away from what it learned; name one of: "
                f"{', '.join(sorted(learned)) or 'none (train a stage on traces first)'}"
            )

    @property
    def path(self) -> Path:
        """The file this recipe was read from."""
        return self._path

    @property
    def name(self) -> str:
        return self._path.parent.name if self._path.stem == "recipe" else self._path.stem

    @property
    def evaluates(self) -> bool:
        """Whether anything is evaluated: not where neither a source for it nor a word about it is in the recipe."""
        default = Eval.model_fields["data"].default
        return self.eval.data in self.data or self.eval.data != default or bool(self.eval.arms or self.eval.students)

    @property
    def max_pixels(self) -> int:
        """The largest pixel limit of any source: that of images which may come from any of them."""
        default: int = DataSource.model_fields["max_pixels"].default
        return max((source.max_pixels for source in self.data.values()), default=default)

    def local(self, value: str) -> Path:
        """A path of the recipe, relative ones taken from the recipe's folder; it may not exist."""
        return real_path(self._path.parent / Path(value).expanduser())

    def place(self, value: str) -> str:
        """A path of the recipe as `local` has it, or the address of a store as it is."""
        return value if is_store_address(value) else str(self.local(value))

    def local_or_hub(self, value: str) -> str:
        """A directory beside the recipe if there is one, else the value itself: a hub name."""
        local = self.local(value)
        return str(local) if local.exists() else value

    def public_name(self, value: str) -> str:
        """A hub's name as it is; of a path on this machine the last part alone, for texts that others read."""
        is_path = PurePath(value).is_absolute() or value.startswith(("~", "..")) or self.local(value).exists()
        return Path(value).name if is_path else value

    def read_from(self, path: Path) -> Self:
        """This recipe as what the file at `path` holds."""
        self._path = path.resolve()
        for source in self.data.values():
            source._folder = self._path.parent
        for teacher in self.teachers:
            teacher._folder = self._path.parent
        return self

    def whole_name(self, value: str) -> str:
        """FILE.py:NAME with the whole path of the file; any other name as it is."""
        named = file_and_name(value)
        return f"{self.local(named[0])}:{named[1]}" if named else value

    def to_toml(self) -> str:
        """This recipe with every default written out, local paths absolute and secrets masked.

        It serves to look up what a run was made with; a server whose address or options are masked cannot be asked.
        """
        values = self.resolved(exclude_none=True)
        for name, source in values["data"].items():
            # A column that is named must be there; one of the same name by default need not.
            source["columns"] = self.data[name].columns.model_dump(mode="json", exclude_unset=True)
        return tomli_w.dumps(values)

    def resolved(self, *, exclude_none: bool = False) -> dict[str, Any]:
        """The values of all keys, local paths absolute and secrets masked."""
        values: dict[str, Any] = redact.settings(self.model_dump(mode="json", exclude_none=exclude_none))
        for source in values["data"].values():
            for path in ("source", "images_root"):
                if source.get(path) is not None:
                    source[path] = self.local_or_hub(source[path])
            for name in ("format", "answer_type"):
                if source.get(name) is not None:
                    source[name] = self.whole_name(source[name])
        for teacher in values["teachers"]:
            teacher["model"] = self.local_or_hub(teacher["model"])
            teacher["prompt"] = self.whole_name(teacher["prompt"])
        for section, names in (("filter", "signals"), ("filter", "exports"), ("eval", "metrics")):
            values[section][names] = [self.whole_name(value) for value in values[section][names]]
        for arm in values["ablate"]["own"].values():
            if arm.get("change") is not None:
                arm["change"] = self.whole_name(arm["change"])
        for part in ("model", "vision", "language"):
            if (values.get("student") or {}).get(part) is not None:
                values["student"][part] = self.local_or_hub(values["student"][part])
        for student in values["eval"]["students"].values():
            for part in ("model", "adapter") if student.get("base_url") is None else ():
                if student.get(part) is not None:
                    student[part] = self.local_or_hub(student[part])
        of_student = values["filter"]["student"]
        if of_student.get("checkpoint") is not None:
            of_student["checkpoint"] = self.local_or_hub(of_student["checkpoint"])
        return values
