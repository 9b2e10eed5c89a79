"""Students and data for `train.py`, all made on the spot: shapes with random weights, images, questions.

`shapes` are the public sizes of the checkpoints that they are named after (their config.json on the hub), and one
that a CPU trains in seconds. Nothing is downloaded and nothing sensible is learned: speed does not depend on what
the weights say.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

NAMES = ("cube", "ball", "cone", "ring", "star", "bar", "slice", "line", "dot", "arrow", "tile", "frame")
COLOURS = ("red", "green", "blue", "white", "black", "yellow", "purple", "orange", "grey", "brown")
PLACES = ("left", "right", "top", "bottom", "middle", "front", "back", "corner", "edge", "shade")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A SigLIP tower, a pixel shuffle and a Qwen2 decoder."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    key_value_heads: int
    vocabulary: int
    tower_hidden: int
    tower_intermediate: int
    tower_layers: int
    tower_heads: int
    image_size: int
    patch_size: int
    pixel_shuffle: int
    image_pixels: tuple[int, int]
    """Width and height of the JPEG files."""

    @property
    def patches(self) -> int:
        return (self.image_size // self.patch_size) ** 2

    @property
    def image_tokens(self) -> int:
        return self.patches // self.pixel_shuffle**2


SHAPES = {
    # Relative to each other, tower, decoder body and vocabulary are about as large as those of "0.5b".
    "cpu": Shape(
        hidden=256,
        intermediate=1280,
        layers=6,
        heads=4,
        key_value_heads=2,
        vocabulary=10_240,
        tower_hidden=192,
        tower_intermediate=768,
        tower_layers=6,
        tower_heads=3,
        image_size=160,
        patch_size=16,
        pixel_shuffle=2,
        image_pixels=(320, 240),
    ),
    # For trying the script itself.
    "tiny": Shape(
        hidden=64,
        intermediate=128,
        layers=2,
        heads=4,
        key_value_heads=2,
        vocabulary=1024,
        tower_hidden=64,
        tower_intermediate=128,
        tower_layers=2,
        tower_heads=4,
        image_size=64,
        patch_size=16,
        pixel_shuffle=2,
        image_pixels=(80, 60),
    ),
    # google/siglip2-base-patch16-224 and Qwen/Qwen2.5-0.5B
    "0.5b": Shape(
        hidden=896,
        intermediate=4864,
        layers=24,
        heads=14,
        key_value_heads=2,
        vocabulary=151_936,
        tower_hidden=768,
        tower_intermediate=3072,
        tower_layers=12,
        tower_heads=12,
        image_size=224,
        patch_size=16,
        pixel_shuffle=2,
        image_pixels=(640, 480),
    ),
    # google/siglip2-so400m-patch14-384 and Qwen/Qwen2.5-1.5B; 27 x 27 patches divide by 3
    "1.5b": Shape(
        hidden=1536,
        intermediate=8960,
        layers=28,
        heads=12,
        key_value_heads=2,
        vocabulary=151_936,
        tower_hidden=1152,
        tower_intermediate=4304,
        tower_layers=27,
        tower_heads=16,
        image_size=384,
        patch_size=14,
        pixel_shuffle=3,
        image_pixels=(640, 480),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One row of the data: an image, what is asked of it, what is to be said."""

    image: str
    question: str
    answer: str


