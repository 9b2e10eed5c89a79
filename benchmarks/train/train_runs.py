"""One run of one contestant of benchmarks/train/train.py: train, time every step, read the loss of held-out rows."""

import json
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import torch
import train_world as world
from PIL import Image

TRAINED = {1: ("projector",), 2: ("projector", "language"), 3: ("language",)}
MAX_LENGTH = 4096
"""No row is as long."""
RECIPE = """\
[data.questions]
source = "questions.jsonl"
images_root = "images"
[student]
model = "student"
dtype = "{dtype}"
{student}
[[stages]]
name = "stage"
data = "{data}"
train = {train}
{batch}
learning_rate = {learning_rate}
warmup_share = 0.0
schedule = "constant"
order = "data"
max_length = {max_length}
log_every_steps = 1
save_every_steps = 1000000
{stage}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """`keys` are recipe keys of ours and their TOML values: "student.attention", "stage.kernels"."""

    name: str
    trl: bool = False
    tuned: bool = False
    dtype: str | None = None
    """Of the weights, where it is not that of the comparison."""
    traces: bool = False
    """Ours reads the rows as a filtered dataset, in which rationales are told from answers."""
    keys: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRun:
    """One run of a contestant on the rows of `folder`."""

    contestant: Contestant
    folder: Path
    stage: int
    batch: int | None
    """Rows a step; None: a key of the contestant says how many tokens."""
    warm_up: int
    dtype: str
    learning_rate: float
    threads: int
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """What a contestant's own log says after a step; all but `loss` are totals since the start."""

    seconds: float
    cpu_s: float
    tokens: int
    places: int
    """Tokens and padding."""
    loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    ticks: list[StepTime]
    peak_bytes: int
    load: Callable[[], tuple[Any, Any]]
    """The trained student and its processor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    name: str
    tokens: int
    """Of all steps."""
    tokens_per_s: float
    tokens_per_cpu_s: float
    step_s: float
    step_cpu_s: float
    whole_s: float
    padding_share: float
    flops: float
    """Needed ones, a second of the GPU or of CPU time."""
    matmul_flops: float
    """Of a square matrix product in the same process, a second of the same kind."""
    peak_gib: float
    loss: float
    losses: tuple[float, ...]
    """Of training, step by step."""
    steps_cpu_s: tuple[float, ...]
    """Of the steps after the first few."""


def measure(job: TimedRun) -> Result:
    """One run from start to end; to be called in a process of its own."""
    torch.set_num_threads(job.threads)
    trained = trl(job, job.batch or 1) if job.contestant.trl else ours(job)
    model, processor = trained.load()
    first, last = trained.ticks[job.warm_up - 1], trained.ticks[-1]
    tokens, seconds = last.tokens - first.tokens, last.seconds - first.seconds
    busy_s = seconds if torch.cuda.is_available() else last.cpu_s - first.cpu_s
    return Result(
        name=job.contestant.name,
        tokens=last.tokens,
        tokens_per_s=tokens / seconds,
        tokens_per_cpu_s=tokens / (last.cpu_s - first.cpu_s),
        step_s=seconds / (len(trained.ticks) - job.warm_up),
        step_cpu_s=(last.cpu_s - first.cpu_s) / (len(trained.ticks) - job.warm_up),
        whole_s=last.seconds,
        padding_share=1 - tokens / (last.places - first.places),
        flops=flops_per_token(job, model, processor) * tokens / busy_s,
        matmul_flops=matmul_flops(getattr(torch, job.dtype)),
        peak_gib=trained.peak_bytes / 2**30,
        loss=held_out_loss(model, processor, job.folder),
        losses=tuple(tick.loss for tick in trained.ticks),
        steps_cpu_s=tuple(after.cpu_s - before.cpu_s for before, after in pairwise(trained.ticks[job.warm_up - 1 :])),
    )


def ours(job: TimedRun) -> Trained:
    from distill.recipe import loading
    from distill.types import Progress
    from student import train
    from student.models import siq_vl

    values = {
        section: "\n".join(
            f"{key.partition('.')[2]} = {value}"
            for key, value in job.contestant.keys.items()
            if key.startswith(f"{section}.")
        )
        for section in ("student", "stage")
    }
    run = job.folder / f"run-{slug(job.contestant.name)}"
    if job.contestant.traces:
        world.write_traces(job.folder, run)
    path = job.folder / f"{slug(job.contestant.name)}.toml"
    path.write_text(
        RECIPE.format(
            dtype=job.contestant.dtype or job.dtype,
            data="traces" if job.contestant.traces else "questions",
            train=json.dumps(TRAINED[job.stage]),
            batch="" if job.batch is None else f"batch_size = {job.batch}",
            learning_rate=job.learning_rate,
            max_length=MAX_LENGTH,
            **values,
        ),
        encoding="utf-8",
    )
    times: list[tuple[float, float]] = []
    now = clock()

    def on_progress(progress: Progress) -> None:
        if progress.unit == "steps":
            times.append(now())

    train.train(loading.load(path), run, on_progress=on_progress)
    peak = peak_bytes()
    ticks, places = [], 0.0
    lines = (run / "train" / "stage" / "metrics.jsonl").read_bytes().splitlines()
    for (seconds, cpu_s), line in zip(times, map(orjson.loads, lines), strict=True):
        before = ticks[-1].tokens if ticks else 0
        places += (line["tokens"] - before) / (1 - line["padding_share"])
        ticks.append(
            StepTime(seconds=seconds, cpu_s=cpu_s, tokens=line["tokens"], places=round(places), loss=line["loss"])
        )
    folder = str(run / "train" / "stage" / "model")
    return Trained(ticks=ticks, peak_bytes=peak, load=lambda: siq_vl.load(folder, dtype=job.dtype))


def trl(job: TimedRun, batch: int) -> Trained:
    """As its documentation has it: the model frozen by hand, a data set with images and messages, a processor."""
    from datasets import Dataset, Features, List, Value
    from datasets import Image as ImageFeature
    from transformers import AutoModelForImageTextToText, AutoProcessor, TrainerCallback
    from trl import SFTConfig, SFTTrainer

    from student.models.parts import find_parts

    now = clock()
    processor = AutoProcessor.from_pretrained(job.folder / "student")
    model = AutoModelForImageTextToText.from_pretrained(
        job.folder / "student", dtype=getattr(torch, job.contestant.dtype or job.dtype)
    )
    roles = find_parts(model)
    model.requires_grad_("language" in TRAINED[job.stage])
    model.get_submodule(roles.tower).requires_grad_(False)
    for name in roles.projectors:
        model.get_submodule(name).requires_grad_(True)
    questions = list(read(job.folder / "questions.jsonl"))
    tuned = job.contestant.tuned
    rows = [
        {
            "images": [str(job.folder / "images" / question["image"])],
            "messages": [
                {"role": "user", "content": question["question"]},
                {"role": "assistant", "content": question["answer"]},
            ],
        }
        for question in (grouped(questions, batch) if tuned else questions)
    ]
    features = Features(
        {"images": List(ImageFeature()), "messages": List({"role": Value("string"), "content": Value("string")})}
    )
    config = SFTConfig(
        output_dir=str(job.folder / "trl"),
        per_device_train_batch_size=batch,
        num_train_epochs=1,
        learning_rate=job.learning_rate,
        lr_scheduler_type="constant",
        max_length=MAX_LENGTH,
        assistant_only_loss=True,
        # Its default is to compute in bfloat16 whatever the weights are; a comparison in float32 is one in float32.
        bf16=job.dtype == "bfloat16",
        gradient_checkpointing=not tuned,
        # The rows are in random order, or grouped, already.
        train_sampling_strategy="sequential",
        dataloader_num_workers=job.workers if tuned else 0,
        use_cpu=not torch.cuda.is_available(),
        save_strategy="no",
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        seed=0,
    )
    ticks: list[StepTime] = []
    places = 0

    def count(_module: Any, _args: Any, inputs: dict[str, Any]) -> None:
        nonlocal places
        places += inputs["input_ids"].numel()

    class Ticking(TrainerCallback):  # type: ignore[misc]
        def on_log(self, _args: Any, state: Any, _control: Any, *, logs: dict[str, float], **_: Any) -> None:
            if "loss" in logs:
                # Its template ends with a line feed after the last turn, which ours does not train on.
                feeds = min(len(rows), state.global_step * batch)
                tokens = int(logs["num_tokens"]) - feeds
                seconds, cpu_s = now()
                ticks.append(StepTime(seconds=seconds, cpu_s=cpu_s, tokens=tokens, places=places, loss=logs["loss"]))

    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=Dataset.from_list(rows, features=features),
        processing_class=processor,
        callbacks=[Ticking()],
    )
    trainer.model.register_forward_pre_hook(count, with_kwargs=True)
    trainer.train()
    return Trained(ticks=ticks, peak_bytes=peak_bytes(), load=lambda: (trainer.model, processor))


def clock() -> Callable[[], tuple[float, float]]:
    """Seconds since now, and those of this process's CPU time."""
    begun = time.perf_counter(), time.process_time()
    return lambda: (time.perf_counter() - begun[0], time.process_time() - begun[1])


