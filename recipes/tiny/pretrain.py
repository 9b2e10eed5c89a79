"""The base checkpoints of the tiny world: a tower that has seen pictures, a decoder that has read text.

Stand-ins for SigLIP and Qwen2.5, as small as the world they live in. The tower learns to name each cell of a
picture with one word, its sketch; the head it learns with is thrown away. The decoder reads captions, arithmetic
and worked solutions as text and never sees a picture.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import world
from questions import SKETCH_WORDS, ask, caption, facts, perceive, rationale, sketch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn.functional import cross_entropy
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    SiglipImageProcessorPil,
    SiglipVisionConfig,
    SiglipVisionModel,
)

PATCH = world.CELL // 2
TOWER = {"hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4}
DECODER = {
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
IGNORE = -100
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def learning_rate(step: int, steps: int, peak: float, warmup_share: float = 0.05) -> float:
    """Linear warm-up, then cosine decay to 2 % of the peak."""
    warmup = max(1, int(steps * warmup_share))
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * (0.02 + 0.49 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup))))


def update(optimizer: torch.optim.Optimizer, loss: torch.Tensor, rate: float) -> None:
    """One optimisation step at a learning rate, gradients clipped to norm 1."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad()
    loss.backward()
    for group in optimizer.param_groups:
        torch.nn.utils.clip_grad_norm_(group["params"], 1.0)
    optimizer.step()


# --- tower ----------------------------------------------------------------------------------------------------


class Naming(torch.nn.Module):
    """A tower with the head it learns with, which names the word of every cell."""

    def __init__(self) -> None:
        super().__init__()
        config = SiglipVisionConfig(**TOWER, image_size=world.SIZE, patch_size=PATCH, vision_use_head=False)
        self.tower = SiglipVisionModel(config)
        self.head = torch.nn.Linear(4 * TOWER["hidden_size"], len(SKETCH_WORDS))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Pixels (n, 3, 96, 96) in [-1, 1] to logits (n, 16, words); a cell is 2 x 2 patches, read together."""
        patches = self.tower(pixel_values=images).last_hidden_state
        grid = patches.view(len(patches), world.GRID, 2, world.GRID, 2, -1).transpose(2, 3)
        return self.head(grid.reshape(len(patches), world.GRID**2, -1))


def named(images: list[world.Picture]) -> torch.Tensor:
    """Index of the word of every cell, (n, 16)."""
    return torch.tensor([[SKETCH_WORDS.index(word) for word in sketch(image)] for image in images], device=DEVICE)


def pixels(images: np.ndarray) -> torch.Tensor:
    """uint8 (n, 96, 96, 3) to float (n, 3, 96, 96) in [-1, 1]."""
    return torch.from_numpy(images).to(DEVICE).permute(0, 3, 1, 2).float().div_(127.5).sub_(1.0)


def build_tower(folder: Path, *, seed: int, steps: int = 1200, batch_size: int = 64) -> dict[str, float]:
    """Pre-train the tower on train pictures, save it in bf16; returns shares named rightly on test pictures."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    naming = Naming().to(DEVICE)
    optimizer = torch.optim.AdamW(naming.parameters(), weight_decay=0.05)
    for step in range(steps):
        domains = rng.choice(world.DOMAINS, size=batch_size, p=(0.2, 0.4, 0.4))
        pictures = [world.imagine(str(domain), rng) for domain in domains]
        images = np.stack([np.asarray(world.paint(image, rng)) for image in pictures])
        # Noise and a tint a picture: 1,250 digit originals are few, and a tower should not learn exact pixel values.
        noisy = images + rng.normal(0, 8, images.shape) + rng.normal(0, 6, (batch_size, 1, 1, 3))
        logits = naming(pixels(np.clip(noisy, 0, 255).astype(np.uint8)))
        loss = cross_entropy(logits.flatten(0, 1), named(pictures).flatten())
        update(optimizer, loss, learning_rate(step, steps, 1.5e-3))
        if step % 100 == 99:
            print(f"tower: step {step + 1}/{steps}, loss {float(loss.detach()):.4f}", flush=True)
    naming.eval()
    naming.tower.to(torch.bfloat16).save_pretrained(folder)
    SiglipImageProcessorPil(size={"height": world.SIZE, "width": world.SIZE}).save_pretrained(folder)
    naming.tower.float()
    return _named_rightly(naming, np.random.default_rng(seed + 1))


