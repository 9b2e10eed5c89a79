"""Keep the outcomes of finished arms in docs/results/outcomes/, so that studies of many hours can go on on another
machine, and make results of all that is kept.

    distill ablate tiny-studies --run runs/tiny-studies                    # for as long as there is time
    python benchmarks/evaluate/study_outcomes.py keep tiny-studies runs/tiny-studies
    python benchmarks/evaluate/study_outcomes.py results tiny-studies runs/kept
    python benchmarks/project/documents.py --studies runs/kept

One file an arm and seed has its figures, costs and learning curve, and for each held-out question one letter for the
verdict and one for the cause of an error. Weights are not kept, and replies only where the gallery may show them.
Arms are compared within a seed, so all arms of a seed must come from the same traces: others are refused.
Takes 24 s for `results` (two shared cores).
"""

import argparse
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

from distill.ablation import results
from distill.ablation.arm_result import ArmResult
from distill.ablation.power import read_statements
from distill.ablation.runner import finished_arms, place, teacher_fits
from distill.artifacts.layout import ABLATE, POWER
from distill.artifacts.manifest import MANIFEST, Manifest, fingerprint
from distill.data import reader
from distill.recipe import loading
from distill.recipe.recipe import Recipe
from distill.recipe.sections.ablate import REFERENCE
from student.inference.error_causes import CAUSES, ErrorCause

KEPT = Path(__file__).resolve().parents[2] / "docs" / "results" / "outcomes"
FITS = "teacher_fits.json"
REPLIES = 24
"""Of so many questions the replies are kept, for the gallery."""
_CAUSE_LETTERS = {cause: chr(ord("a") + place) for place, cause in enumerate(CAUSES)}
_CAUSES = {letter: cause for cause, letter in _CAUSE_LETTERS.items()}
_VERDICTS = {"c": "correct", "w": "wrong", "u": "undecided"}


def settings(recipe: Recipe) -> str:
    """Digest of all that the recipe decides about an arm; seeds and the wording of studies are not part of it."""
    return fingerprint(recipe.model_dump(mode="json", exclude_defaults=True, exclude={"ablate", "path", "name"}))


def keep(recipe: Recipe, run: Path, kept: Path = KEPT) -> list[str]:
    """Write the finished arms of `run` that are not kept yet; their names. Ends the program where another recipe or
    another run has been kept of the same seed."""
    generated = Manifest.read(run / "generate")
    if generated is None:
        raise SystemExit(f"{run}: its traces are not finished; run `distill ablate {recipe.name} --run {run}` first")
    identity = {"recipe": settings(recipe), "traces": generated.outputs["plan.parquet"].sha256}
    written = []
    found = finished_arms(recipe, run)
    first = min(seed for by_seed in found.values() for seed in by_seed)
    for name, by_seed in found.items():
        for seed, result in by_seed.items():
            path = kept / f"seed-{seed}" / f"{name}.json"
            for other in path.parent.glob("*.json"):
                if json.loads(other.read_text(encoding="utf-8"))["identity"] != identity:
                    raise SystemExit(
                        f"{other}: of another recipe or of other traces; all arms of a seed need the same"
                    )
            if not path.exists():
                _write(
                    path, {"identity": identity, **_compact(result, recipe, replies=seed == recipe.ablate.seeds[0])}
                )
                written.append(f"{name}, seed {seed}")
    reference = place(run, REFERENCE, first)
    for stage in ("filter", f"train/{recipe.stages[-1].name}"):
        _copy(reference / stage / MANIFEST, kept / "reference" / stage / MANIFEST)
    _keep_statements(run / ABLATE, kept)
    if not (kept / FITS).exists() and (fits := teacher_fits(recipe, run, found)) is not None:
        _write(kept / FITS, fits)
    return written


def _keep_statements(folder: Path, kept: Path) -> None:
    """Add the statements before seeds that no kept statement names."""
    statements = read_statements(kept)
    stated = {seed for statement in statements for seed in statement["seeds"]}
    new = [each for each in read_statements(folder) if not stated & {*each["before"]}]
    if new:
        _write(kept / POWER, [*statements, *new])


def _compact(result: ArmResult, recipe: Recipe, *, replies: bool) -> dict[str, Any]:
    values = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    del values["folder"], values["predictions"]
    lines = result.predictions
    values["verdicts"] = "".join(str(line["verdict"])[0] for line in lines)
    values["causes"] = "".join(_letter(line.get("error_cause")) for line in lines)
    values["replies"] = list(lines[:REPLIES]) if replies else []
    return values


def read(recipe: Recipe, folder: Path, kept: Path = KEPT) -> dict[str, dict[int, ArmResult]]:
    """All kept arms, as if their runs were below `folder`. Ends the program where some are of another recipe."""
    samples = sorted(reader.samples(recipe, recipe.eval.data), key=lambda sample: sample.id)
    found: dict[str, dict[int, ArmResult]] = {}
    for path in sorted(kept.glob("seed-*/*.json")):
        values = json.loads(path.read_text(encoding="utf-8"))
        if values.pop("identity")["recipe"] != settings(recipe):
            raise SystemExit(f"{path}: of another recipe than {recipe.path}; move it away")
        name, seed = path.stem, int(path.parent.name.removeprefix("seed-"))
        verdicts, causes, replies = (values.pop(key) for key in ("verdicts", "causes", "replies"))
        if not len(samples) == len(verdicts) == len(causes):
            raise SystemExit(f"{path}: {len(verdicts)} verdicts for {len(samples)} questions")
        lines: list[dict[str, Any]] = [
            {"sample_id": sample.id, "domain": sample.domain, "verdict": _VERDICTS[verdict], **_cause(cause)}
            for sample, verdict, cause in zip(samples, verdicts, causes, strict=True)
        ]
        lines[: len(replies)] = replies
        found.setdefault(name, {})[seed] = ArmResult(
            **values | {"folder": place(folder.parent, name, seed), "predictions": tuple(lines)}
        )
    order = [REFERENCE, *(name for study in recipe.ablate.studies.values() for name in study.arms)]
    return {name: dict(sorted(found[name].items())) for name in dict.fromkeys(order) if name in found}


def _letter(cause: ErrorCause | None) -> str:
    return "." if cause is None else _CAUSE_LETTERS[cause]


def _cause(letter: str) -> dict[str, str]:
    return {} if letter == "." else {"error_cause": _CAUSES[letter]}


def write_results(recipe: Recipe, run: Path, kept: Path = KEPT) -> None:
    """Results, report and manifest of all kept arms in `run`/ablate, as `distill ablate` writes them."""
    folder = run / ABLATE
    for stage in ("filter", f"train/{recipe.stages[-1].name}"):
        _copy(kept / "reference" / stage / MANIFEST, place(run, REFERENCE, 0) / stage / MANIFEST)
    if (kept / POWER).exists():
        _copy(kept / POWER, folder / POWER)
    fits = json.loads((kept / FITS).read_text(encoding="utf-8")) if (kept / FITS).exists() else None
    results.write(recipe, folder, read(recipe, folder, kept), {}, fits)


def _write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("keep", "results"))
    parser.add_argument("recipe")
    parser.add_argument("run", type=Path)
    parser.add_argument("--kept", type=Path, default=KEPT, metavar="FOLDER", help="default: docs/results/outcomes")
    arguments = parser.parse_args()
    recipe = loading.load(arguments.recipe)
    if arguments.what == "keep":
        print("\n".join(keep(recipe, arguments.run, arguments.kept)) or "nothing new is finished")
    else:
        write_results(recipe, arguments.run, arguments.kept)


if __name__ == "__main__":
    main()
