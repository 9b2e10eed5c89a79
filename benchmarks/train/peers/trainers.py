"""The command line of each trainer, its settings, and the files of its losses and weights."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import peer_world
import train_world as world
from safetensors.torch import load_file

LONGEST = 4096
"""No row has as many tokens."""
RECIPE = """\
[data.questions]
source = "questions.jsonl"
images_root = "images"
[student]
model = "{student}"
dtype = "float32"
[[stages]]
name = "stage"
data = "traces"
train = ["language"]
learning_rate = {rate}
warmup_share = 0.0
schedule = "constant"
max_length = {longest}
log_every_steps = 1
save_every_steps = 1000000
{more}
"""
PLUGIN = """\
from swift.template.templates.qwen import Qwen3VLTemplate

Qwen3VLTemplate.image_token_id = {image}
"""
"""ms-swift holds the id of an image's token in Qwen's vocabulary; the small student's vocabulary has another."""
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}


LOGS = {
    "distill": "run/train/stage/metrics.jsonl",
    "llamafactory": "model/trainer_log.jsonl",
    "swift": "model/logging.jsonl",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """The same for every trainer."""

    student: Path
    rows: Path
    """A folder of `peer_world`, with its export."""
    out: Path
    """A new folder."""
    batch: int
    """Rows of a step."""
    packed_tokens: int
    """Tokens of a step where rows are packed."""
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    command: Sequence[str | Path]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """A tool with a choice of its settings."""

    name: str
    tool: str
    call: Callable[[TrainingJob], Call]
    packed: bool = False
    """Steps of `packed_tokens` tokens in an order of its own; else steps of `batch` rows in the order of the data."""


def trainers(environments: Path) -> list[Trainer]:
    """Ours, and each peer that has an environment, as it comes and with its settings for speed on a CPU."""
    found = [
        Trainer(name="ours", tool="distill", call=lambda job: ours(job, packed=False)),
        Trainer(name="ours, packed", tool="distill", call=lambda job: ours(job, packed=True), packed=True),
    ]
    factory, swift = environments / "llamafactory" / "bin", environments / "swift" / "bin"
    kept = {"disable_gradient_checkpointing": True}
    if factory.is_dir():
        name = f"LLaMA-Factory {version(factory, 'llamafactory')}"
        program = factory / "llamafactory-cli"
        packed = {**kept, "neat_packing": True}
        found += [
            Trainer(name=name, tool="llamafactory", call=lambda job: llama_factory(program, job, {})),
            Trainer(name=f"{name}, kept", tool="llamafactory", call=lambda job: llama_factory(program, job, kept)),
            Trainer(
                name=f"{name}, packed",
                tool="llamafactory",
                call=lambda job: llama_factory(program, job, packed),
                packed=True,
            ),
        ]
    if swift.is_dir():
        name = f"ms-swift {version(swift, 'ms_swift')}"
        program_of_swift, free = swift / "swift", ["--gradient_checkpointing", "false"]
        found += [
            Trainer(name=name, tool="swift", call=lambda job: ms_swift(program_of_swift, job, [])),
            Trainer(name=f"{name}, kept", tool="swift", call=lambda job: ms_swift(program_of_swift, job, free)),
        ]
    for peer in (factory, swift):
        if not peer.is_dir():
            print(f"left out: there is no {peer}", file=sys.stderr)
    return found


def version(programs: Path, package: str) -> str:
    show = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run(
        [programs / "python", "-c", show], capture_output=True, text=True, check=True
    ).stdout.strip()


def ours(job: TrainingJob, *, packed: bool) -> Call:
    run, recipe = job.out / "run", job.rows / f"{job.out.name}.toml"
    world.write_traces(job.rows, run)
    more = f"batch_tokens = {job.packed_tokens}" if packed else f'batch_size = {job.batch}\norder = "data"'
    text = RECIPE.format(student=job.student, rate=job.rate, longest=LONGEST, more=more)
    recipe.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "distill", "train", recipe, "--run", run]
    return Call(command=command, environment={"PYTHONPATH": str(peer_world.ROOT)})


def llama_factory(program: Path, job: TrainingJob, more: Mapping[str, object]) -> Call:
    packed = "neat_packing" in more
    values = {
        "stage": "sft",
        "do_train": True,
        "finetuning_type": "full",
        "model_name_or_path": str(job.student),
        "template": "qwen3_vl_nothink",
        "dataset_dir": str(job.rows / "exported"),
        "dataset": next(iter(json.loads((job.rows / "exported" / "dataset_info.json").read_text()))),
        "cutoff_len": job.packed_tokens if packed else LONGEST,
        "output_dir": str(job.out / "model"),
        "per_device_train_batch_size": 1 if packed else job.batch,
        "gradient_accumulation_steps": 1,
        "num_train_epochs": 1,
        "learning_rate": job.rate,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "weight_decay": 0.0,
        "disable_shuffling": True,
        "image_max_pixels": 2**20,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        **more,
    }
    path = job.out / "train.yaml"
    path.write_text(json.dumps(values), encoding="utf-8")
    own = {"HF_HOME": str(job.out / "cache"), "USE_MODELSCOPE_HUB": "0"}
    return Call(command=[program, "train", path], environment=OFFLINE | own)


def ms_swift(program: Path, job: TrainingJob, more: Sequence[str]) -> Call:
    plugin = job.out / "small_vocabulary.py"
    config = json.loads((job.student / "config.json").read_text(encoding="utf-8"))
    plugin.write_text(PLUGIN.format(image=config["image_token_id"]), encoding="utf-8")
    values = {
        "external_plugins": plugin,
        "model": job.student,
        "model_type": "qwen3_vl",
        "template": "qwen3_vl",
        "tuner_type": "full",
        "torch_dtype": "float32",
        "attn_impl": "sdpa",
        "dataset": job.rows / "exported" / "ms-swift.jsonl",
        "max_length": LONGEST,
        "output_dir": job.out / "model",
        "add_version": "false",
        "per_device_train_batch_size": job.batch,
        "gradient_accumulation_steps": 1,
        "num_train_epochs": 1,
        "learning_rate": job.rate,
        "lr_scheduler_type": "constant",
        "warmup_ratio": 0.0,
        "weight_decay": 0.0,
        "adam_beta2": 0.999,
        "dataset_shuffle": "false",
        "train_dataloader_shuffle": "false",
        "logging_steps": 1,
        "save_strategy": "epoch",
        "save_only_model": "true",
        "report_to": "none",
        "use_cpu": "true",
    }
    command = [program, "sft", *(part for key, value in values.items() for part in (f"--{key}", str(value))), *more]
    own = {"HF_HOME": str(job.out / "cache"), "MODELSCOPE_CACHE": str(job.out / "cache"), "USE_HF": "1"}
    own["ROOT_IMAGE_DIR"] = str(job.rows / "exported")
    return Call(command=command, environment=OFFLINE | own)


def read_losses(tool: str, out: Path) -> list[float]:
    """The loss of each step in a tool's own log by now."""
    path = out / LOGS[tool]
    whole = path.read_bytes().rpartition(b"\n")[0] if path.is_file() else b""
    return [line["loss"] for line in map(json.loads, whole.splitlines()) if "loss" in line]


def changed_weights(student: Path, out: Path) -> list[str]:
    """The names of the weights that training changed."""
    before = load_file(student / "model.safetensors")
    (trained,) = out.rglob("model.safetensors")
    after = load_file(trained)
    return [name for name, weight in before.items() if not weight.equal(after[name])]