def grouped(questions: Sequence[dict[str, str]], batch: int) -> list[dict[str, str]]:
    """Rows of like length share a batch, and batches come in random order.

    What train_sampling_strategy = "group_by_length" does to a large data set; a small one it groups by parts only.
    """
    by_length = sorted(questions, key=lambda question: len(question["question"]) + len(question["answer"]))
    batches = [by_length[start : start + batch] for start in range(0, len(by_length), batch)]
    random.Random(0).shuffle(batches)
    return [question for each in batches for question in each]


def read(path: Path) -> Iterator[dict[str, str]]:
    for line in path.read_bytes().splitlines():
        yield orjson.loads(line)


def peak_bytes() -> int:
    """Peak memory of the GPU if there is one, else of this process."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


def encoded(processor: Any, folder: Path, name: str) -> Iterator[dict[str, torch.Tensor]]:
    """The rows of a file as the processor itself makes them, one by one; `assistant_masks` marks the response."""
    for question in read(folder / name):
        with Image.open(folder / "images" / question["image"]) as image:
            asked = [{"type": "image", "image": image}, {"type": "text", "text": question["question"]}]
            messages = [
                {"role": "user", "content": asked},
                {"role": "assistant", "content": [{"type": "text", "text": question["answer"]}]},
            ]
            yield processor.apply_chat_template(
                messages,
                tokenize=True,
                return_dict=True,
                return_assistant_tokens_mask=True,
                processor_kwargs={"return_tensors": "pt", "add_special_tokens": False},
            )


@torch.no_grad()
def held_out_loss(model: Any, processor: Any, folder: Path) -> float:
    """Mean negative log-likelihood of the response tokens of the held-out rows, by plain forward passes."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = model.to(device).eval()
    total, tokens = 0.0, 0
    for row in encoded(processor, folder, "held_out.jsonl"):
        said = torch.as_tensor(row.pop("assistant_masks")).bool()[:, 1:].to(device)
        inputs = {key: value.to(device) for key, value in row.items()}
        inputs["pixel_values"] = inputs["pixel_values"].to(model.dtype)
        logits = model(**inputs, use_cache=False).logits[:, :-1].float()
        scores = torch.nn.functional.cross_entropy(logits[said], inputs["input_ids"][:, 1:][said], reduction="sum")
        total += float(scores)
        tokens += int(said.sum())
    return total / tokens


