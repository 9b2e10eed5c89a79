"""The state of a run directory: the funnel, the state of every stage, the headline figures.

Reads manifests and metrics only, so it answers at once and without torch, also while a stage is running.
"""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from distill import run_log
from distill.artifacts.damaged_lines import count_damaged
from distill.artifacts.integrity import changed, require_run
from distill.artifacts.layout import ABLATE, EVAL_METRICS, HEALTH, PARTS, PROGRESS, REPORT, RESULTS, stage_folders
from distill.artifacts.manifest import STAGES, Manifest
from distill.local_paths import as_argument
from distill.planning.outdated import outdated_text
from distill.reports.findings import FEWEST, as_text, read_findings
from distill.reports.text_table import byte_size, difference, interval, percent, table
from distill.rounds.results import read_results, rounds_text
from distill.types import Outcome
from distill.word_tables import counted

if TYPE_CHECKING:
    from student.inference.reply_metrics import Metric

_LAST_COMMAND_ALONE = ("generate", "filter")
"""Stages whose seconds are those of the command that finished them; training and evaluation add up all commands."""
FUNNEL = {
    "generate": ("samples", "traces", "complete"),
    "filter": ("input", "complete", "correct", "kept", "selected"),
}


def run_status(run: Path) -> str:
    """The funnel, the stages and the evaluation of a run, as text."""
    require_run(run)
    blocks = [_stages(run), running(run), outdated_text(run), funnel(run), warnings(run), damage(run), training(run)]
    blocks += [evaluation(run), rounds_text(run)]
    return "\n\n".join(block for block in blocks if block)


def status_fields(run: Path) -> dict[str, Any]:
    """The state of a run as plain values, for JSON. Raises DataError where there is no run."""
    require_run(run)
    told = [*outdated_text(run).splitlines(), *warnings(run).splitlines()]
    return {
        "run": str(run),
        "stages": [_state(run / stage, stage) for stage in STAGES],
        "running": read_progress(run),
        "training": [_state(folder, folder.name) for folder, _ in _trained(run)],
        "warnings": [line.removeprefix("warning: ") for line in told if line.startswith("warning: ")],
        "notes": [line.removeprefix("note: ") for line in told if line.startswith("note: ")],
        "damaged_lines": {str(path.relative_to(run)): count for path, count in count_damaged(run).items()},
        "evaluation": evaluation_fields(run)["metrics"],
        "rounds": read_results(run),
    }


def is_over(run: Path) -> bool:
    """Whether all stages that were begun are finished, and no command works on the run."""
    states = {_state(run / stage, stage)["state"] for stage in STAGES}
    rounds = read_results(run)
    waits = "unfinished" in states or (rounds is not None and not rounds["ended"])
    return "finished" in states and not waits and not run_log.is_open(run)


def _state(folder: Path, stage: str) -> dict[str, Any]:
    manifest = Manifest.read(folder)
    if manifest is None:
        return {"stage": stage, "state": "unfinished" if folder.exists() else "not started"}
    return {
        "stage": stage,
        "state": "finished",
        "damaged_files": sorted(map(str, changed(folder, manifest.outputs.items()))),
        "seconds": manifest.seconds,
        "finished_at": manifest.created,
        "counts": dict(manifest.counts),
        "tokens": _token_fields(manifest),
    }


def _count_name(name: str) -> str:
    """A count in words; a rule (`rule.wrong_answer`) keeps the name that it has in the recipe."""
    return name if "." in name else name.replace("_", " ")


def _token_fields(manifest: Manifest) -> dict[str, int | None]:
    """The token counts of a stage. Tokens of generate are None if the servers reported no usage.

    Where they reported it of some replies, they are lower bounds, and `without_usage` in the counts is not 0.
    """
    tokens: dict[str, int | None] = dict(manifest.tokens)
    replies = sum(manifest.counts.get(outcome, 0) for outcome in Outcome if outcome != Outcome.ERROR)
    if manifest.stage == "generate" and replies and not (tokens.get("reasoning") or tokens.get("answer")):
        tokens |= dict.fromkeys(("reasoning", "answer", "wasted"))
    if manifest.stage == "generate" and replies and not tokens.get("prompt"):
        tokens |= dict.fromkeys(("prompt", "image"))
    return tokens


