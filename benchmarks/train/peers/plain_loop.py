"""What the first steps must lose: the same student and rows in a loop of torch, without any trainer.

A batch is padded on the right; the loss is the mean over the batch's labels; AdamW, a constant learning rate,
gradients scaled down to norm 1; everything below `visual` is frozen.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peer_world
import torch
from PIL import Image

UNLABELLED = -100


def losses(student: Path, folder: Path, batch: int, steps: int, rate: float, *, newline: bool) -> list[float]:
    """The loss of each step. Labels are the reply and its end token; `newline`: the line feed after it, too."""
    from transformers import AutoModelForImageTextToText

    from student.models.processors import load_processor

    processor = load_processor(str(student))
    model = AutoModelForImageTextToText.from_pretrained(student, dtype=torch.float32)
    model.train()
    model.model.visual.requires_grad_(False)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=0.0)
    found = []
    for inputs in _batches(processor, folder, batch, steps, newline=newline):
        loss = model(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def _batches(processor: Any, folder: Path, batch: int, steps: int, *, newline: bool) -> Iterator[dict[str, Any]]:
    processor.tokenizer.padding_side = "right"
    rows = peer_world.read_rows(folder)
    for first in range(0, batch * steps, batch):
        chosen = rows[first : first + batch]
        images = [[Image.open(folder / "images" / row["image"]).convert("RGB")] for row in chosen]
        prompts = [processor.apply_chat_template([_asked(row)], add_generation_prompt=True) for row in chosen]
        texts = [f"{prompt}{row['answer']}<|im_end|>\n" for prompt, row in zip(prompts, chosen, strict=True)]
        inputs = dict(processor(text=texts, images=images, padding=True, return_tensors="pt"))
        asked = dict(processor(text=prompts, images=images, padding=True, return_tensors="pt"))
        labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, UNLABELLED)
        for row, prompt in enumerate(asked["attention_mask"].sum(1).tolist()):
            if not torch.equal(inputs["input_ids"][row, :prompt], asked["input_ids"][row, :prompt]):
                raise SystemExit("the prompt of a row has other tokens than the row begins with")
            labels[row, :prompt] = UNLABELLED
            if not newline:
                labels[row, inputs["attention_mask"][row].sum() - 1] = UNLABELLED
        yield {**inputs, "labels": labels}


def _asked(row: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": row["question"]}]}
