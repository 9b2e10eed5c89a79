"""The student's vision tower: SigLIP-shaped, so that vLLM serves it, taught by EfficientNet-Lite2 and by drawings.

    python tower.py [steps]      # writes tower/

Its lessons are dense. For each of 6 x 6 cells of a picture it learns the words whose middle lies there, letter by
letter, the kind of the thing that covers it, and the ImageNet features that EfficientNet-Lite2 has of that thing.
The heads are thrown away. Only pictures and tables of the train split are seen.
"""

import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import drawing
import numpy as np
import torch
import world
from drawing import CELL, INK, SIZE, TEXT, Drawing, font
from lite import FEATURES, Lite
from PIL import Image
from setup import HERE, STAMPS
from sources import KINDS, Thing, others
from torch.nn.functional import cosine_similarity, cross_entropy
from transformers import SiglipImageProcessorPil, SiglipVisionConfig, SiglipVisionModel

PATCH = CELL // 2
CELLS = SIZE // CELL
"""Cells along a side; a cell becomes an image token of the student."""
SLOTS = 10
"""The first characters of what stands in a cell."""
CHARACTERS = " 0123456789.:,%ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-'()"
TOWER = {"hidden_size": 192, "intermediate_size": 576, "num_hidden_layers": 4, "num_attention_heads": 4}
STEPS = 1500
BATCH = 32


class Naming(torch.nn.Module):
    """A tower with the heads that it learns with."""

    def __init__(self) -> None:
        super().__init__()
        config = SiglipVisionConfig(**TOWER, image_size=SIZE, patch_size=PATCH, vision_use_head=False)
        config._attn_implementation = "eager"  # its backward pass is quicker here than that of a fused kernel
        self.tower = SiglipVisionModel(config)
        width = 4 * TOWER["hidden_size"]
        self.characters = torch.nn.Linear(width, SLOTS * len(CHARACTERS))
        self.kinds = torch.nn.Linear(width, len(KINDS) + 1)
        self.features = torch.nn.Linear(width, FEATURES)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Pixels (n, 3, 240, 240) in [-1, 1] to logits of characters (n, 36, 10, c), of kinds, and features."""
        patches = self.tower(pixel_values=images).last_hidden_state
        grid = patches.view(len(patches), CELLS, 2, CELLS, 2, -1).transpose(2, 3)
        cells = grid.reshape(len(patches), CELLS**2, -1)
        characters = self.characters(cells).view(*cells.shape[:2], SLOTS, len(CHARACTERS))
        return characters, self.kinds(cells), self.features(cells)


def written(drawn: Drawing) -> np.ndarray:
    """Indices of the first characters of the words whose middle lies in each cell, (36, 10); 0 for none."""
    texts = [""] * CELLS**2
    for text, left, middle, size in drawn.words:
        start = 0
        for word in text.split():
            start = text.index(word, start)
            centre = left + font(size).getlength(text[:start]) + font(size).getlength(word) / 2
            cell = min(CELLS - 1, int(middle / CELL)) * CELLS + min(CELLS - 1, max(0, int(centre / CELL)))
            texts[cell] = f"{texts[cell]} {word}".strip()
            start += len(word)
    cells = np.zeros((CELLS**2, SLOTS), dtype=np.int64)
    for cell, text in enumerate(texts):
        known = [CHARACTERS.index(character) for character in text[:SLOTS] if character in CHARACTERS]
        cells[cell, : len(known)] = known
    return cells


def covered(drawn: Drawing) -> np.ndarray:
    """Which box covers the middle of each cell, (36,); -1 where none does."""
    cells = np.full((CELLS, CELLS), -1)
    middles = (np.arange(CELLS) + 0.5) * SIZE / CELLS
    for index, (_, (left, top, right, bottom)) in enumerate(drawn.boxes):
        inside = np.ix_((middles >= top) & (middles < bottom), (middles >= left) & (middles < right))
        cells[inside] = index
    return cells.reshape(-1)


class Lessons(torch.utils.data.IterableDataset[tuple[np.ndarray, ...]]):
    """Freshly drawn pictures with their labels, without end."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.world = world.load("train")
        self.unnamed = [thing for thing in others(HERE / "packages" / STAMPS.name) if thing.split == "train"]
        known = [thing for found in self.world.things.values() for thing in found]
        self.things = [*known, *self.unnamed]
        cuts = [drawing.cut_out(thing) for thing in self.things]
        features = Lite().features([_on_white(cut) for cut in cuts])
        self.mean = features.mean(0)
        self.feature = {thing: feature - self.mean for thing, feature in zip(self.things, features, strict=True)}
        labels = [label for table in self.world.series for one in table for label, _ in one.rows]
        self.words = [word for text in (*labels, *(thing.name for thing in known)) for word in text.split()]

    def __iter__(self) -> Iterator[tuple[np.ndarray, ...]]:
        while True:
            yield self._lesson()

    def _lesson(self) -> tuple[np.ndarray, ...]:
        """Image, characters, kinds and features."""
        draw = self.rng.random()
        if draw < 0.15:  # things of any kind, and of none
            chosen = [
                self.things[index] for index in self.rng.integers(len(self.things), size=self.rng.integers(1, 8))
            ]
            drawn, _ = drawing.draw_things(chosen, self.rng)
        elif draw < 0.4:  # any words anywhere
            drawn = self._words()
        else:
            drawn = self.world.scene(world.DOMAINS[int(self.rng.integers(3))], self.rng).drawn
        cells = covered(drawn)
        names = list(KINDS)
        kinds = np.array([0 if cell < 0 else _kind(drawn.boxes[cell][0], names) for cell in cells])
        none = np.zeros(FEATURES, dtype=np.float32)
        features = np.stack([none if cell < 0 else self.feature[drawn.boxes[cell][0]] for cell in cells])
        return np.asarray(drawn.image), written(drawn), kinds, features.astype(np.float16)

    def _words(self) -> Drawing:
        drawn = drawing.ground(self.rng)
        letters = list(CHARACTERS[1:])
        for line in range(CELLS):
            left = float(self.rng.integers(4, 60))
            while left < SIZE - 44:
                if self.rng.random() < 0.5:
                    text = "".join(self.rng.choice(letters[:12], size=self.rng.integers(1, 5)))
                elif self.rng.random() < 0.4:
                    text = "".join(self.rng.choice(letters, size=self.rng.integers(1, 9)))
                else:
                    text = str(self.rng.choice(self.words))
                    text = text if self.rng.random() < 0.5 else text.capitalize()
                middle = CELL * (line + 0.5) + float(self.rng.integers(-12, 13) if self.rng.random() < 0.4 else 0)
                size = int(self.rng.choice([13, 18])) if line == 0 else TEXT
                drawing.write(drawn, text, left, middle, size, INK)
                left += font(size).getlength(text) + float(self.rng.integers(12, 60))
        return drawn


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