def evaluation_fields(run: Path) -> dict[str, Any]:
    """The evaluation of a run as plain values, for JSON: what eval/metrics.json holds, null where there is none."""
    path = run / "eval" / EVAL_METRICS
    metrics = orjson.loads(path.read_bytes()) if path.is_file() else None
    return {"run": str(run), "report": str(run / "eval" / REPORT), "metrics": metrics}


def _stages(run: Path) -> str:
    rows = []
    for stage in STAGES:
        state = _state(run / stage, stage)
        damaged = f", {counted(len(state['damaged_files']), 'file')} damaged" if state.get("damaged_files") else ""
        seconds = f"{state['seconds']:,.0f} s" if "seconds" in state else ""
        if seconds and stage in _LAST_COMMAND_ALONE:
            seconds += ", last command"
        rows.append((stage, state["state"] + damaged, seconds, state.get("finished_at", "")))
    return table(("stage", "state", "took", "finished at"), rows)


def read_progress(run: Path) -> dict[str, Any] | None:
    """The last report of the stage that runs, with its age in seconds; None where none does."""
    try:
        note = (run / PROGRESS).read_bytes()
        age_s = max(0.0, time.time() - (run / PROGRESS).stat().st_mtime)
        progress = orjson.loads(note)
    except (FileNotFoundError, orjson.JSONDecodeError):  # what a power cut leaves may be empty
        return None
    if not isinstance(progress, dict) or not {"line", "pid"} <= progress.keys():
        return None
    return {**progress, "age_s": round(age_s, 1)}


def running(run: Path) -> str:
    """The last report of the stage that runs, and how old it is."""
    progress = read_progress(run)
    return f"{progress['line']} ({progress['age_s']:,.0f} s ago, process {progress['pid']})" if progress else ""


def funnel(run: Path) -> str:
    """How many questions and traces came in, were complete, were kept."""
    rows: list[tuple[str, str]] = []
    for stage, steps in FUNNEL.items():
        manifest = Manifest.read(run / stage)
        if manifest is not None:
            # The steps of the funnel in their order, then all other counts.
            other_counts = sorted(name for name, count in manifest.counts.items() if count and name not in steps)
            rows += [
                (f"{stage}: {_count_name(name)}", f"{manifest.counts.get(name, 0):,}")
                for name in (*steps, *other_counts)
            ]
            if stage == "generate":
                tokens = _token_fields(manifest)
                for name, parts in (("tokens", ("reasoning", "answer")), ("tokens wasted", ("wasted",))):
                    counts = [tokens.get(part, 0) for part in parts]
                    known = sum(count for count in counts if count is not None)
                    bound = ">= " if manifest.counts.get("without_usage") else ""
                    rows.append((f"generate: {name}", "not known" if None in counts else f"{bound}{known:,}"))
    return table(("funnel", "count"), rows) if rows else ""


def warnings(run: Path) -> str:
    """One line for each problem of the filtered dataset as a whole; empty without problems."""
    path = run / "filter" / HEALTH
    if not path.is_file() or Manifest.read(run / "filter") is None:
        return ""
    health = orjson.loads(path.read_bytes())
    lines = [f"warning: {text}" for text in health["warnings"]]
    lines += [f"note: {text}" for text in health["notes"]]
    return "\n".join([*lines, *filter(None, [as_text(read_findings(run, "filter"))])])


def damage(run: Path) -> str:
    """One line a file of which damaged lines were set aside; nothing where there was none."""
    lines = [
        f"note: {count:,} damaged {'line was' if count == 1 else 'lines were'} set aside in {path.relative_to(run)}"
        for path, count in count_damaged(run).items()
    ]
    return "\n".join(lines)


def lost_files(run: Path, stage: str) -> str:
    """One line a file of a finished stage that is missing or has another size."""
    manifest = Manifest.read(run / stage)
    faults = changed(run / stage, manifest.outputs.items()) if manifest is not None else {}
    return "\n".join(
        f"warning: {stage}/{name}: {fault}; `distill repair {as_argument(run)}` shows how much work is lost"
        for name, fault in faults.items()
    )


