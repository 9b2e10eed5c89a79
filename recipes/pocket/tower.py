"""The student's vision tower and projector, SigLIP-shaped, from dense lessons in front of the language model.

    python tower.py              # writes base/, the untrained student; prints what it reads in held-out pictures

For every cell of a freshly drawn picture, tower and projector learn the *token* of the language model that stands
there, as its input embedding: a line of text gives its name's tokens from the left and its digits at the right, a
thing the word of its kind. So the language model gets pictures in words that it knows. The tower also learns the
ImageNet features that EfficientNet-Lite2 has of a thing; that head is thrown away. Only pictures of the train split
are seen; names of charts are practised as words, with random numbers, those of held-out tables too.
"""

import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import drawing
import numpy as np
import torch
import world
from drawing import CELL, SIZE, Drawing
from lite import Lite
from PIL import Image
from setup import HERE, STAMPS
from sources import KINDS, others
from torch.nn.functional import cosine_similarity, cross_entropy, normalize
from transformers import AutoTokenizer, SiglipImageProcessorPil, SiglipVisionConfig, SiglipVisionModel

CELLS = SIZE // CELL
"""Cells along a side; a cell is a patch of the tower and an image token of the student."""
DIGITS = 2
"""Cells at the right of a line for the digits of its number."""
BLANK = " "
"""What the language model gets for a cell with nothing to say."""
TOWER = {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4, "num_attention_heads": 4}
FEATURES = 64
STEPS = 1000
BATCH = 32


class Naming(torch.nn.Module):
    """A tower with its projector, and the head that learns features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        config = SiglipVisionConfig(**TOWER, image_size=SIZE, patch_size=CELL, vision_use_head=False)
        config._attn_implementation = "eager"  # its backward pass is quicker here than that of a fused kernel
        self.tower = SiglipVisionModel(config)
        self.projector = torch.nn.Linear(TOWER["hidden_size"], width, bias=False)
        self.features = torch.nn.Linear(TOWER["hidden_size"], FEATURES)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Pixels (n, 3, 240, 240) in [-1, 1] to image tokens (n, 36, width) and features (n, 36, 64)."""
        patches = self.tower(pixel_values=images).last_hidden_state
        return self.projector(patches), self.features(patches)


@dataclass(frozen=True, kw_only=True)
class Words:
    """The tokens that cells may show: ids of the language model, blank first, and their input embeddings."""

    tokenizer: Any
    ids: list[int]
    embeddings: torch.Tensor

    def lesson(self, drawn: Drawing, places: list[int]) -> np.ndarray:
        """Index of the token of each cell, (36,)."""
        cells = np.zeros((CELLS, CELLS), dtype=np.int64)
        lines: dict[int, list[str]] = {}
        for text, _, middle, _ in drawn.words[1:]:
            lines.setdefault(int(middle / CELL), []).append(text)
        for row, (name, value) in lines.items():
            tokens = [self.ids.index(one) for one in _tokens(self.tokenizer, name)][: CELLS - DIGITS]
            digits = [self.ids.index(one) for one in self.tokenizer.encode(value)][-DIGITS:]
            cells[row, : len(tokens)] = tokens
            cells[row, -len(digits) :] = digits
        for (thing, _), place in zip(drawn.boxes, places, strict=True):
            row, column = divmod(place, drawing.GRID)
            kind = self.ids.index(_tokens(self.tokenizer, thing.kind)[0]) if thing.kind else -100
            cells[2 * row, 2 * column] = kind  # cross_entropy passes over -100
        return cells.reshape(-1)


def load_words(language: Path, names: list[str]) -> Words:
    from transformers import AutoModelForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(language)
    known = {one for name in (*names, *KINDS) for one in _tokens(tokenizer, name)}
    digits = {one for digit in "0123456789" for one in tokenizer.encode(digit)}
    ids = [*tokenizer.encode(BLANK), *sorted(known | digits)]
    embeddings = AutoModelForCausalLM.from_pretrained(language).get_input_embeddings().weight.detach()
    return Words(tokenizer=tokenizer, ids=ids, embeddings=embeddings[ids].float())