def flops_per_token(job: TimedRun, model: Any, processor: Any) -> float:
    """FLOPs that a real token of the training rows needs on average, its share of tower and head included."""
    from student.models.flops import Cost
    from student.models.freeze import prepare
    from student.models.parts import find_parts

    roles = find_parts(model)
    cost = Cost.of(prepare(model, roles, TRAINED[job.stage], None), roles)
    lengths, responses, patches, squared = [], 0, 0, 0
    for row in encoded(processor, job.folder, "questions.jsonl"):
        lengths.append(row["input_ids"].shape[1] - 1)
        responses += int(torch.as_tensor(row["assistant_masks"]).sum())
        here, square = cost.patches(row)
        patches, squared = patches + here, squared + square
    needed = cost.flops(
        tokens=sum(lengths),
        squared_lengths=sum(length**2 for length in lengths),
        response_tokens=responses,
        patches=patches,
        squared_patches=squared,
    )
    return needed / sum(lengths)


def matmul_flops(dtype: torch.dtype) -> float:
    """FLOPs of a square matrix product, a second of the GPU or of CPU time."""
    from student.models.flops import matmul_rate

    if torch.cuda.is_available():
        return matmul_rate("cuda", dtype)
    side = 1024
    left, right = (torch.randn(side, side).to(dtype) for _ in range(2))
    spent = []
    for _ in range(10):
        begun = time.process_time()
        left @ right
        spent.append(time.process_time() - begun)
    return 2 * side**3 / min(spent)


def slug(name: str) -> str:
    return re.sub(r"\W+", "-", name)