def log_state(run: Path, stage: str) -> None:
    """Write the counts, the warnings and the diagnosis of a finished stage to the log of a run."""
    manifest = Manifest.read(run / stage)
    if manifest is not None:
        facts = {"counts": dict(manifest.counts), "versions": dict(manifest.versions)}
        run_log.log.info("%s counts", stage, extra=facts)
    lines = damage(run).splitlines()
    if stage == "filter" and (run / stage / HEALTH).is_file():
        health = orjson.loads((run / stage / HEALTH).read_bytes())
        lines += [*health["warnings"], *health["notes"]]
    for line in lines:
        run_log.log.info("%s", line, extra={"level": "warning"})
    for finding in read_findings(run, stage):
        level = "warning" if finding["kind"] == "fault" else "info"
        run_log.log.info("%s: %s", finding["stage"], finding["text"], extra={"level": level})


def training(run: Path) -> str:
    """One line a trained stage."""
    rows = []
    for folder, manifest in _trained(run):
        counts = manifest.counts
        rows.append(
            (
                folder.name,
                f"{counts.get('rows', 0):,}",
                _steps(counts),
                f"{counts.get('trainable_parameters', 0):,}",
                f"{manifest.tokens.get('trained', 0):,}",
                f"{manifest.seconds:,.0f} s",
            )
        )
    if not rows:
        return ""
    head = ("trained", "rows", "steps", "trainable", "tokens", "took")
    return "\n".join([table(head, rows), *filter(None, [as_text(read_findings(run, "train "))])])


def _steps(counts: Mapping[str, int]) -> str:
    """The steps of a stage, and the step of its student where an earlier one was the best."""
    kept = counts.get("kept_step")
    return f"{counts.get('steps', 0):,}" + (f", kept {kept:,}" if kept is not None else "")


def _trained(run: Path) -> list[tuple[Path, Manifest]]:
    """The finished stages in the order of the recipe."""
    read = ((path, Manifest.read(path)) for path in stage_folders(run))
    return [(path, manifest) for path, manifest in read if manifest is not None]


def parts(run: Path) -> str:
    """What every trained stage trained and froze, and in which dtype."""
    rows = []
    for folder, _ in _trained(run):
        if (folder / PARTS).is_file():
            for part in orjson.loads((folder / PARTS).read_bytes())["parts"]:
                counts = (f"{part['parameters']:,}", f"{part['trainable']:,}")
                rows.append((f"{folder.name} {part['part']}", *counts, part["dtype"], byte_size(part["bytes"])))
    return table(("part", "parameters", "trained", "dtype", "weights"), rows) if rows else ""


def evaluation(run: Path) -> str:
    """Accuracy of every arm with its interval, its other metrics, domains, and the paired differences."""
    path = run / "eval" / EVAL_METRICS
    if not path.is_file():
        return ""
    from distill.reports import metric_table
    from student.inference.reply_metrics import shown_metrics

    metrics = orjson.loads(path.read_bytes())
    arms = metrics["arms"]
    columns = {
        metric.console: [metric_table.cell(arm, metric.column()).text for arm in arms.values()]
        for metric in shown_metrics(metrics)
        if metric.console
    }
    unseen = [(arm.get("without_image") or {}).get("accuracy") for arm in arms.values()]
    columns["without image %"] = ["" if share is None else percent(share) for share in unseen]
    columns = {head: cells for head, cells in columns.items() if any(cells)}
    rows = [
        (name, f"{arm['n']:,}", _accuracy(arm), *(columns[head][at] for head in columns))
        for at, (name, arm) in enumerate(arms.items())
    ]
    blocks = [table(("arm", "n", "accuracy % [95 % interval]", *columns), rows)]
    domains = sorted({domain for arm in arms.values() for domain in arm["domains"]})
    if len(domains) > 1:
        shares = [
            (name, *(percent(arm["domains"][each]["accuracy"]) if each in arm["domains"] else "" for each in domains))
            for name, arm in arms.items()
        ]
        blocks.append(table(("accuracy %", *(domain or "(none)" for domain in domains)), shares))
    blocks += _few(arms, shown_metrics(metrics))
    deltas = [
        (name, difference(delta), metric_table.probability(delta["p"])) for name, delta in metrics["deltas"].items()
    ]
    if deltas:
        blocks.append(table(("difference", "points [95 % interval]", "p"), deltas))
    reasons = ", ".join(f"{reason}: {count:,}" for reason, count in metrics.get("left_out", {}).items())
    note = f"note: rows of the evaluation data that were not asked: {reasons}" if reasons else ""
    return "\n\n".join(filter(None, [*blocks, note, *_errors(arms), as_text(read_findings(run, "eval"))]))


