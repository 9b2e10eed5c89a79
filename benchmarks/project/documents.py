"""Write docs/results.md and the figures of README.md from measured results, so that no number is typed by hand, and
the layers of docs/architecture.md from the contracts in pyproject.toml.

    distill ablate tiny-studies --jobs 2 && make demo
    python benchmarks/project/documents.py --studies runs/tiny-studies --demo runs/tiny --seconds 415
    python benchmarks/project/documents.py --pocket runs/pocket/run        # after distill ablate of recipe pocket
    python benchmarks/project/documents.py                                 # write again from docs/results/

The measured results are in docs/results/: results and page of the studies, metrics of the demo, results of the recipe
pocket. A test compares the documents with them (tests/structure/test_documents.py).
Takes 2 s (two shared cores).
"""

import argparse
import json
import os
import platform
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from distill.ablation.power import stated_texts
from distill.artifacts.files import write_text
from distill.artifacts.manifest import Manifest
from distill.commands.status import evaluation
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.reports.text_table import difference, interval, percent

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "docs" / "results"
STUDIES, POCKET, FACTS = KEPT / "studies.json", KEPT / "pocket.json", KEPT / "facts.json"
DEMO, PAGE = KEPT / "tiny", KEPT / "tiny-studies.html"
README, ARCHITECTURE = ROOT / "README.md", ROOT / "docs" / "architecture.md"
RECIPES = ROOT / "recipes" / "README.md"
LAYERS_BEGIN, LAYERS_END = "<!-- layers: python benchmarks/project/documents.py -->", "<!-- end of layers -->"
BEGIN, END = "<!-- figures: python benchmarks/project/documents.py -->", "<!-- end of figures -->"
RECIPE = "tiny-studies"
_RATES = ("without_image_accuracy", "hallucination_rate")
_MARK = {"holds": "**holds**", "does not hold": "**does not hold**", "undecided": "undecided"}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def by_seed(effect: Mapping[str, Any]) -> str:
    return " / ".join(percent(one["delta"], signed=True) for one in effect["by_seed"].values())


def results_page() -> str:
    """docs/results.md."""
    results = json.loads(STUDIES.read_text(encoding="utf-8"))
    facts = json.loads(FACTS.read_text(encoding="utf-8"))["studies"]
    recipe = load(RECIPE)
    planned = facts["seeds_planned"]
    parts = [_introduction(results, facts, recipe), _claims(results, planned)]
    parts += [_study(name, study, results, planned) for name, study in results["studies"].items()]
    parts.append(_demo())
    return "\n\n".join(parts) + "\n"


def _introduction(results: Mapping[str, Any], facts: Mapping[str, Any], recipe: Recipe) -> str:
    seeds = _seeds(results, facts["seeds_planned"])
    (temperature,) = {teacher.sampling.temperature for teacher in recipe.teachers}
    arms, n = len(results["arms"]), results["n"]
    claims = sum(len(study["claims"]) for study in results["studies"].values())
    correct, complete = facts["filter"]["correct"], facts["filter"]["complete"]
    studied = next(stage for stage in recipe.stages if stage.name == results["stage"])
    reference = results["arms"][results["reference"]]["accuracy"]
    demo = json.loads((DEMO / "eval" / "metrics.json").read_text(encoding="utf-8"))["arms"]["distilled"]["accuracy"]
    versions = ", ".join([facts["python"], *(f"{name} {version}" for name, version in facts["versions"].items())])
    return f"""# Results

Six studies on the data set [tiny](../recipes/tiny/README.md) measure which parts of the method help.
Each arm is the same recipe with one thing changed. `python benchmarks/project/documents.py` writes this page from
the files of the runs: [results](results/studies.json), [page with curves and gallery](results/tiny-studies.html).

- **Arms**: {arms}. Each is trained with {seeds}, and answers the same {n:,} held-out questions.
- **Intervals** are 95 % intervals over questions and training seeds, paired by both
  (`distill/stats/paired_effects.py`). The tables also give the difference of every seed.
- **Verdicts**: a claim *holds* or *does not hold* if its p-value is below 0.05 after Holm's correction for the
  {claims} claims, and is *undecided* otherwise.
- **Limits**: this is a small synthetic data set of three domains, with a student of 1.2 M parameters. The teachers
  sample at temperature {temperature:g} so that they make errors ({correct:,} of {complete:,} complete traces are
  correct). The
  studies show how the method behaves where every answer can be checked. They do not predict results on your data. The
  stage under study, `{studied.name}`, has {facts["steps"]} steps, which keeps the studies short: the reference
  reaches {percent(reference)} %, the demo's student {percent(demo)} %.
{_more_seeds(results, facts["seeds_planned"])}{_state(facts, recipe)}- **Made with** {versions}, without a GPU. The
  {facts["cores"]} CPU cores also did other work, so this page gives no seconds.

To repeat all studies: `distill ablate {RECIPE} --jobs 2`. They share traces, datasets and stages in one run
directory, and resume; `--study NAME` runs one of them."""