def _tokens(tokenizer: Any, name: str) -> list[int]:
    return list(tokenizer.encode(f" {name}"))


def names_of(split: str) -> list[str]:
    """What stands at the left of lines: labels of charts, goods, and what notices tell."""
    labels = {label for table in world.load(split).series for one in table for label, _ in one.rows}
    return [*sorted(labels), *world.GOODS, *world.NOTICES]


class Lessons(torch.utils.data.IterableDataset[tuple[np.ndarray, ...]]):
    """Freshly drawn pictures with their labels, without end."""

    def __init__(self, words: Words, names: list[str], seed: int) -> None:
        self.rng, self.words, self.names = np.random.default_rng(seed), words, names
        here = world.load("train")
        self.titles = [one.title for table in here.series for one in table] + [*world.SHOPS, *world.PLACES]
        unnamed = [thing for thing in others(HERE / "packages" / STAMPS.name) if thing.split == "train"]
        self.kinds = here.things
        self.things = [*(thing for found in here.things.values() for thing in found), *unnamed]
        features = Lite().features([_on_white(drawing.cut_out(thing)) for thing in self.things])
        features -= features.mean(0)
        features = features @ np.linalg.svd(features, full_matrices=False)[2][:FEATURES].T
        self.feature = dict(zip(self.things, features.astype(np.float32), strict=True))

    def __iter__(self) -> Iterator[tuple[np.ndarray, ...]]:
        while True:
            drawn, places = self._things() if self.rng.random() < 0.4 else (self._text(), [])
            features = np.zeros((CELLS, CELLS, FEATURES), dtype=np.float32)
            for (thing, _), place in zip(drawn.boxes, places, strict=True):
                row, column = (2 * index for index in divmod(place, drawing.GRID))
                features[row : row + 2, column : column + 2] = self.feature[thing]
            yield np.asarray(drawn.image), self.words.lesson(drawn, places), features.reshape(-1, FEATURES)

    def _things(self) -> tuple[Drawing, list[int]]:
        """Mostly of a kind, each kind as often, so that there are more lessons about the rare ones."""
        chosen = []
        for _ in range(1 if self.rng.random() < 0.25 else int(self.rng.integers(3, 10))):
            kind = list(self.kinds)[self.rng.integers(len(self.kinds))]
            among = self.kinds[kind] if self.rng.random() < 0.75 else self.things
            chosen.append(among[self.rng.integers(len(among))])
        return drawing.draw_things(chosen, self.rng)

    def _text(self) -> Drawing:
        title = self.titles[self.rng.integers(len(self.titles))]
        names = self.rng.choice(self.names, size=int(self.rng.integers(3, 6)), replace=False)
        rows = [(str(name), int(self.rng.integers(1, 100))) for name in names]
        if self.rng.random() < 0.5:
            return drawing.draw_chart(title, rows, self.rng)
        return drawing.draw_page(title, [(name, str(value)) for name, value in rows], self.rng)


def pixels_of(images: torch.Tensor, noisy: bool = True) -> torch.Tensor:
    """uint8 (n, 240, 240, 3) to (n, 3, 240, 240) in [-1, 1]; with a tint and grain where `noisy`."""
    pixels = images.permute(0, 3, 1, 2).float()
    if noisy:
        pixels = pixels + 6 * torch.randn(len(pixels), 3, 1, 1) + 4 * torch.randn(len(pixels), 1, SIZE, SIZE)
    return pixels.clamp_(0, 255).div_(127.5).sub_(1.0)


def _on_white(cut: Image.Image) -> Image.Image:
    ground = Image.new("RGB", cut.size, (255, 255, 255))
    ground.paste(cut, (0, 0), cut)
    return ground


def likeness(tokens: torch.Tensor, words: Words) -> torch.Tensor:
    """How like each word's embedding an image token is, from -1 to 1: (n, 36, words)."""
    return normalize(tokens, dim=-1) @ normalize(words.embeddings, dim=-1).T