def _few(arms: Mapping[str, Any], shown: "Iterable[Metric]") -> list[str]:
    """A line for each share of the table that is one of few replies, with their numbers."""
    lines = []
    for metric in shown:
        counts = {name: arm.get(f"{metric.name}_n") or 0 for name, arm in arms.items()}
        few = [f"{count} of {name}" for name, count in counts.items() if 0 < count < min(FEWEST, arms[name]["n"])]
        if metric.console and metric.kind == "share" and few:
            lines.append(f"note: {metric.console} is a share of few replies: {', '.join(few)}")
    return ["\n".join(lines)] if lines else []


def _accuracy(arm: Mapping[str, Any]) -> str:
    return f"{percent(arm['accuracy'])} {interval(arm['ci95'])}"


def _errors(arms: Mapping[str, Any]) -> list[str]:
    """The replies of every arm that are not correct by their cause, and what limits it."""
    from student.evaluation.error_breakdown import breakdown_table

    errors = breakdown_table(arms)
    if errors is None:
        return []
    rows = [(name, *(str(cell[0]) if cell else "" for cell in cells)) for name, cells in errors["rows"].items()]
    limits = "\n".join(f"{name}: {sentence}" for name, sentence in errors["limits"].items())
    blocks = [table(("not correct", *(cause.replace("_", " ") for cause in errors["columns"])), rows), limits]
    return [block for block in blocks if block]


def ablation_fields(run: Path) -> dict[str, Any]:
    """An ablation as plain values, for JSON: what ablate/results.json holds."""
    folder = run / ABLATE
    results = orjson.loads((folder / RESULTS).read_bytes())
    return {"run": str(run), "report": str(folder / REPORT), "results": results}


def ablation(folder: Path, study: str | None = None) -> str:
    """Every arm of an ablation with its interval and its effect against the reference, then the claims."""
    from distill.ablation.power import stated_texts
    from distill.reports import metric_table

    results = orjson.loads((folder / RESULTS).read_bytes())
    studies = {name: study_results for name, study_results in results["studies"].items() if study in (None, name)}
    arm_names = studies[study]["arms"] if study in studies else list(results["arms"])
    rows = []
    for name in arm_names:
        arm = results["arms"][name]
        rows.append(
            (
                name,
                str(len(arm["seeds"])),
                _accuracy(arm),
                difference(arm["effect"]) if arm["effect"] else "",
                f"{arm['cost']['train_tokens']:,.0f}",
                f"{arm['cost'].get('all_seconds', arm['cost']['train_seconds']):,.0f}",
            )
        )
    gain = f"over {results['reference']}, points"
    parts = [table(("arm", "seeds", "accuracy % [95 % interval]", gain, "tokens", "seconds"), rows)]
    if len({tuple(results["arms"][name]["seeds"]) for name in arm_names}) > 1:
        parts.append(
            "note: a difference of two arms is over the seeds that both have, an accuracy over all of its arm"
        )
    claims = [
        (
            claim["text"],
            name,
            difference(claim["effect"]),
            metric_table.probability(claim.get("p_adjusted")),
            claim["verdict"],
        )
        for name, study_results in studies.items()
        for claim in study_results["claims"]
    ]
    claims += [
        (claim["text"], name, "", "", f"not tested: {claim['why']}")
        for name, study_results in studies.items()
        for claim in study_results.get("untested", ())
    ]
    if claims:
        parts.append(table(("claim", "study", "points [95 % interval]", "p after Holm", "verdict"), claims))
    parts += _errors({name: results["arms"][name] for name in arm_names})
    parts += stated_texts(results)
    for head, arms in (("failed", results.get("failed", {})), ("left out", results["skipped"])):
        if arms:
            parts.append("\n".join(f"{head}: {name}: {why}" for name, why in arms.items()))
    return "\n\n".join(parts)
