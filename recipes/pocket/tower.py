"""The student's vision tower: SigLIP-shaped, so that vLLM serves it, taught by EfficientNet-Lite2 and by drawings.

    python tower.py [steps]      # writes tower/

Its lessons are dense. For each of 8 x 8 cells of a picture it learns the characters that stand there, the kind of the
thing that covers it, and the ImageNet features that EfficientNet-Lite2 has of that thing. The heads are thrown away.
Only pictures and tables of the train split are seen.
"""

import json
import math
import sys
import time
from pathlib import Path

import drawing
import numpy as np
import torch
import world
from drawing import SIZE, Drawing, font
from lite import FEATURES, Lite
from PIL import Image
from setup import HERE, STAMPS
from sources import KINDS, Thing, others
from torch.nn.functional import cosine_similarity, cross_entropy
from transformers import SiglipImageProcessorPil, SiglipVisionConfig, SiglipVisionModel

PATCH = 16
CELLS = 8
"""Cells along a side; a cell becomes an image token of the student."""
SLOTS = 6
"""Characters told apart within a cell, by where their middle lies."""
CHARACTERS = " 0123456789.:,%ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-'()"
TOWER = {"hidden_size": 192, "intermediate_size": 576, "num_hidden_layers": 6, "num_attention_heads": 4}
STEPS = 3000
BATCH = 64


class Naming(torch.nn.Module):
    """A tower with the heads that it learns with."""

    def __init__(self) -> None:
        super().__init__()
        config = SiglipVisionConfig(**TOWER, image_size=SIZE, patch_size=PATCH, vision_use_head=False)
        self.tower = SiglipVisionModel(config)
        width = 4 * TOWER["hidden_size"]
        self.characters = torch.nn.Linear(width, SLOTS * len(CHARACTERS))
        self.kinds = torch.nn.Linear(width, len(KINDS) + 1)
        self.features = torch.nn.Linear(width, FEATURES)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Pixels (n, 3, 256, 256) in [-1, 1] to logits of characters (n, 64, 6, c), of kinds, and features."""
        patches = self.tower(pixel_values=images).last_hidden_state
        grid = patches.view(len(patches), CELLS, 2, CELLS, 2, -1).transpose(2, 3)
        cells = grid.reshape(len(patches), CELLS**2, -1)
        characters = self.characters(cells).view(*cells.shape[:2], SLOTS, len(CHARACTERS))
        return characters, self.kinds(cells), self.features(cells)


def written(drawn: Drawing) -> np.ndarray:
    """Index of the character in each slot of each cell, (64, 6); 0 where there is none."""
    slots = np.zeros((CELLS, CELLS * SLOTS), dtype=np.int64)
    for text, left, middle, size in drawn.words:
        line = min(CELLS - 1, int(middle * CELLS / SIZE))
        for index, character in enumerate(text):
            before, after = (font(size).getlength(text[: index + more]) for more in (0, 1))
            slot = int((left + (before + after) / 2) * CELLS * SLOTS / SIZE)
            if 0 <= slot < CELLS * SLOTS and character in CHARACTERS:
                slots[line, slot] = CHARACTERS.index(character)
    return slots.reshape(CELLS**2, SLOTS)


def covered(drawn: Drawing) -> np.ndarray:
    """Which box covers the middle of each cell, (64,); -1 where none does."""
    cells = np.full((CELLS, CELLS), -1)
    middles = (np.arange(CELLS) + 0.5) * SIZE / CELLS
    for index, (_, (left, top, right, bottom)) in enumerate(drawn.boxes):
        inside = np.ix_((middles >= top) & (middles < bottom), (middles >= left) & (middles < right))
        cells[inside] = index
    return cells.reshape(-1)


class Lessons:
    """Freshly drawn pictures with their labels."""

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

    def batch(self) -> tuple[torch.Tensor, ...]:
        """Images, characters, kinds and features."""
        chosen = [self._lesson() for _ in range(BATCH)]
        images, characters, kinds, features = (np.stack(part) for part in zip(*chosen, strict=True))
        noise = self.rng.normal(0, 6, (BATCH, 1, 1, 3)) + self.rng.normal(0, 4, (*images.shape[:3], 1))
        pixels = torch.from_numpy(np.clip(images + noise, 0, 255)).permute(0, 3, 1, 2).float().div_(127.5).sub_(1.0)
        return pixels, torch.from_numpy(characters), torch.from_numpy(kinds), torch.from_numpy(features)

    def _lesson(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        draw = self.rng.random()
        if draw < 0.2:  # things of any kind, and of none
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
        for line in range(int(self.rng.integers(3, 8))):
            left = float(self.rng.integers(4, 60))
            while left < SIZE - 40:
                digits = self.rng.random() < 0.5
                text = "".join(self.rng.choice(letters[:12] if digits else letters, size=self.rng.integers(1, 9)))
                size = int(self.rng.integers(13, 17))
                drawing.write(drawn, text, left, 20 + 33 * line + int(self.rng.integers(-5, 6)), size, (30, 30, 30))
                left += font(size).getlength(text) + float(self.rng.integers(12, 60))
        return drawn


def _on_white(cut: Image.Image) -> Image.Image:
    ground = Image.new("RGB", cut.size, (255, 255, 255))
    ground.paste(cut, (0, 0), cut)
    return ground


def _kind(thing: Thing, names: list[str]) -> int:
    return names.index(thing.kind) + 1 if thing.kind else -100  # cross_entropy passes over -100


def loss_of(naming: Naming, batch: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, dict[str, float]]:
    """The sum of the three losses, and shares named rightly."""
    pixels, characters, kinds, features = batch
    with torch.autocast("cpu", torch.bfloat16):
        read, seen, felt = naming(pixels)
    read, seen = read.float(), seen.float()
    something = characters > 0
    weight = torch.where(something, 1.0, 0.1)
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
    lessons, naming, started = Lessons(seed), Naming(), time.process_time()
    optimizer = torch.optim.AdamW(naming.parameters(), weight_decay=0.05, betas=(0.9, 0.98))
    for step in range(steps):
        rate = 1e-3 * min((step + 1) / 100, 0.02 + 0.49 * (1 + math.cos(math.pi * step / steps)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss, shares = loss_of(naming, lessons.batch())
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
