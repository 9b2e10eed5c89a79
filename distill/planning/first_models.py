"""A teacher and a student that fit a card, for a first recipe.

Names and sizes are taken from the published checkpoints. The memory of a student's training comes from `distill plan`
for the stages of the recipe `own-images` (docs/log.md); `distill plan` for the written recipe also counts the tokens
of the data.
"""

from dataclasses import dataclass
from math import isfinite

from distill import packages
from distill.errors import RecipeError
from distill.machine import hardware
from distill.machine.hardware import Gpu
from distill.planning.stage_plans import local_gpu

_SERVER_SHARE = 0.9
"""Share of the memory that a vLLM server takes by default."""
_BESIDE_WEIGHTS_GIB = 5.0
"""For images, the cache of some requests of 8,192 tokens, and graphs: an estimate.

A server with too little memory stops at its start.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstModel:
    """A checkpoint of the hub, and the memory that it needs for its part."""

    name: str
    needs_gib: float
    """Bytes: a teacher's weights in bfloat16; a student's training with adapters of rank 32 and 4,096 tokens."""


TEACHERS = tuple(
    FirstModel(name=f"Qwen/Qwen3-VL-{size}-Thinking", needs_gib=gib)
    for size, gib in (("2B", 4.0), ("4B", 8.3), ("8B", 16.3), ("32B", 62.2))
)
"""From small to large."""
STUDENTS = (
    FirstModel(name="Qwen/Qwen3-VL-2B-Instruct", needs_gib=5.8),
    FirstModel(name="Qwen/Qwen3-VL-4B-Instruct", needs_gib=37.7),
)
"""From small to large: the first with its layers computed twice, the next one where they need not be."""
PLANNED_GPU = "RTX 4090"
"""Where no card is here and none is named."""


def chosen_card(gpu: str | None, memory_gib: float | None) -> tuple[Gpu, str]:
    """The card to plan for, and where that comes from. Raises RecipeError for an unknown name, and for both."""
    if gpu is not None and memory_gib is not None:
        raise RecipeError(f"--gpu {gpu} and --memory {memory_gib:g}: give one of them")
    if gpu is not None:
        return hardware.find_gpu(gpu), "as --gpu names it"
    if memory_gib is not None:
        if not isfinite(memory_gib):
            raise RecipeError(f"--memory {memory_gib:g}: give the memory of a GPU in GiB, such as 24")
        name = f"a GPU of {memory_gib:g} GiB"
        return Gpu(name=name, memory_gib=memory_gib, bf16=None, bandwidth=0.0, source="--memory"), "as --memory says"
    if (card := None if packages.missing("torch") else local_gpu()) is not None:
        return card, "the GPU of this machine"
    return hardware.find_gpu(PLANNED_GPU), "this machine has no GPU; --gpu NAME or --memory GIB plans for yours"


def teacher_for(card: Gpu) -> tuple[FirstModel, bool]:
    """The largest teacher that fits the card, and True; if none fits, the smallest one, and False."""
    room = _SERVER_SHARE * card.memory_gib - _BESIDE_WEIGHTS_GIB
    return _largest(TEACHERS, room)


def student_for(card: Gpu) -> tuple[FirstModel, bool]:
    """The largest student that the card can train, and True; if none fits, the smallest one, and False."""
    return _largest(STUDENTS, card.usable_bytes / 2**30)


def _largest(models: tuple[FirstModel, ...], room_gib: float) -> tuple[FirstModel, bool]:
    fitting = [model for model in models if model.needs_gib <= room_gib]
    return (fitting[-1], True) if fitting else (models[0], False)