def _seeds(results: Mapping[str, Any], planned: int) -> str:
    """The number of seeds of the arms, in words."""
    counts = sorted({len(arm["seeds"]) for arm in results["arms"].values()})
    done = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    return f"{done} seeds" if counts[0] >= planned else f"{done} of {planned} planned seeds"


def _more_seeds(results: Mapping[str, Any], planned: int) -> str:
    """A note where some arms have more seeds than planned at first; else nothing."""
    arms = results["arms"]
    counts = sorted({len(arm["seeds"]) for arm in arms.values()} - {planned})
    if not counts or counts[0] < planned:
        return ""
    trained = "; ".join(
        f"{count} for " + ", ".join(f"`{name}`" for name, arm in arms.items() if len(arm["seeds"]) == count)
        for count in counts
    )
    return f"""- **More seeds**: {planned} seeds left claims undecided, so arms of these claims have more:
  {trained}.
  Each number was fixed before the seeds ran. Several looks at results find a difference that is not there more often
  than one look. Two looks need p below 0.029, and three p below 0.022, to keep this rate at 5 %.
"""


def _is_earlier(facts: Mapping[str, Any], recipe: Recipe) -> bool:
    """Whether the present recipe asks for other runs than the measured ones."""
    return (facts["steps"], facts["seeds_planned"]) != (recipe.stages[-1].max_steps, len(recipe.ablate.seeds))


def _state(facts: Mapping[str, Any], recipe: Recipe) -> str:
    """A note where the measured runs are of an earlier recipe; else nothing."""
    if not _is_earlier(facts, recipe):
        return ""
    seeds, steps = len(recipe.ablate.seeds), recipe.stages[-1].max_steps
    return f"""- **These are results of an earlier recipe.** `{RECIPE}` now trains {seeds} seeds, with
  {steps} steps of the stage under study after a longer stage before it, and asks more questions. Its
  studies are not finished; verdicts may change.
"""


def _claims(results: Mapping[str, Any], planned: int) -> str:
    """Every claim with its raw interval, its p-value after Holm's correction and the verdict that follows."""
    claims = [(name, claim) for name, study in results["studies"].items() for claim in study["claims"]]
    rows = []
    for name, claim in claims:
        seeds = len(claim["effect"]["by_seed"])
        rows.append(
            [
                f"[{name}](#{name})",
                claim["text"],
                difference(claim["effect"]),
                by_seed(claim["effect"]),
                f"{claim['p_adjusted']:.2g}",
                _MARK[claim["verdict"]] + (f" (partial: {seeds} of {planned} seeds)" if seeds < planned else ""),
            ]
        )
    head = ["study", "claim", "points [95 % interval]", "by seed", "p after Holm", "verdict"]
    first, *later = stated_texts(results) or [""]
    stated = "\n".join(f"- {line}" for line in [*first.splitlines(), *(text.partition("\n")[0] for text in later)])
    return f"## Which claims hold here\n\n{table(head, rows)}" + (f"\n\n{stated}" if stated else "")


