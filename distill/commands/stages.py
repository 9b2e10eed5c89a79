"""The verbs as the command line calls them: prepare the run directory, show progress, summarise.

No stage calls another; stages exchange only the files in the run directory.
"""

import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from distill import packages, run_log
from distill.artifacts.layout import ABLATE, PROGRESS, RECIPE, REPORT
from distill.commands import status
from distill.commands.progress import watch
from distill.damaged_runs import damage_named
from distill.errors import RecipeError
from distill.planning.outdated import outdated_text
from distill.python_api import verbs
from distill.recipe.loading import find, load, recipes_folder
from distill.recipe.recipe import Recipe
from distill.refused_runs import left_no_run, recipe_left
from distill.types import ProgressCallback, unwatched
from distill.word_tables import counted

if TYPE_CHECKING:
    from distill.ablation.runner import AskedArms
    from distill.planning.leakage import Leakage


Options = ParamSpec("Options")
Stage = Callable[Concatenate[Recipe, Path, Options], str]


def logged(verb: str) -> Callable[[Stage[Options]], Stage[Options]]:
    """Record a call with a recipe and a run in the log of the run. A refused call creates no run directory; if a call
    fails because of damaged files, the error names them."""

    def with_log(function: Stage[Options]) -> Stage[Options]:
        @wraps(function)
        def logged(recipe: Recipe, run: Path, /, *arguments: Options.args, **options: Options.kwargs) -> str:
            from student.distributed import processes

            quiet = not processes.is_main()
            with run_log.recording(run, verb, quiet=quiet), left_no_run(run), damage_named(run):
                return function(recipe, run, *arguments, **options)

        return logged

    return with_log


@logged("generate")
def generate_stage(recipe: Recipe, run: Path, *, limit: int | None = None, fresh: bool = False) -> str:
    compared = _summary(verbs.compare_asked(recipe, run))
    with recorded(recipe, run) as on_progress:
        verbs.generate_compared(recipe, run, limit=limit, fresh=fresh, on_progress=on_progress)
    status.log_state(run, "generate")
    return _blocks(status.funnel(run), status.damage(run), compared) + f"\ntraces: {run / 'generate'}"


def _blocks(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)


def _summary(compared: "Leakage | None") -> str:
    """What training data has in common with evaluation data, as a table."""
    return compared.summary() if compared is not None else ""


def check_generate(recipe: Recipe, run: Path, *, limit: int | None, fresh: bool, probe: int) -> str:
    from distill.checks.recipe_checks import GENERATE_ALONE, check_recipe
    from teacher.preflight import preflight

    report = check_recipe(recipe, run, checks=GENERATE_ALONE)
    if report.problems:
        raise RecipeError(f"{recipe.path}: generate cannot run\n{report.as_text(only_open=True)}")
    if not probe:
        preflight_text = preflight(recipe, run, limit=limit, fresh=fresh)
    else:
        with recorded(recipe, run) as on_progress:
            preflight_text = preflight(recipe, run, limit=limit, fresh=fresh, probe=probe, on_progress=on_progress)
    return f"{report.as_text(only_open=True)}\n\n{preflight_text}"


@logged("filter")
def filter_stage(recipe: Recipe, run: Path, *, fresh: bool = False) -> str:
    with recorded(recipe, run) as on_progress:
        verbs.filter(recipe, run, fresh=fresh, on_progress=on_progress)
    status.log_state(run, "filter")
    blocks = [
        status.funnel(run),
        status.warnings(run),
        status.damage(run),
        status.lost_files(run, "generate"),
        f"dataset: {run / 'filter' / 'dataset'}",
    ]
    return "\n".join(block for block in blocks if block) + f"\nreport:  {run / 'filter' / REPORT}"


def compare_policies(recipe: Recipe, run: Path, alternative: Recipe) -> str:
    """What the filter section of another recipe would do with the signals of a run."""
    from filters.what_if import as_text, what_if

    with damage_named(run):
        return as_text(what_if(recipe.model_copy(update={"filter": alternative.filter}), run))