@torch.no_grad()
def _named_rightly(naming: Naming, rng: np.random.Generator) -> dict[str, float]:
    shares = {}
    for domain in world.DOMAINS:
        images = [world.imagine(domain, rng, "test") for _ in range(300)]
        logits = naming(pixels(np.stack([np.asarray(world.paint(image, rng)) for image in images])))
        truth = named(images)
        something = truth != SKETCH_WORDS.index("-")
        shares[domain] = float((logits.argmax(-1) == truth)[something].float().mean())
    return shares


# --- decoder --------------------------------------------------------------------------------------------------


Lesson = tuple[str, str]  # what is given, what is to be learned


def corpus(rng: np.random.Generator) -> Iterator[Lesson]:
    """Endless text of the world: arithmetic, captions, and chats about a picture that is given as its caption."""
    while True:
        kind = rng.random()
        if kind < 0.1:
            yield "", facts(rng)
            continue
        image = world.imagine(str(rng.choice(world.DOMAINS)), rng)
        if kind < 0.15:
            yield "", caption(image)
        elif kind < 0.4:
            question, answer = perceive(image, rng)
            yield chat(caption(image), question), answer
        else:
            asked = ask(image, rng)
            yield chat(caption(image), asked.text), worked(rationale(image, asked, rng), asked.answer)


def worked(reasoning: str, answer: str) -> str:
    """What a teacher writes."""
    return f"<think>\n{reasoning}\n</think>\n\n{answer}"


def chat(described: str, question: str) -> str:
    return f"<|im_start|>user\n{described}\n{question}<|im_end|>\n<|im_start|>assistant\n"


def build_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Byte-level BPE with ChatML's special tokens, as Qwen2 has; any text a user types can be encoded."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=576, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    markup = re.compile(r"<\|?/?\w+\|?>")
    bpe.train_from_iterator([markup.sub("", text) for text in texts], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>", extra_special_tokens=["<|im_start|>"]
    )
    # Ordinary tokens, so that they survive decoding without special tokens, as Qwen3's do.
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in ("<think>", "</think>")])
    return tokenizer


def padded(rows: list[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pairs of given and learned ids as input ids, mask and labels, each (n, longest), padded on the right."""
    longest = max(len(given) + len(learned) for given, learned in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    labels = torch.full_like(ids, IGNORE)
    for line, (given, learned) in enumerate(rows):
        end = len(given) + len(learned)
        ids[line, :end] = torch.tensor(given + learned)
        mask[line, :end] = 1
        labels[line, len(given) : end] = torch.tensor(learned)
    return ids.to(DEVICE), mask.to(DEVICE), labels.to(DEVICE)


def build_decoder(folder: Path, *, seed: int, steps: int = 2200, batch_size: int = 32) -> dict[str, float]:
    """Pre-train the decoder on text, save it with its tokenizer in bf16; returns its mean last loss."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    lessons = corpus(rng)
    tokenizer = build_tokenizer(["".join(next(lessons)) for _ in range(20_000)])
    config = Qwen2Config(
        **DECODER,
        vocab_size=len(tokenizer) + 8,  # room for the image markers a student adds
        max_position_embeddings=1024,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen2ForCausalLM(config).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.05, betas=(0.9, 0.98))
    losses: list[float] = []
    for step in range(steps):
        # A pool sorted by length makes batches of equal lengths: less padding.
        if step % 8 == 0:
            texts = [next(lessons) for _ in range(8 * batch_size)]
            pool = sorted(
                (
                    (tokenizer(given)["input_ids"], tokenizer(f"{learned}<|im_end|>")["input_ids"])
                    for given, learned in texts
                ),
                key=lambda pair: len(pair[0]) + len(pair[1]),
            )
            batches = [pool[start : start + batch_size] for start in range(0, len(pool), batch_size)]
            rng.shuffle(batches)
        ids, mask, labels = padded(batches[step % 8])
        hidden = model.model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        learned = labels[:, 1:] != IGNORE
        loss = cross_entropy(model.lm_head(hidden[:, :-1][learned]), labels[:, 1:][learned])
        update(optimizer, loss, learning_rate(step, steps, 2e-3))
        losses.append(float(loss.detach()))
        if step % 100 == 99:
            print(f"decoder: step {step + 1}/{steps}, loss {np.mean(losses[-50:]):.3f}", flush=True)
    model.eval().to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return {"loss": float(np.mean(losses[-50:]))}