def _partial(names: Sequence[str], results: Mapping[str, Any], planned: int) -> str:
    """A note where arms have fewer seeds than planned; else nothing."""
    seeds = {name: list(results["arms"][name]["seeds"]) for name in names}
    done = [f"`{name}` {', '.join(of_arm)}" for name, of_arm in seeds.items() if len(of_arm) < planned]
    return f"**Partial results**: {planned} seeds are planned. Seeds done so far: {'; '.join(done)}." if done else ""


def _study(name: str, study: Mapping[str, Any], results: Mapping[str, Any], planned: int) -> str:
    parts = [f"## {name}\n\n{study['question']} `distill ablate {RECIPE} --study {name}`"]
    parts += [note] if (note := _partial(study["arms"], results, planned)) else []
    parts.append(_arms(study, results))
    limits = {name: results["arms"][name].get("limited_by") for name in study["arms"]}
    if any(limits.values()):
        parts.append("\n".join(f"- `{name}`: {sentence}" for name, sentence in limits.items() if sentence))
    parts += [f"{note}" for note in study["notes"]]
    if "fit" in study:
        parts.append(_fit(study["fit"]))
    if "ranks" in study:
        parts.append(_ranks(study["ranks"]))
    return "\n\n".join(parts)


def _arms(study: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    rows = []
    domains = list(results["arms"][study["reference"]]["domains"])
    exposed = any("trace_tokens" in results["arms"][name]["cost"] for name in study["arms"])
    for name in study["arms"]:
        arm = results["arms"][name]
        metrics, cost = arm["metrics"], arm["cost"]
        rows.append(
            [
                f"`{name}`",
                arm["about"],
                f"{percent(arm['accuracy'])} {interval(arm['ci95'])}",
                difference(effect) if (effect := study["effects"].get(name)) else "",
                " / ".join(percent(arm["domains"][domain]["accuracy"]) for domain in domains),
                *(percent(metrics[key]) if key in metrics else "" for key in _RATES),
                f"{metrics['mean_rationale_tokens']:.0f}",
                f"{cost['traces']:,.0f}" if "traces" in cost else "",
                f"{cost['train_tokens'] / 1e6:.2f}",
                *([f"{cost.get('trace_tokens', 0) / 1e6:.2f}"] if exposed else []),
            ]
        )
    head = ["arm", "definition", "accuracy %", f"points over `{study['reference']}`", " / ".join(domains)]
    head += ["without image %", "hallucination %", "rationale tokens", "traces", "M tokens trained"]
    head += ["of traces"] if exposed else []
    return table(head, rows)


def _fit(fit: Mapping[str, Any]) -> str:
    rows = [
        [f"{point['x']:,.0f}", f"{percent(point['accuracy'])} {interval(point['ci95'])}"] for point in fit["points"]
    ]
    formula = f"\n\n`{fit['formula']}`" if fit["formula"] else ""
    return f"{table([fit['x_name'], 'accuracy %'], rows)}{formula}\n\n{fit['text']}"


def _ranks(ranks: Mapping[str, Any]) -> str:
    rows = [
        [
            row["teacher"],
            f"{row['fit']:.3g}",
            str(row["fit_rank"]),
            percent(row["accuracy"]),
            str(row["student_rank"]),
        ]
        for row in ranks["rows"]
    ]
    head = ["teacher", f"{ranks['signal']} (median)", "rank by fit", "its student's accuracy %", "rank by student"]
    signals = [
        [name, "" if found["spearman"] is None else f"{found['spearman']:+.2f}", f"{found['p']:.2g}"]
        for name, found in ranks.get("signals", {}).items()
        if found["p"] is not None
    ]
    others = table(["signal", "Spearman", "exact p"], signals)
    return f"{table(head, rows)}\n\n{ranks['text']}\n\n{others}"


def _demo() -> str:
    return (
        f"## The demo\n\n`make demo`, seed 0:\n\n```\n{evaluation(DEMO)}\n```\n\n## The recipe pocket\n\n{_pocket()}"
    )


def _pocket() -> str:
    """The section of docs/results.md about the recipe pocket."""
    results = json.loads(POCKET.read_text(encoding="utf-8"))
    (study,) = results["studies"].values()
    return f"{_pocket_summary('..')}\n\n{_arms(study, results)}"


def _pocket_summary(root: str) -> str:
    """A summary of the trainings of the recipe pocket; `root`: the path from the document to the repository."""
    arms, effect, seeds = _pocket_results()
    facts = json.loads(FACTS.read_text(encoding="utf-8"))["pocket"]
    low, high = effect["ci95"]
    verdict = "above zero" if low > 0 else "below zero" if high < 0 else "not decided"
    n = arms["distilled"]["n"]
    trained, control = (percent(arms[name]["accuracy"]) for name in ("distilled", "answers_only"))
    return f"""The recipe `pocket` runs the same stages with pretrained weights (SmolLM2-135M-Instruct and a small
vision tower) on charts of open tables, receipts, photographs and drawings ([card]({root}/recipes/pocket/README.md)).
After {facts["steps"]} steps of {facts["batch"]} rows, {trained} % of {n} held-out questions are right, and
{control} % with answers only: {difference(effect)} points, {verdict} ({seeds}).

![Charts and receipts with the students' replies]({root}/docs/pocket.png)"""


def _pocket_results() -> tuple[dict[str, Any], dict[str, Any], str]:
    """The arms of the recipe pocket, the effect of rationales, and the trainings of each arm in words."""
    results = json.loads(POCKET.read_text(encoding="utf-8"))
    (study,) = results["studies"].values()
    seeds = results["seeds"]
    trainings = f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} trainings of each"
    return results["arms"], study["claims"][0]["effect"], trainings


