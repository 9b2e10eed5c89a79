"""Faults of a whole student's checkpoint that no error shows: it loads and runs, and sees or reads badly.

Reads the settings of its image processor, its configuration, and its one-dimensional weights.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors import SafetensorError, safe_open

_BRIGHTEST: Final = 20
"""Pixels that are not rescaled to 0 to 1 are beyond it, up to 255 and more."""
_FLATTEST: Final = 0.1
"""Pixels that are rescaled twice have a smaller range."""
_SMALLEST: Final = 0.5
"""Side that images are resized to, over the side that the tower is made for."""
_FEWEST: Final = 4
_TURN: Final = re.compile(
    r"(?:im|turn|header|utterance|message)_?(?:id|start|end)|(?:start|end)_(?:of_turn|of_utterance|header)|eot_id|\bINST\b"
    r"|^<[|｜](?:user|assistant|system|end)[|｜]>$",
    re.IGNORECASE,
)
"""Special tokens that begin or end a turn in the families of models in use."""
_TOWER: Final = re.compile(r"(?:^|\.)(?:vision|visual)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFault:
    name: str
    problem: str
    change: str


def find(checkpoint: Path) -> Iterator[CheckpointFault]:
    """The faults of a checkpoint on this machine; nothing about what its files do not say."""
    # A processor that was saved as a whole keeps its settings in its own file, which transformers reads first.
    whole = _read(checkpoint / "processor_config.json").get("image_processor")
    settings = whole if isinstance(whole, dict) else _read(checkpoint / "preprocessor_config.json")
    side = _read(checkpoint / "config.json").get("vision_config", {}).get("image_size")
    if problem := unusual_pixels(settings) or _small_images(settings, side if isinstance(side, int) else None):
        yield CheckpointFault(
            name="pixels_unusual",
            problem=f"{problem}; the student hardly sees",
            change="do_rescale, rescale_factor, image_mean, image_std and size in the files of its image processor",
        )
    if count := _initial_weights(checkpoint):
        yield CheckpointFault(
            name="tower_untrained",
            problem=f"All {count:,} biases and norms of the vision tower are exactly 0 or 1, their initial values: "
            "its weights are random, as after a conversion that lost them; the student hardly sees",
            change="the checkpoint: copy or convert it again",
        )
    if unused := _unused_turn_tokens(checkpoint):
        yield CheckpointFault(
            name="template_foreign",
            problem="The chat template of the student does not write the tokens that its tokenizer has for turns "
            f"({', '.join(unused)}): it is the template of other models, and the student does not know this form of "
            "prompt",
            change="chat_template.jinja: the template of the checkpoint that the student comes from",
        )


def _unused_turn_tokens(checkpoint: Path) -> list[str]:
    """The tokenizer's special tokens for turns if the chat template writes no such token; else empty."""
    added = _read(checkpoint / "tokenizer.json").get("added_tokens", ())
    tokens = [str(each.get("content")) for each in added if isinstance(each, dict) and each.get("special")]
    of_turns = [token for token in tokens if _TURN.search(token)]
    template = _template(checkpoint)
    if not template or any(token in template for token in of_turns):
        return []
    settings = _read(checkpoint / "tokenizer_config.json")
    named = [name for name in ("bos_token", "eos_token") if settings.get(name) in of_turns and name in template]
    return [] if named else of_turns[:_FEWEST]


def _template(checkpoint: Path) -> str:
    """The chat template of a checkpoint as its files hold it; empty where none does."""
    file = checkpoint / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8", errors="replace")
    held = _read(checkpoint / "chat_template.json") or _read(checkpoint / "tokenizer_config.json")
    template = held.get("chat_template")
    return template if isinstance(template, str) else ""


def unusual_pixels(settings: Mapping[str, Any]) -> str:
    """A sentence where `image_settings` make values of pixels that no tower is trained on; else empty."""
    scale = settings.get("rescale_factor", 1 / 255) if settings.get("do_rescale", True) else 1.0
    mean, deviation = settings.get("image_mean"), settings.get("image_std")
    if not settings.get("do_normalize", True):
        mean, deviation = 0.0, 1.0
    if mean is None or deviation is None or not np.all(deviation):
        return ""
    ends = np.array([(scale * pixel - np.asarray(mean)) / np.asarray(deviation) for pixel in (0, 255)])
    low, high = float(ends.min()), float(ends.max())
    if max(-low, high) <= _BRIGHTEST and np.ptp(ends, axis=0).max() >= _FLATTEST:
        return ""
    return f"Pixels reach the vision tower with values from {low:.3g} to {high:.3g}, and about -3 to 3 is usual"


def _small_images(settings: Mapping[str, Any], side: int | None) -> str:
    """A sentence where images are made far smaller than those that the tower is made for; else empty."""
    sizes = settings.get("size")
    if side is None or not settings.get("do_resize", True) or not isinstance(sizes, dict):
        return ""
    largest = max((size for size in sizes.values() if isinstance(size, int)), default=side)
    if largest >= _SMALLEST * side:
        return ""
    return f"Images are resized to {largest:,} pixels, and the vision tower is made for {side:,}: details are lost"


def _read(path: Path) -> dict[str, Any]:
    """The values of a JSON file; empty where there is none."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _initial_weights(checkpoint: Path) -> int:
    """The number of the tower's weights of one dimension where all have their initial value; else 0."""
    count = 0
    for file in sorted(checkpoint.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt") as weights:
                for name in filter(_TOWER.search, weights.keys()):
                    if len(weights.get_slice(name).get_shape()) == 1:
                        values = weights.get_tensor(name)
                        if not bool((values == values[0]).all()) or values[0].item() not in (0.0, 1.0):
                            return 0
                        count += 1
        except (OSError, SafetensorError):
            return 0
    return count if count >= _FEWEST else 0
