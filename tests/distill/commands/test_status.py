"""What the summary of a run says of its stages."""

from pathlib import Path

from distill.artifacts.files import write_json
from distill.artifacts.manifest import Manifest
from distill.commands.status import training


def test_the_summary_of_training_ends_in_what_each_stage_says_of_itself(tmp_path: Path) -> None:
    counts = {"rows": 30, "held_out": 6}
    Manifest(stage="train align", fingerprint="f", fields={}, counts=counts).write(tmp_path / "train" / "align")
    assert "diagnosis" not in training(tmp_path)
    said = [{"name": "few_steps", "kind": "fault", "text": "The stage makes 4 steps (certain). Change max_steps."}]
    write_json(tmp_path / "train" / "align" / "diagnosis.json", {"diagnosis": said})
    last = training(tmp_path).splitlines()[-1]
    assert last == "diagnosis of train align: The stage makes 4 steps (certain). Change max_steps."