def recipes() -> str:
    """recipes/README.md with the result of the recipe pocket."""
    text = RECIPES.read_text(encoding="utf-8")
    arms, effect, seeds = _pocket_results()
    result = f"{percent(arms['distilled']['accuracy'])} %, answers only {percent(arms['answers_only']['accuracy'])}: "
    result += f"{difference(effect)} points ({seeds}, {arms['distilled']['n']} questions)"
    row = re.search(r"^\| \[pocket\].*$", text, re.MULTILINE)
    if row is None:
        raise SystemExit(f"{RECIPES}: it has no row of the recipe pocket")
    cells = row[0].split(" | ")
    return text.replace(row[0], " | ".join([*cells[:-1], f"{result} |"]))


def readme() -> str:
    """README.md with new figures."""
    return _replaced(README, BEGIN, _figures(), END)


def architecture() -> str:
    """docs/architecture.md with the present layers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layered = [contract for contract in project["tool"]["importlinter"]["contracts"] if contract["type"] == "layers"]
    blocks = ["\n".join([f"# {each['name']}, highest layer first", *each["layers"]]) for each in layered]
    text = "\n\n".join(blocks)
    return _replaced(ARCHITECTURE, LAYERS_BEGIN, f"```\n{text}\n```", LAYERS_END)


def _replaced(path: Path, begin: str, text: str, end: str) -> str:
    before, _, rest = path.read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{text}\n{end}{after}"


def _figures() -> str:
    facts = json.loads(FACTS.read_text(encoding="utf-8"))
    results = json.loads(STUDIES.read_text(encoding="utf-8"))
    claims = [claim for study in results["studies"].values() for claim in study["claims"]]
    holds, fails, open_ = (sum(claim["verdict"] == verdict for claim in claims) for verdict in _MARK)
    refuted = f"{fails} {'does' if fails == 1 else 'do'} not hold"
    seeds = _seeds(results, facts["studies"]["seeds_planned"])
    earlier = " (results of an earlier, shorter recipe)" if _is_earlier(facts["studies"], load(RECIPE)) else ""
    return f"""{_pocket_summary(".")}

