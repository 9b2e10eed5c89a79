"""Names of the files and folders of a run directory that more than one module reads or writes."""

import re
import tomllib
from pathlib import Path

RECIPE = "recipe.toml"
"""In the run directory: the recipe as it was resolved."""
PROGRESS = "progress.json"
"""In the run directory while a stage runs: its last report."""
TRACKERS = "trackers"
"""In the run directory: what experiment trackers write there."""
LEAKAGE = "leakage"
"""In the run directory: the indexes of its evaluation sources and the overlaps of each training source."""
OCR = "ocr"
"""In the run directory: the text that OCR reads in its images."""
GAIN = "gain"
"""In the run directory: the fit of the teachers' traces to a student, for `distill plan --gain`."""
PAGES = "index.html"
"""In the run directory: links to all pages of the run."""
REPORT = "report.html"
"""In `filter/`, `eval/` and the folder of an ablation: the page for people."""

PLAN, PLAN_STATE = "plan.parquet", "plan.json"
"""In `generate/`: every trace that is to be there, and its sample; what the plan was made from."""
SAMPLES, QUARANTINE = "samples.parquet", "quarantine.jsonl"
"""In `generate/`: the samples that are asked; the rows that cannot be asked, with the reason."""

ENGINES = "engine.json"
"""In the folder of a teacher: the engines that answered for it."""
BATCHES = "batches"
"""In the folder of a teacher: what was submitted to an API that answers whole files, one file a batch."""

SIGNALS, DECISIONS = "signals", "decisions.parquet"
DATASET, ARM_DATASETS = "dataset", "arms"
"""In `filter/`: the dataset, and the datasets of ablation arms by name."""
PAIRS_TABLE = "pairs.parquet"
"""In the folder of the arm `pairs`: the pair of every question, or why it has none."""
HEALTH = "health.json"
DIAGNOSIS = "diagnosis.json"
"""In the folder of a training stage: what it finds about itself; filter and eval write it to `health.json` and
`metrics.json`."""
SAMPLE_PARTS, PLACES = "samples", "places.parquet"
"""In `filter/`: the asked samples by partition, and beside them journal and first byte of every trace's record."""

MODEL, ADAPTER = "model", "adapter"
"""In the folder of a training stage: its student, and its adapters where it trained some."""
CHECKPOINTS = "checkpoints"
METRICS, PARTS, SETTINGS = "metrics.jsonl", "parts.json", "settings.json"
VALIDATION, VALIDATION_PAGE = "validation.jsonl", "samples.html"
DISTRIBUTIONS, COVERAGE = "distributions", "distill.json"
"""In the folder of a stage that learns from teachers' log-probabilities: a table of them; how many tokens have some.
"""
WEIGHTS = "visual.json"
"""In the folder of a stage that weighs tokens by what the image adds: how many tokens have such a weight."""
REFERENCE = "reference.npz"
"""In the folder of a stage that learns from pairs: log-probabilities of the traces under its start student."""
CACHE = ".cache"
ROWS = ".rows"
"""In `train/`: what can be computed again (student/data/images.py, student/data/image_tokens.py)."""

EVAL_METRICS, PREDICTIONS = "metrics.json", "predictions.jsonl"
"""In `eval/`."""

ABLATE = "ablate"
RESULTS, POWER, ARMS, SHARED = "results.json", "power.json", "arms", "shared"
"""In `ablate/`: results, the statement before the runs, the run directories of arms, and what arms share."""
FAILED = "failed.json"
"""In the run directory of an arm that failed: why. It goes when the arm is begun again."""

ROUNDS, ROUNDS_RESULTS = "rounds", "rounds.json"
"""In the run directory: the run directories of rounds by number, and what is known of every round."""

IMAGES, COMPARED_IMAGES = "read_images.parquet", ".read_images.parquet"
"""In the folder of a training stage and in `eval/`: the images that it read, and the same as they were compared last
(distill/data/source_images.py)."""

_PART = "part-"


def model_folder(run: Path, stage: str) -> Path:
    """The folder of the student of a finished training stage."""
    return run / "train" / stage / MODEL


def stage_folders(run: Path) -> list[Path]:
    """The folders of a run's training stages, in the order of its recipe; folders of other stages come last."""
    try:
        stages = tomllib.loads((run / RECIPE).read_text(encoding="utf-8")).get("stages", [])
    except (OSError, ValueError):  # no recipe there, or a damaged one, which other commands name
        stages = []
    order = {stage["name"]: number for number, stage in enumerate(stages)}
    folders = sorted(path for path in (run / "train").glob("*") if path.is_dir())
    return sorted(folders, key=lambda folder: order.get(folder.name, len(order)))


def dataset_file_rows(rows: int) -> int:
    """Rows per file of a dataset with this number of rows: 64 files, within a smallest and a largest size.

    The signals and questions of a file's rows are in memory together.
    """
    return min(4096, max(1000, -(-rows // 64)))


def train_data_folder(run: Path, arm: str = "") -> Path:
    """The folder of the rows of the dataset, or of an ablation arm."""
    return run / "filter" / (f"{ARM_DATASETS}/{arm}" if arm else DATASET) / "train"


def rollouts_folder(run: Path, stage: str) -> Path:
    """The folder of a stage that learns from replies of its start student."""
    return run / "rollouts" / stage


_NUMBERS = re.compile(r"(\d+)", re.ASCII)


def part_path(folder: Path, number: int, suffix: str) -> Path:
    """The file of one part of many, such as `part-00000.jsonl`."""
    return folder / f"{_PART}{number:05d}{suffix}"


def part_number(part: Path) -> int:
    return int(part.stem.removeprefix(_PART))


def part_paths(folder: Path, suffix: str, *, below: str = "") -> list[Path]:
    """The parts in a folder by number; with `below`, in the folders that this pattern matches."""
    return sorted(folder.glob(f"{below}/{_PART}*{suffix}" if below else f"{_PART}*{suffix}"), key=by_number)


def by_number(path: Path) -> list[str | int]:
    """A key that sorts paths by the numbers in them: part-99999 comes before part-100000."""
    return [int(piece) if piece.isascii() and piece.isdecimal() else piece for piece in _NUMBERS.split(str(path))]
