"""Finished stages of a run that were made from other traces, or from another dataset, than are there now.

Reads manifests alone. What a changed recipe makes stale is another question (distill.planning.redo).
"""

from pathlib import Path

from distill.artifacts.integrity import traces_digest
from distill.artifacts.manifest import Manifest

_TRACES = "generate.outputs"


def outdated(run: Path) -> dict[str, str]:
    """Name of each such stage, and why it is outdated and what makes it again."""
    generated, filtered = Manifest.read(run / "generate"), Manifest.read(run / "filter")
    found = {}
    if generated and filtered and not _decided_on(filtered, generated):
        found["filter"] = "the traces changed since it finished; `distill filter` decides again"
    for folder in sorted(run.glob("train/*/")):
        trained = Manifest.read(folder)
        if trained and filtered and not _learned_from(trained, filtered):
            found[f"train {folder.name}"] = (
                f"it was trained on an earlier dataset than the one in filter; `distill train --stage {folder.name} "
                "--fresh` trains it again, and `distill run --redo-stale` makes all stages again that need it"
            )
    return found


def _decided_on(filtered: Manifest, generated: Manifest) -> bool:
    """Whether a filter stage read the traces that are there now."""
    return filtered.fields.get(_TRACES, "") in ("", traces_digest(generated))


def _learned_from(trained: Manifest, filtered: Manifest) -> bool:
    """Whether a stage learned from this dataset, or from no traces."""
    datasets = {value for key, value in trained.fields.items() if key.partition(":")[0] == "data.traces"}
    return datasets <= {filtered.fingerprint}


def outdated_text(run: Path) -> str:
    """One line for each such stage; empty without any."""
    return "\n".join(f"warning: {stage} is outdated: {why}" for stage, why in outdated(run).items())