def loss_of(naming: Naming, words: Words, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """To be most like the right word; to lie where its embedding lies; and what ImageNet has taught."""
    images, labels, features = batch
    tokens, felt = naming(pixels_of(images))
    weight = torch.where(labels > 0, 1.0, 0.1) * (labels >= 0)
    named = cross_entropy(20 * likeness(tokens, words).flatten(0, 1), labels.flatten(), reduction="none")
    targets = words.embeddings[labels.clamp_min(0)]
    apart = (tokens - targets).square().sum(-1) / words.embeddings.square().sum(-1).mean()
    there = features.abs().sum(-1) > 0
    unlike = 1 - cosine_similarity(felt[there], features[there], dim=-1).mean() if there.any() else 0.0
    return ((named + apart.flatten()) * weight.flatten()).sum() / weight.sum() + unlike


@torch.inference_mode()
def check(naming: Naming, words: Words, split: str, scenes: int = 240) -> dict[str, float]:
    """Shares of names, digits and kinds that the tower has right in pictures and tables of a split."""
    here, rng, found = world.load(split), np.random.default_rng(7), {"names": [], "digits": [], "kinds": []}
    digits = {words.ids.index(one) for digit in "0123456789" for one in words.tokenizer.encode(digit)}
    for number in range(scenes):
        scene = here.scene(world.DOMAINS[number % 3], rng)
        labels = torch.from_numpy(words.lesson(scene.drawn, scene.content.get("places", [])))
        tokens, _ = naming(pixels_of(torch.from_numpy(np.array(scene.drawn.image))[None], noisy=False))
        seen = likeness(tokens, words)[0].argmax(-1)
        for label, one in zip(labels.tolist(), seen.tolist(), strict=True):
            if label:
                what = "kinds" if scene.domain == "things" else "digits" if label in digits else "names"
                found[what].append(label == one)
    return {what: round(float(np.mean(right)), 3) for what, right in found.items()}


def train(steps: int, seed: int = 0) -> None:
    torch.manual_seed(seed)
    names = sorted({*names_of("train"), *names_of("test")})
    words = load_words(HERE / "language", names)
    lessons = iter(torch.utils.data.DataLoader(Lessons(words, names, seed), BATCH, num_workers=1, prefetch_factor=4))
    naming, started = Naming(words.embeddings.shape[1]), time.process_time()
    optimizer = torch.optim.AdamW(naming.parameters(), weight_decay=0.05, betas=(0.9, 0.98))
    for step in range(steps):
        rate = 1e-3 * min((step + 1) / 100, 0.02 + 0.49 * (1 + math.cos(math.pi * step / steps)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = loss_of(naming, words, next(lessons))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(naming.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 49:
            line = {"step": step + 1, "loss": round(float(loss.detach()), 4)}
            print(json.dumps({**line, "cpu_seconds": round(time.process_time() - started)}), flush=True)
        if step % 200 == 199 or step == steps - 1:
            print(json.dumps({split: check(naming, words, split) for split in ("train", "test")}), flush=True)
    save(naming)
    (HERE / "base" / "finished").write_text(f"{steps} steps\n", encoding="utf-8")


def save(naming: Naming) -> None:
    """The tower, and the student of tower, projector and language model."""
    from student.models import siq_vl
    from student.models.parts import find_parts

    naming.tower.save_pretrained(HERE / "tower")
    SiglipImageProcessorPil(size={"height": SIZE, "width": SIZE}).save_pretrained(HERE / "tower")
    model, processor = siq_vl.build(str(HERE / "tower"), str(HERE / "language"), 1)
    model.get_submodule(find_parts(model).projector).modality_projection.proj.load_state_dict(
        naming.projector.state_dict()
    )
    model.save_pretrained(HERE / "base")
    processor.save_pretrained(HERE / "base")


if __name__ == "__main__":
    train(int(sys.argv[1]) if len(sys.argv) > 1 else STEPS)