def _kind(thing: Thing, names: list[str]) -> int:
    return names.index(thing.kind) + 1 if thing.kind else -100  # cross_entropy passes over -100


def loss_of(naming: Naming, batch: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, dict[str, float]]:
    """The sum of the three losses, and shares named rightly."""
    images, characters, kinds, features = batch
    with torch.autocast("cpu", torch.bfloat16):
        read, seen, felt = naming(pixels_of(images))
    read, seen = read.float(), seen.float()
    something = characters > 0
    ends = torch.nn.functional.pad(something, (1, 0), value=True)[..., :-1] & ~something
    weight = torch.where(something, 1.0, torch.where(ends, 0.2, 0.02))
    letters = cross_entropy(read.flatten(0, 2), characters.flatten(), reduction="none")
    reading = (letters * weight.flatten()).sum() / weight.sum()
    naming_loss = cross_entropy(seen.flatten(0, 1), kinds.flatten())
    there = features.abs().sum(-1) > 0
    likeness = cosine_similarity(felt.float()[there], features.float()[there], dim=-1).mean()
    known = kinds > 0
    shares = {
        "characters": float((read.argmax(-1) == characters)[something].float().mean()),
        "kinds": float((seen.argmax(-1) == kinds)[known].float().mean()),
        "likeness": float(likeness.detach()),
    }
    return reading + naming_loss + (1 - likeness), shares


def train(steps: int, folder: Path, seed: int = 0) -> None:
    torch.manual_seed(seed)
    lessons = iter(torch.utils.data.DataLoader(Lessons(seed), BATCH, num_workers=1, prefetch_factor=4))
    naming, started = Naming(), time.process_time()
    optimizer = torch.optim.AdamW(naming.parameters(), weight_decay=0.05, betas=(0.9, 0.98))
    for step in range(steps):
        rate = 1.5e-3 * min((step + 1) / 100, 0.02 + 0.49 * (1 + math.cos(math.pi * step / steps)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss, shares = loss_of(naming, next(lessons))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(naming.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 19:
            line = {"step": step + 1, "loss": round(float(loss.detach()), 4), **shares}
            print(json.dumps({**line, "cpu_seconds": round(time.process_time() - started)}), flush=True)
        if step % 100 == 99 or step == steps - 1:
            save(naming, folder)
    (folder / "finished").write_text(f"{steps} steps\n", encoding="utf-8")


def save(naming: Naming, folder: Path) -> None:
    naming.tower.save_pretrained(folder)
    SiglipImageProcessorPil(size={"height": SIZE, "width": SIZE}).save_pretrained(folder)


if __name__ == "__main__":
    train(int(sys.argv[1]) if len(sys.argv) > 1 else STEPS, HERE / "tower")
