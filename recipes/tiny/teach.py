"""The teachers of the tiny world: each learns rationales of its domains, then is written in vLLM's form.

A plain training loop on freshly drawn pictures: teachers exist before the toolkit's own trainer has traces.
"""

from pathlib import Path

import numpy as np
import torch
import world
from pretrain import DEVICE, IGNORE, PATCH, corpus, learning_rate, padded, pixels, update, worked
from questions import ask, caption, perceive, rationale
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, ProcessorMixin, Qwen2ForCausalLM

from student.export.convert import save, to_vllm_native
from student.models.siq_vl import build

TEACHERS = {
    "structured": ("scenes",),
    "analyst": ("charts",),
    "reader": ("digits",),
    "generalist": world.DOMAINS,
}
"""Name to the domains that it is taught."""
PIXEL_SHUFFLE = 2
MAX_NEW_TOKENS = 128
Row = tuple[np.ndarray | None, list[int], list[int]]  # image (96, 96, 3) uint8, prompt ids, answer ids


def prompt_ids(processor: ProcessorMixin, question: str) -> list[int]:
    """A question about one image through the chat template, the image expanded to its tokens."""
    blank = np.zeros((world.SIZE, world.SIZE, 3), dtype=np.uint8)
    content = [{"type": "image"}, {"type": "text", "text": question}]
    text = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    return processor(text=[text], images=[[blank]])["input_ids"][0]


def answer_ids(processor: ProcessorMixin, text: str) -> list[int]:
    return processor.tokenizer(f"{text}<|im_end|>")["input_ids"]