@logged("train")
def train_stage(
    recipe: Recipe, run: Path, *, stage: str | None = None, jobs: int = 1, fresh: bool = False, asks: bool = False
) -> str:
    from student.distributed import processes

    recipe = verbs.as_launched(recipe)
    with processes.together():
        compared = ""
        if processes.is_main():
            compared = _summary(verbs.prepare_training(recipe, run, stage))
        with recorded(recipe, run) as on_progress:
            verbs.train_compared(recipe, run, stage=stage, fresh=fresh, jobs=jobs, asks=asks, on_progress=on_progress)
        if not processes.is_main():
            return ""
        status.log_state(run, "train")
        return _blocks(status.training(run), status.parts(run), status.damage(run), compared)


def export_student(
    run: Path, out: Path, stage: str | None, *, forms: Sequence[str], prompts: int | None = None, reuse: bool = False
) -> str:
    """Write the student in one form to `out`, or in several to folders there; with `prompts`, prove each.

    `reuse`: an existing export in this place is kept.
    """
    from student.export.convert import NATIVE, choose_stage, export, server_arguments
    from student.export.model_card import shell_options
    from student.export.verify import verify
    from teacher.engines.vllm.export_server import find_server, serve_export

    recipe = load(run / RECIPE)
    server = find_server(recipe) if prompts is not None else None
    lines = []
    for form in forms:
        folder = out if len(forms) == 1 else out / form
        if reuse and (folder / "config.json").is_file():
            stage_name = choose_stage(recipe, run, stage)
        else:
            stage_name = export(run, folder, stage=stage, native=form == NATIVE)
        options = shell_options(server_arguments(folder))
        lines.append(f"{folder}: the student of stage {stage_name}")
        if prompts is not None and server is not None:
            serve = partial(serve_export, server=server)
            compared = partial(verify, recipe, run, folder, serve, stage=stage_name, prompts=prompts)
            lines.append(_verified("vLLM", folder, compared))
        lines.append(f"serve it: vllm serve {shlex.quote(str(folder))} {options}".rstrip())
    return "\n".join(lines)


def export_gguf(
    run: Path, out: Path, stage: str | None, *, weight_type: str, prompts: int | None = None, reuse: bool = False
) -> str:
    """Write the student as GGUF files for llama.cpp; with `prompts`, prove them. `reuse` as in `export_student`."""
    packages.require("distill export --gguf", "gguf")
    from student.export.convert import choose_stage
    from student.export.gguf.files import MMPROJ, MODEL, export_gguf
    from student.export.gguf.verify import verify_gguf
    from teacher.engines.llama_cpp.llama_server import find_llama_server, serve_gguf

    recipe = load(run / RECIPE)
    command = find_llama_server() if prompts is not None else []
    if reuse and (out / MODEL).is_file():
        stage_name = choose_stage(recipe, run, stage)
    else:
        stage_name = export_gguf(run, out, stage=stage, weight_type=weight_type)
    lines = [f"{out}: the student of stage {stage_name}"]
    if prompts is not None:
        serve = partial(serve_gguf, command=command)
        compared = partial(verify_gguf, recipe, run, out, serve, stage=stage_name, prompts=prompts)
        lines.append(_verified("llama.cpp", out, compared))
    model, mmproj = (shlex.quote(str(out / name)) for name in (MODEL, MMPROJ))
    lines.append(f"serve it: llama-server --model {model} --mmproj {mmproj}")
    return "\n".join(lines)


def _verified(engine: str, folder: Path, verify: Callable[..., Mapping[str, Any]]) -> str:
    """Compare an export with the student of the run, and say in how far their replies are the same."""
    from student.export.check_report import REPORT as CHECKS

    with watch() as on_progress:
        report = verify(on_progress=on_progress)
    replies = report["replies"]
    return (
        f"verified: {replies['identical']} of {counted(replies['compared'], 'greedy reply', 'greedy replies')} "
        f"of {engine} are those of "
        f"transformers ({100 * replies['identical_share']:.1f} %; "
        f"{counted(replies['different_replies'], 'distinct text')}; "
        f"{report['form']} form, {report['dtype']}), "
        f"top-1 agreement {100 * replies['top1_agreement']:.2f} % of {counted(replies['tokens'], 'token')}; "
        f"{folder / CHECKS}"
    )


def export_dataset(run: Path, formats: list[str], out: Path) -> str:
    from filters.dataset.exports import export

    files = export(run, formats, out)
    return "\n".join(f"{out / name}" + (f": {count:,}" if count else "") for name, count in files.items())