def write_student(folder: Path, shape: Shape, dtype: str) -> Path:
    """A random SiQ-VL of that shape, built by the toolkit and saved to `folder`/student, which is given back."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM, SiglipVisionConfig, SiglipVisionModel

    from student.models import siq_vl

    torch.manual_seed(0)
    weights = getattr(torch, dtype)
    tower = SiglipVisionConfig(
        hidden_size=shape.tower_hidden,
        intermediate_size=shape.tower_intermediate,
        num_hidden_layers=shape.tower_layers,
        num_attention_heads=shape.tower_heads,
        image_size=shape.image_size,
        patch_size=shape.patch_size,
    )
    SiglipVisionModel(tower).to(weights).save_pretrained(folder / "vision")
    decoder = Qwen2Config(
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads,
        vocab_size=shape.vocabulary,
        max_position_embeddings=32_768,
        rope_theta=1e6,
        tie_word_embeddings=True,
    )
    Qwen2ForCausalLM(decoder).to(weights).save_pretrained(folder / "language")
    tokenizer().save_pretrained(folder / "language")
    student, processor = siq_vl.build(
        str(folder / "vision"), str(folder / "language"), shape.pixel_shuffle, dtype=dtype
    )
    student.save_pretrained(folder / "student")
    processor.save_pretrained(folder / "student")
    return folder / "student"


def tokenizer() -> Any:
    """Byte-level BPE with ChatML's marks, trained on the words of the data: about a token a word."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    chance = random.Random(0)
    bpe.train_from_iterator(
        [sentence(chance) for _ in range(2000)],
        trainers.BpeTrainer(
            vocab_size=600,
            special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>")


def write_data(
    folder: Path, kind: str, shape: Shape, rows: int, *, seed: int, name: str, images: int | None = None
) -> None:
    """`folder`/`name`.jsonl with so many rows in random order, their images in `folder`/images.

    `images`: so many different ones; None: each row has its own.
    """
    chance = random.Random(f"{seed} {name}")
    texts = list(_MADE[kind](chance, rows))
    chance.shuffle(texts)
    questions = []
    for number, (question, answer) in enumerate(texts):
        path, own = folder / "images" / f"{name}-{number}.jpg", chance.randrange(2**32)
        if images is None or number < images:
            image = make_image(path, own, shape.image_pixels)
        else:
            image = folder / "images" / f"{name}-{number % images}.jpg"
        questions.append(Question(image=image.name, question=question, answer=answer))
    text = "".join(f"{json.dumps(asdict(question))}\n" for question in questions)
    (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


def write_traces(folder: Path, run: Path) -> None:
    """The rows of `folder`/questions.jsonl as the filtered dataset of a run, rationales told from answers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from distill.artifacts.manifest import Manifest, fingerprint

    rows = []
    for number, line in enumerate((folder / "questions.jsonl").read_text(encoding="utf-8").splitlines()):
        said = json.loads(line)
        rationale, _, answer = said["answer"].rpartition("\n</think>\n\n")
        rows.append(
            {
                "images": [{"bytes": (folder / "images" / said["image"]).read_bytes(), "path": said["image"]}],
                "messages": [
                    {"role": "user", "content": said["question"]},
                    {"role": "assistant", "content": said["answer"]},
                ],
                "sample_id": f"sample{number}",
                "trace_id": f"trace{number}",
                "rationale": rationale.removeprefix("<think>\n"),
                "answer": answer,
                "weight": 1.0,
            }
        )
    dataset = run / "filter" / "dataset" / "train"
    dataset.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), dataset / "part-00000.parquet")
    fields = {"filter": "by hand"}
    Manifest(stage="filter", fingerprint=fingerprint(fields), fields=fields).write(run / "filter")


def make_image(path: Path, seed: int, size: tuple[int, int]) -> Path:
    """A JPEG with the detail of a photo: soft noise on a few scales."""
    noise = np.random.default_rng(seed)
    width, height = size
    layers = [
        Image.fromarray(noise.integers(0, 256, (height // scale, width // scale, 3), dtype=np.uint8)).resize(size)
        for scale in (60, 12, 4)
    ]
    blended = Image.blend(Image.blend(layers[0], layers[1], 0.4), layers[2], 0.2)
    path.parent.mkdir(parents=True, exist_ok=True)
    blended.save(path, quality=90)
    return path


def sentence(chance: random.Random) -> str:
    """Eight to fourteen words with some rules to learn: a colour is followed by a thing, a place by a count."""
    thing = chance.randrange(len(NAMES))
    # What comes last follows from what comes first, so that the loss has somewhere to go.
    start = f"the {chance.choice(COLOURS)} {NAMES[thing]} at the {chance.choice(PLACES)} has {thing} of them"
    return f"{start} and {chance.choice(COLOURS)} ones" if chance.random() < 0.5 else start


def _text(chance: random.Random, words: int) -> str:
    """Sentences up to so many words."""
    found: list[str] = []
    while len(found) < words:
        found.extend(f"{sentence(chance)}.".split())
    return " ".join(found[:words])


def _short_vqa(chance: random.Random, rows: int) -> Iterator[tuple[str, str]]:
    """Questions of four to ten words; 70 % answered by one to three words, 20 % by a sentence, 10 % after a
    rationale of 40 to 160 words.

    The first two are what VQA v1 reports of its questions and answers (Antol et al. 2015, section 4.1; 89 % of the
    answers are one word); the rest is what a mixture for instruction adds, as in FineVision or LLaVA's.
    """
    for number in range(rows):
        place = number % 10
        question = f"what {_text(chance, chance.randint(3, 9))}?"
        if place < 7:
            words = chance.choices((1, 2, 3), (0.89, 0.07, 0.04))[0]
            yield question, _text(chance, words + 2).partition(" ")[2]
        elif place < 9:
            yield question, _text(chance, chance.randint(8, 24))
        else:
            rationale = _text(chance, round(40 * 4 ** chance.random()))
            yield question, f"<think>\n{rationale}\n</think>\n\n{chance.choice(COLOURS)}"


def _captions(chance: random.Random, rows: int) -> Iterator[tuple[str, str]]:
    """One request, captions of 54 to 66 words."""
    for _ in range(rows):
        yield "describe the picture.", _text(chance, chance.randint(54, 66))


def _rationales(chance: random.Random, rows: int) -> Iterator[tuple[str, str]]:
    """A question and a rationale of 200 to 600 words before the answer, as in the stage that learns to reason."""
    for _ in range(rows):
        rationale = _text(chance, chance.randint(200, 600))
        yield f"what {_text(chance, 8)}?", f"<think>\n{rationale}\n</think>\n\n{chance.choice(COLOURS)}"


_MADE: dict[str, Callable[[random.Random, int], Iterator[tuple[str, str]]]] = {
    "short-vqa": _short_vqa,
    "captions": _captions,
    "rationales": _rationales,
}
KINDS = tuple(_MADE)