The demo takes {facts["demo"]["seconds"] / 60:.0f} minutes on two CPU cores, without the set-up. It prints this \
table, and
draws `runs/tiny/eval/report.html`:

```
{evaluation(DEMO)}
```

`distill ablate tiny-studies` measures which parts of the method make the difference: {len(results["arms"])} arms, \
{seeds} each,
{results["n"]:,} questions. Of {len(claims)} claims of the method, {holds} hold on this data set, {refuted}, \
and {open_} are undecided:
[docs/results.md](docs/results.md){earlier}."""


def take_over(studies: Path | None, demo: Path | None, seconds: int | None, pocket: Path | None) -> None:
    """Copy the measured results to docs/results/."""
    facts = json.loads(FACTS.read_text(encoding="utf-8")) if FACTS.is_file() else {}
    if studies is not None:
        folder = studies / "ablate"
        write_text(STUDIES, _results(studies))
        results = json.loads(STUDIES.read_text(encoding="utf-8"))
        page = (folder / "report.html").read_text(encoding="utf-8")
        # The pages of single arms stay with the run.
        write_text(PAGE, re.sub(r'<a href="arms/[^>]*>(.*?)</a>', r"\1", page))
        filtered = _manifest(folder / "arms" / "distilled" / "seed-0" / "filter")
        trained = _manifest(folder / "arms" / "distilled" / "seed-0" / "train" / results["stage"])
        facts["studies"] = {
            "filter": {name: filtered.counts[name] for name in ("complete", "correct", "kept", "selected")},
            "versions": {name: trained.versions[name] for name in ("torch", "transformers", "trl")},
            "python": f"Python {platform.python_version()}",
            "cores": os.cpu_count(),
            "steps": trained.counts["steps"],
            "seeds_planned": len(load(RECIPE).ablate.seeds),
        }
    if demo is not None:
        write_text(DEMO / "eval" / "metrics.json", (demo / "eval" / "metrics.json").read_text(encoding="utf-8"))
        facts["demo"] = {"seconds": seconds}
    if pocket is not None:
        write_text(POCKET, _results(pocket))
        recipe = load(str(pocket / "ablate" / "arms" / "distilled" / "seed-0" / "recipe.toml"))
        stage = recipe.stages[-1]
        facts["pocket"] = {"steps": stage.max_steps, "batch": stage.batch_size}
    write_text(FACTS, json.dumps(facts, indent=1) + "\n")


def _results(run: Path) -> str:
    """The results of an ablation without learning curves, which its page draws."""
    results = json.loads((run / "ablate" / "results.json").read_text(encoding="utf-8"))
    for arm in results["arms"].values():
        arm.pop("curves", None)
    return json.dumps(results, indent=1) + "\n"


def _manifest(folder: Path) -> Manifest:
    found = Manifest.read(folder)
    if found is None:
        raise SystemExit(f"{folder}: not finished; run the commands at the top of this script first")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=Path, metavar="RUN", help="run directory of distill ablate tiny-studies")
    parser.add_argument("--demo", type=Path, metavar="RUN", help="run directory of make demo")
    parser.add_argument("--seconds", type=int, metavar="N", help="seconds that make demo took, by the clock")
    parser.add_argument("--pocket", type=Path, metavar="RUN", help="run directory of distill ablate of recipe pocket")
    arguments = parser.parse_args()
    if (arguments.demo is None) != (arguments.seconds is None):
        parser.error("--demo and --seconds go together")
    if arguments.studies or arguments.demo or arguments.pocket:
        take_over(arguments.studies, arguments.demo, arguments.seconds, arguments.pocket)
    write_text(ROOT / "docs" / "results.md", results_page())
    write_text(README, readme())
    write_text(RECIPES, recipes())
    write_text(ARCHITECTURE, architecture())


if __name__ == "__main__":
    main()
