"""The whole recipe: every section, and what refers to what.

Every default of the toolkit lives in the section models and nowhere else. distill/recipe/loading.py reads the file.
Paths stay as written; `Recipe.local()` resolves one against the recipe's folder.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, Literal, Self

import tomli_w
from pydantic import model_validator

from distill import redact
from distill.extensions import file_and_name
from distill.local_paths import from_home, is_store_address, real_path
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


def _repeated(names: Collection[str]) -> Iterator[str]:
    """The names of each folder that several names lead to: file systems of macOS and Windows ignore case."""
    by_folder: dict[str, list[str]] = defaultdict(list)
    for name in names:
        by_folder[name.casefold()].append(name)
    for same in by_folder.values():
        if len(same) > 1:
            distinct = sorted(set(same))
            yield ", ".join(distinct) + (", which differ only in upper and lower case" if len(distinct) > 1 else "")


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
        "Experiment trackers that get the numbers of generate, filter, eval, and of stages without their own "
        "report_to.",
        because="it changes only which trackers get the numbers",
        strict=False,
    )
    data: Mapping[Name, DataSource] = key(
        {}, "Sources of samples, by name; the teachers answer the source `questions`."
    )
    teachers: tuple[Teacher, ...] = key((), "The models that write traces.", strict=False)
    generate: Generate = key(Generate(), "Settings of the generate stage that belong to no single teacher.")
    filter: Filter = key(Filter(), "What the filter measures, drops and selects.")
    student: Student | None = key(None, "The model that is trained.")
    stages: tuple[Stage, ...] = key((), "The training stages, in order.", strict=False)
    eval: Eval = key(Eval(), "Held-out evaluation.")
    rounds: Rounds = key(Rounds(), "Rounds: the teachers answer the student's failed questions again.")
    ablate: Ablate = key(Ablate(), "Controlled comparisons.")
    engine: Placement = key(Placement(), "How machines share a run in an object store.")
    store: StoreSettings = key(StoreSettings(), "The object store of a run whose --run is an address.")

    _path: Path = Path("recipe.toml")

    @model_validator(mode="after")
    def _references(self) -> Self:
        for kind, names in (
            ("teachers", [teacher.name for teacher in self.teachers]),
            ("stages", [stage.name for stage in self.stages]),
            ("sources", list(self.data)),
        ):
            if repeated := "; ".join(_repeated(names)):
                raise ValueError(f"{kind} must have distinct names; repeated: {repeated}")
        for key_name, name, known in self._named():
            if name is not None and name not in known:
                raise ValueError(unknown_value(key_name, name, list(known)))
        for stage in self.stages:
            where = f"stages.{stage.name}"
            if stage.name == BASE:
                raise ValueError(f"{where}: {BASE} means the student before any stage; choose another name")
            if stage.distill and self.teachers and not any(teacher.logprobs for teacher in self.teachers):
                raise ValueError(
                    f"{where}.distill learns the distributions that teachers store; set logprobs under [[teachers]]"
                )
            if stage.visual is not None:
                self._require_scorers(f"{where}.visual", stage.visual.teacher)
            if stage.rollouts is not None:
                self._require_scorers(f"{where}.rollouts", stage.rollouts.teacher)
                self._require_own_teacher(stage, stage.rollouts.teacher)
        return self

    def _named(self) -> Iterator[tuple[str, str | None, Collection[str]]]:
        """Every key that names a part of the recipe, the name, and the names that it can hold."""
        teachers = [teacher.name for teacher in self.teachers]
        stages = [BASE, *(stage.name for stage in self.stages)]
        rows = ["traces", *(f"traces:{arm}" for arm in (*ARMS, PAIRS, ROLLOUTS)), *self.data]
        yield "filter.judge.teacher", self.filter.judge.teacher, teachers
        yield from (("filter.card.sources", source, self.data) for source in self.filter.card.sources)
        yield from (("filter.card.teachers", teacher, teachers) for teacher in self.filter.card.teachers)
        for index, teacher in enumerate(self.teachers):
            yield f"teachers.{teacher.name}.after", teacher.after, teachers[:index]
        for index, stage in enumerate(self.stages):
            where = f"stages.{stage.name}"
            yield f"{where}.data", stage.data, rows
            yield from ((f"{where}.replay", source, self.data) for source in stage.replay)
            yield from ((f"{where}.teachers", teacher, teachers) for teacher in stage.teachers)
            for kind in ("visual", "rollouts"):
                yield f"{where}.{kind}.teacher", getattr(getattr(stage, kind), "teacher", None), teachers
            yield f"{where}.validation.data", stage.validation.data if stage.validation else None, self.data
            yield f"{where}.start", stage.start, stages[: index + 1]
        yield from ((f"eval.arms.{arm}", stage, stages) for arm, stage in self.eval.arms.items())

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
                learns = "; a round trains a stage that learns rationales from traces" if name == "stage" else ""
                raise ValueError(unknown_value(f"rounds.{name}", value, known) + learns)
        if not settings.count:
            return self
        for teacher in self.teachers:
            samples = settings.samples if teacher.name in (settings.teachers or teachers) else None
            if samples is not None and (wrong := teacher.samples_problem("rounds.samples", samples)):
                raise ValueError(f"teachers.{teacher.name}: {wrong}")
        sources = [name for name in self.data if name != self.eval.data]
        for name, value in (("questions", settings.questions), ("validation", settings.validation)):
            if value == self.eval.data:
                raise ValueError(f"rounds.{name} = {value!r} is the test set (eval.data): name another source")
            if value is not None and value not in sources:
                raise ValueError(unknown_value(f"rounds.{name}", value, sources))
        if settings.attempts > 1 and self.eval.engine != "embedded":
            raise ValueError(
                f"rounds.attempts = {settings.attempts} draws replies of an embedded student, but eval.engine is "
                f'{self.eval.engine!r}; set attempts = 1, or eval.engine = "embedded"'
            )
        if settings.validation in (None, ASKED):
            raise ValueError(
                "rounds.validation must name another source than [data.questions], because its questions decide "
                "whether a round helps. To split a part of [data.questions] off instead, leave rounds.validation "
                "and data.questions.part out"
            )
        if settings.questions == settings.validation:
            raise ValueError(
                f"rounds.questions = rounds.validation = {settings.questions!r}: the student learns from "
                "rounds.questions, so the same source cannot measure whether a round helps; name two sources "
                "without a common image"
            )
        return self

    @property
    def round_stage(self) -> Stage:
        """The stage that rounds train again. Raises IndexError for a recipe that can have no rounds."""
        stages = [stage for stage in self.stages if learns_rationales(stage)]
        return [stage for stage in stages if self.rounds.stage in (None, stage.name)][-1]

    def _require_scorers(self, where: str, name: str | None) -> None:
        """Raise ValueError where a teacher is to score texts that cannot, or that sees more than the student."""
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
                    f"{where}: teacher {teacher.name!r} sees more than question and image (hinted, after, cues), "
                    f"so its scores would not show what the image adds; name another one in {where}.teacher"
                )

    def _require_own_teacher(self, stage: Stage, name: str) -> None:
        """Raise ValueError where a teacher is to score replies of a student that never learned from it."""
        where = f"stages.{stage.name}.rollouts.teacher"
        learned = teachers_before(self.stages, stage, [teacher.name for teacher in self.teachers])
        if name not in learned:
            raise ValueError(
                f"{where}: the student that stage {stage.name!r} starts from has not learned from traces of "
                f"{name!r}; the scores of such a teacher would pull the student away from the traces that it "
                "learned; name one of: "
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
        """Whether the recipe evaluates anything: it has the source of [eval], or names another source, arms or
        students."""
        default = Eval.model_fields["data"].default
        return self.eval.data in self.data or self.eval.data != default or bool(self.eval.arms or self.eval.students)

    def most_traces(self, teacher: Teacher) -> int:
        """Most first attempts of a teacher at one question; one that works on drafts writes its samples for each."""
        if not teacher.chained:
            return teacher.samples
        return teacher.samples * self.most_traces(next(each for each in self.teachers if each.name == teacher.after))

    @property
    def max_pixels(self) -> int:
        """The largest pixel limit of all sources: the limit of images that may come from any of them."""
        default: int = DataSource.model_fields["max_pixels"].default
        return max((source.max_pixels for source in self.data.values()), default=default)

    @property
    def trusts_student_code(self) -> bool:
        """Whether code that comes with the student's checkpoint is run."""
        return self.student is not None and self.student.trust_remote_code

    def local(self, value: str) -> Path:
        """A path of the recipe, relative ones taken from the recipe's folder; it may not exist."""
        return real_path(self._path.parent / from_home(value))

    def _program(self, value: str) -> str:
        """A program with a slash counts from the recipe's folder. Its links stay: an environment's Python is one."""
        return str(self._path.parent / value) if "/" in value and not value.startswith("~") else value

    def place(self, value: str) -> str:
        """A path of the recipe as `local` has it, or the address of a store as it is."""
        return value if is_store_address(value) else str(self.local(value))

    def local_or_hub(self, value: str) -> str:
        """A directory beside the recipe if there is one, else the value itself: a hub name."""
        local = self.local(value)
        return str(local) if local.exists() else value

    def public_name(self, value: str) -> str:
        """A hub's name as it is; of a path, also in a store, the last part alone, for texts that others read."""
        is_path = PurePath(value).is_absolute() or value.startswith(("~", "..")) or is_store_address(value)
        return Path(value).name if is_path or self.local(value).exists() else value

    def read_from(self, path: Path) -> Self:
        """This recipe as what the file at `path` holds."""
        self._path = path.resolve()
        for name, source in self.data.items():
            source._name, source._folder = name, self._path.parent
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

        def resolve(section: dict[str, Any] | None, names: Collection[str], resolved: Callable[[str], str]) -> None:
            for name in names:
                if section is not None and section.get(name) is not None:
                    section[name] = resolved(section[name])

        for source in values["data"].values():
            resolve(source, ("source", "images_root"), self.local_or_hub)
            resolve(source, ("format", "answer_type"), self.whole_name)
        for teacher in values["teachers"]:
            resolve(teacher, ("model",), self.local_or_hub)
            resolve(teacher, ("prompt",), self.whole_name)
            server = teacher["server"]
            server["command"] = [self._program(server["command"][0]), *server["command"][1:]]
        for section, names in (("filter", "signals"), ("filter", "exports"), ("eval", "metrics")):
            values[section][names] = [self.whole_name(value) for value in values[section][names]]
        for arm in values["ablate"]["own"].values():
            resolve(arm, ("change",), self.whole_name)
        resolve(values.get("student"), ("model", "vision", "language"), self.local_or_hub)
        for student in values["eval"]["students"].values():
            resolve(student, ("model", "adapter") if student.get("base_url") is None else (), self.local_or_hub)
        resolve(values["filter"]["student"], ("checkpoint",), self.local_or_hub)
        return values
