"""What keeping resized images and image tokens is worth: time an image, and real tokens/s of a stage's steps.

    python benchmarks/train/image_caches.py --run runs/tiny --stage reason
    python benchmarks/train/image_caches.py --preset 0.5b --rows 16 --batch 4 --steps 2 --lora

First, one image from its file, from memory and from disk to what the model takes. Then steps of a stage that trains
the language model, from pixels and from tokens in turns (collating, forward, backward and optimizer included), and
what computing the tokens once costs. CPU time counts this process alone and says more than seconds where others use
the machine too. Not measured: dataloader workers, copying to a GPU.
Takes 70 s with `--preset cpu --rows 8 --batch 4 --steps 2` (two shared cores).
"""

import argparse
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import train_world as world

from distill.recipe.loading import load
from distill.recipe.sections.stages import Lora, Stage
from student.data import image_tokens, rows
from student.data.collate import collate
from student.data.encode import Encoder, Examples, RowLimits, encode
from student.data.images import ImageSource, ImageStore
from student.loss import training_loss
from student.models import attention, freeze, siq_vl
from student.models.inputs import end_ids
from student.models.parts import find_parts
from student.training.step_dataset import MICRO_BATCHES, build_step_dataset

PIXELS = 50_000_000


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        compare(options, Path(folder))


def compare(options: argparse.Namespace, folder: Path) -> None:
    if options.run:
        recipe = load(options.recipe)
        stage = next(stage for stage in recipe.stages if stage.name == options.stage)
        model, processor = siq_vl.load(str(options.run / "train" / options.start / "model"), dtype="float32")
        found = rows.read(recipe, options.run, stage, Counter())
    else:
        shape = world.SHAPES[options.preset]
        world.write_data(folder, "short-vqa", shape, options.rows, seed=0, name="rows")
        path = folder / "recipe.toml"
        path.write_text('[data.rows]\nsource = "rows.jsonl"\nimages_root = "images"\n', encoding="utf-8")
        recipe = load(path)
        stage = Stage(name="reason", data="rows", train=("language",))
        model, processor = siq_vl.load(str(world.write_student(folder, shape, "float32")), dtype="float32")
        found = rows.read(recipe, folder, stage, Counter())
    stage = stage.model_copy(
        update={"batch_size": options.batch, "batch_tokens": None, "max_steps": 10_000, "lora": lora_of(options)}
    )
    encoder, store = Encoder(processor, end_ids(model)), ImageStore(processor, torch.float32)
    examples = encode(list(found)[: options.rows], encoder, store, RowLimits(stage.max_length, PIXELS))
    refs = [ref for example in examples.rows for ref in example.row.images]
    stores(processor, refs, folder)
    steps(options, stage, model, processor, encoder, examples, store, folder)


def lora_of(options: argparse.Namespace) -> Lora | None:
    return Lora() if options.lora else None


def stores(processor: Any, refs: Sequence[Any], folder: Path) -> None:
    """One line a way of keeping images: milliseconds of CPU an image, and bytes."""
    ways = {
        "file": {"memory_bytes": 0},
        "memory": {"memory_bytes": 1 << 34},
        "disk": {"memory_bytes": 0, "disk_bytes": 1 << 34, "folder": folder},
    }
    some = list({ref.sha256: ref for ref in refs}.values())[:256]
    for name, settings in ways.items():
        store = ImageStore(processor, torch.float32, **settings)
        planned, _ = timed(lambda store=store: store.prepare(some, PIXELS))
        spent = []
        for _ in range(3):
            cpu, _ = timed(lambda store=store: [store.join([store.features(ref, PIXELS)]) for ref in some])
            spent.append(cpu / len(some))
        size = sum(value.numel() * value.element_size() for value in store.features(some[0], PIXELS).values())
        print(
            f"{name}: {statistics.median(spent) * 1e3:.2f} ms an image, {size / 1e3:.0f} kB kept; "
            f"planning {planned / len(some) * 1e3:.2f} ms"
        )


def steps(
    options: argparse.Namespace,
    stage: Stage,
    model: Any,
    processor: Any,
    encoder: Encoder,
    examples: Examples,
    store: ImageStore,
    folder: Path,
) -> None:
    """Real tokens/s from pixels and from tokens, step by step in turns."""
    parts = find_parts(model)
    training_loss.attach(model)
    attention.use(model, attention.choose("auto", torch.device("cpu"), torch.float32))
    student = freeze.prepare(model, parts, stage.train, stage.lora)
    refs = [ref for example in examples.rows for ref in example.row.images]
    kept: list[ImageSource] = []
    images_encoder = image_tokens.ImageEncoder(
        model=model, parts=parts, store=store, image_id=encoder.image_id, max_pixels=PIXELS, folder=folder
    )
    cpu, seconds = timed(lambda: kept.append(image_tokens.token_store(images_encoder, refs, max_bytes=1 << 34)))
    images = len({ref.sha256 for ref in refs})
    size = sum(file.stat().st_size for path in folder.glob("tokens-*") for file in path.iterdir())
    print(f"tokens of {images} images: {cpu / images * 1e3:.1f} ms of CPU an image, {size / images / 1e3:.0f} kB")
    trained = [parameter for parameter in student.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5)
    spent: dict[str, list[tuple[float, float, int]]] = {"pixels": [], "tokens": []}
    feeds = {
        name: build_step_dataset(
            student, parts, collate(student, examples, source, stage, encoder, max_pixels=PIXELS), stage, seed=0
        )
        for name, source in zip(spent, (store, *kept), strict=True)
    }
    student.train()
    for step in range(options.steps + 1):
        for name, made in feeds.items():

            def one(made: Any = made, step: int = step) -> None:
                for inputs in made[step][MICRO_BATCHES]:
                    inputs.pop("cells")
                    student(**inputs).loss.backward()
                optimizer.step()
                optimizer.zero_grad()

            cpu, seconds = timed(one)
            if step:  # the first one warms up
                spent[name].append((cpu, seconds, made[step]["facts"].tokens))
    rates = {
        name: [sum(one[2] for one in found) / sum(one[at] for one in found) for at in (0, 1)]
        for name, found in spent.items()
    }
    for name, (by_cpu, by_clock) in rates.items():
        print(f"{name}: {by_cpu:.0f} tokens a second of CPU, {by_clock:.0f} by the clock")
    by_cpu, by_clock = (tokens / pixels for tokens, pixels in zip(rates["tokens"], rates["pixels"], strict=True))
    print(f"tokens / pixels: {by_cpu:.2f}x by CPU, {by_clock:.2f}x by the clock")


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of CPU and of the clock."""
    cpu, clock = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - clock


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--recipe", default="tiny")
    parser.add_argument("--stage", default="reason")
    parser.add_argument("--start", default="instruct")
    parser.add_argument("--preset", default="cpu", choices=sorted(world.SHAPES))
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--lora", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