class Lessons:
    """Endless fresh batches about pictures of some domains; `shares` are those of worked questions and captions, the
    rest are one-step questions. A batch is text alone, without pictures, with the chance `text`."""

    def __init__(
        self,
        processor: ProcessorMixin,
        domains: tuple[str, ...],
        seed: int,
        shares: tuple[float, float],
        text: float = 0.0,
    ) -> None:
        self.processor = processor
        self.domains = domains
        self.rng = np.random.default_rng(seed)
        self.bounds = np.cumsum(shares)
        self.text = text
        self.corpus = corpus(self.rng)
        self.prompts: dict[str, list[int]] = {}

    def batch(self, size: int) -> list[Row]:
        if self.rng.random() < self.text:
            given_and_learned = [next(self.corpus) for _ in range(size // 2)]  # texts are long
            tokens = self.processor.tokenizer
            return [
                (None, tokens(given)["input_ids"], answer_ids(self.processor, learned))
                for given, learned in given_and_learned
            ]
        return [self.row() for _ in range(size)]

    def row(self) -> Row:
        image = world.imagine(str(self.rng.choice(self.domains)), self.rng)
        kind = int(np.searchsorted(self.bounds, self.rng.random(), side="right"))
        if kind == 0:
            question = ask(image, self.rng)
            text, answer = question.text, worked(rationale(image, question, self.rng), question.answer)
        elif kind == 1:
            text, answer = "Describe the image.", caption(image)
        else:
            text, answer = perceive(image, self.rng)
        if text not in self.prompts:
            self.prompts[text] = prompt_ids(self.processor, text)
        return np.asarray(world.paint(image, self.rng)), self.prompts[text], answer_ids(self.processor, answer)


def embed(model: PreTrainedModel, images: list[np.ndarray], ids: torch.Tensor) -> torch.Tensor:
    """Token embeddings with the images' tokens in place; the tower runs without a graph."""
    words = model.model.text_model.embed_tokens(ids)
    if not images:
        return words
    with torch.no_grad():
        seen = model.model.vision_model(
            pixel_values=pixels(np.stack(images)),
            patch_attention_mask=torch.ones(len(images), *[world.SIZE // PATCH] * 2, dtype=torch.bool, device=DEVICE),
        ).last_hidden_state
    tokens = model.model.connector(seen)
    return words.masked_scatter((ids == model.config.image_token_id).unsqueeze(-1), tokens.flatten(0, 1))


def fit(model: PreTrainedModel, lessons: Lessons, *, steps: int, peak: float, batch_size: int) -> float:
    """Train projector and decoder, the tower frozen; returns the mean loss of the last 50 steps."""
    model.to(DEVICE).train()
    model.model.vision_model.requires_grad_(False).eval()
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], weight_decay=0.01, betas=(0.9, 0.98)
    )
    losses: list[float] = []
    for step in range(steps):
        rows = lessons.batch(batch_size)
        ids, mask, labels = padded([(prompt, answer) for _, prompt, answer in rows])
        embedded = embed(model, [image for image, _, _ in rows if image is not None], ids)
        hidden = model.model.text_model(
            inputs_embeds=embedded, attention_mask=mask, use_cache=False
        ).last_hidden_state
        answered = labels[:, 1:] != IGNORE
        loss = cross_entropy(model.lm_head(hidden[:, :-1][answered]), labels[:, 1:][answered])
        update(optimizer, loss, learning_rate(step, steps, peak))
        losses.append(float(loss.detach()))
        if step % 50 == 49:
            print(
                f"{'+'.join(lessons.domains)}: step {step + 1}/{steps}, loss {np.mean(losses[-50:]):.3f}", flush=True
            )
    return float(np.mean(losses[-50:]))


@torch.inference_mode()
def greedy(
    model: PreTrainedModel, processor: ProcessorMixin, images: list[np.ndarray], questions: list[str]
) -> list[str]:
    """The model's greedy answers, batched, through transformers' own generate."""
    texts = []
    tokenizer = processor.tokenizer
    tokenizer.padding_side = "left"
    model.to(DEVICE).eval()
    for start in range(0, len(images), 150):
        prompts = [
            processor.apply_chat_template(
                [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": question}]}],
                add_generation_prompt=True,
            )
            for question in questions[start : start + 150]
        ]
        batch = [[image] for image in images[start : start + 150]]
        inputs = processor(text=prompts, images=batch, padding=True, return_tensors="pt").to(DEVICE)
        out = model.generate(**inputs, max_new_tokens=MAX_NEW_TOKENS, do_sample=False)
        texts += tokenizer.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return texts


def ground(tower: Path, decoder: Path, *, seed: int, steps: int = 1000, batch_size: int = 64) -> dict[str, float]:
    """Let the decoder read pictures of all domains through a fresh projector, which is then thrown away.

    It learns to describe and to answer one-step questions about pictures, no rationale; text in between keeps what
    it knows of reasoning. A student's fresh projector then has to learn the embedding space of a decoder that can
    read pictures, as the align stage expects of a large one.
    """
    model, processor = build(str(tower), str(decoder), PIXEL_SHUFFLE, dtype="float32", seed=seed)
    lessons = Lessons(processor, world.DOMAINS, seed, (0.0, 0.45), text=0.4)
    loss = fit(model, lessons, steps=steps, peak=1.5e-3, batch_size=batch_size)
    language = Qwen2ForCausalLM.from_pretrained(decoder, dtype=torch.float32)
    language.model.load_state_dict(model.model.text_model.state_dict())
    language.to(torch.bfloat16).save_pretrained(decoder)
    return {"loss_on_pictures": loss}


def build_teacher(
    folder: Path, tower: Path, decoder: Path, domains: tuple[str, ...], *, seed: int, steps: int
) -> dict[str, float]:
    """Train one teacher on its domains and save it in vLLM's form, bf16."""
    model, processor = build(str(tower), str(decoder), PIXEL_SHUFFLE, dtype="float32", seed=seed)
    # First the fresh projector alone, so that its noise does not disturb the decoder; then both on rationales.
    model.model.text_model.requires_grad_(False)
    fit(model, Lessons(processor, domains, seed, (0.0, 0.5)), steps=80, peak=3e-3, batch_size=32)
    model.model.text_model.requires_grad_(True)
    lessons = Lessons(processor, domains, seed + 1, (0.85, 0.05))
    loss = fit(model, lessons, steps=steps, peak=1.5e-3, batch_size=32)
    save(to_vllm_native(model.to("cpu", torch.bfloat16)), processor, folder)
    return {"loss": loss}
