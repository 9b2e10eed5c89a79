"""What is known of every round of a run with rounds: `rounds/rounds.json`, and as text."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from distill.artifacts.files import write_json
from distill.artifacts.layout import ROUNDS, ROUNDS_RESULTS
from distill.reports.text_table import difference, interval, percent, table
from distill.rounds.verdicts import PassFigures, RoundVerdict


def round_fields(
    number: int, folder: Path, measured: PassFigures, verdict: RoundVerdict | None, counts: Mapping[str, int]
) -> dict[str, Any]:
    """One round as plain values; `counts`: numbers of its questions and traces."""
    return {
        "pass": number,
        "run": str(folder),
        **asdict(measured),
        **counts,
        "verdict": None if verdict is None else verdict.kind,
        "text": "" if verdict is None else verdict.text,
        "gain": None if verdict is None else asdict(verdict.gain),
    }


def write_results(run: Path, results: Mapping[str, Any]) -> None:
    """Write the rounds, the number of the best one, its student, and why the rounds ended."""
    write_json(run / ROUNDS / ROUNDS_RESULTS, results)


def read_results(run: Path) -> dict[str, Any] | None:
    """What `write_results` wrote; None where there are no rounds or the file is damaged."""
    try:
        result: dict[str, Any] = orjson.loads((run / ROUNDS / ROUNDS_RESULTS).read_bytes())
    except (FileNotFoundError, NotADirectoryError, orjson.JSONDecodeError):
        return None
    return result


def rounds_text(run: Path) -> str:
    """A table of the rounds, and which student is the best; empty where there are no rounds."""
    results = read_results(run)
    if results is None:
        return ""
    rows = []
    for each in results["passes"]:
        gain = each["gain"]
        rows.append(
            (
                "round 0" if each["pass"] == 0 else f"round {each['pass']}",
                f"{each['returned']:,}" if "returned" in each else "",
                f"{each['traces']:,}",
                f"{percent(each['accuracy'])} {interval(each['ci95'])}",
                "" if gain is None else difference(gain),
                "" if each["median_tokens"] is None else f"{each['median_tokens']:g}",
                percent(each["common_share"]),
                (each["verdict"] or "").replace("_", " "),
            )
        )
    head = ("validation", "returned", "new traces", "accuracy %", "gain, points", "tokens", "commonest answer %", "")
    lines = [table(head, rows)]
    if results["ended"]:
        lines.append(results["ended"])
    name = "round 0" if results["best"] == 0 else f"round {results['best']}"
    lines.append(f"best student: that of {name}, {results['student']}")
    return "\n".join(lines)