def export_tasks(run: Path, sources: Sequence[str], out: Path) -> str:
    """Write questions of the run's recipe as tasks of lmms-eval."""
    from student.evaluation.lmms_tasks import write

    tasks = write(load(run / RECIPE), sources, out)
    names = ",".join(task.name for task in tasks)
    lines = [f"{task.folder}: {task.name}, {counted(task.questions, 'question')}" for task in tasks]
    return "\n".join([*lines, f"ask: lmms-eval eval --include_path {out} --tasks {names} ... (docs/benchmarks.md)"])


def eval_stage(recipe: Recipe, run: Path, *, fresh: bool = False, jobs: int = 1) -> str:
    return evaluate_students(recipe, run, fresh=fresh, jobs=jobs) + f"\nreport:  {run / 'eval' / REPORT}"


@logged("eval")
def evaluate_students(recipe: Recipe, run: Path, *, fresh: bool = False, jobs: int = 1) -> str:
    """The summary of an evaluation, without the place of its report."""
    compared = _summary(verbs.compare_evaluated(recipe, run))
    with recorded(recipe, run) as on_progress:
        verbs.evaluate_compared(recipe, run, fresh=fresh, jobs=jobs, on_progress=on_progress)
    status.log_state(run, "eval")
    return _blocks(status.evaluation(run), status.damage(run), outdated_text(run), compared)


@logged("ablate")
def ablate_recipe(recipe: Recipe, run: Path, asked: "AskedArms", *, jobs: int, fresh: bool) -> str:
    from distill.ablation.arm_job import ArmSteps
    from distill.ablation.runner import ablate

    compared = _summary(verbs.compare_trained(recipe, run))
    with watch() as on_progress:
        steps = ArmSteps(compare=verbs.compare_trained, evaluate=verbs.evaluate_served)
        ablate(recipe, run, asked, jobs=jobs, fresh=fresh, steps=steps, on_progress=on_progress)
    return _blocks(ablation_text(run, asked), compared)


@logged("ablate")
def report_ablation(recipe: Recipe, run: Path, asked: "AskedArms") -> str:
    """The table of the finished arms; trains nothing."""
    from distill.ablation.runner import report_finished

    with watch() as on_progress:
        report_finished(recipe, run, asked, on_progress=on_progress)
    return ablation_text(run, asked)


def ablation_text(run: Path, asked: "AskedArms") -> str:
    """The table of an ablation as its last command left it, and the place of its page."""
    folder = run / ABLATE
    return f"{status.ablation(folder, asked.study)}\nreport:  {folder / REPORT}"


def plan_ablation(recipe: Recipe, run: Path, asked: "AskedArms") -> dict[str, Any]:
    """The power and the cost of the arms."""
    from distill.ablation.power import state_power
    from distill.ablation.runner import chosen

    names, _ = chosen(recipe, asked)
    return state_power(recipe, run / ABLATE, names, asked.seeds_of(recipe))


@contextmanager
def recorded(recipe: Recipe, run: Path) -> Iterator[ProgressCallback]:
    """Leave the resolved recipe in the run directory as `recipe_left` does, and show progress: of several processes
    the main one does."""
    from student.distributed import processes

    with recipe_left(recipe, run):
        if not processes.is_main():
            yield unwatched
            return
        with watch(run / PROGRESS) as on_progress:
            yield on_progress


def copy_shipped(name: str, destination: Path) -> Path:
    """Copy a shipped recipe with its assets: the folder of its name, and those that it names; the copied recipe."""
    source = find(name)
    if source.parent != recipes_folder():
        raise RecipeError(f"{name} is not a shipped recipe; `distill recipes` lists them")
    target = destination if destination.suffix == ".toml" else destination / source.name
    text = source.read_text(encoding="utf-8")
    folders = [path for path in sorted(source.parent.iterdir()) if path.is_dir() and path.name != "__pycache__"]
    assets = [path for path in folders if path.name == source.stem or f'"{path.name}/' in text]
    if blocking := next((each for each in target.parents if each.exists() and not each.is_dir()), None):
        raise RecipeError(f"{blocking} is a file; nothing was copied, name a folder or a new file that ends in .toml")
    for path in (target, *(target.parent / folder.name for folder in assets)):
        if path.exists():
            raise RecipeError(f"{path} is already there; nothing was copied, choose another place")
    target.parent.mkdir(parents=True, exist_ok=True)
    for folder in assets:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(folder, target.parent / folder.name, ignore=ignored)
    shutil.copyfile(source, target)
    return target
