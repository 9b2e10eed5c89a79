"""Which submodules of a student are its tower, its projector and its language model, found by their names.

Refuses students with other parts. Does not freeze anything (student/models/freeze.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel

from distill.errors import ModelError


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Names of the submodules that play each role, as `model.get_submodule` takes them."""

    tower: str
    projector: str
    language: str
    further_projectors: tuple[str, ...] = ()
    """Modules that bring features of earlier tower layers to the language model (Qwen3-VL)."""
    unused: tuple[str, ...] = ()
    """Modules for sounds (Gemma 4) and for drawing (Janus): frozen with the tower, and never run."""
    fixed: tuple[str, ...] = ()
    """Parameters beside all modules, such as the end of a line of LLaVA-NeXT's images: frozen with the tower."""

    @property
    def projectors(self) -> tuple[str, ...]:
        return (self.projector, *self.further_projectors)


# Role to the names that models of transformers give it, most specific first. The projector of Qwen-VL models lies
# inside the tower, so a role is decided by the longest name that matches a parameter.
_TOWERS = ("vision_model", "vision_tower", "visual", "vision_encoder")
_PROJECTORS = (
    "connector",
    "multi_modal_projector",
    "mm_projector",
    "visual.merger",
    "embed_vision",
    "aligner",
    "vision_projection",
    "visual_embeddings_table",
    "projector",
)
_UNUSED = ("audio_tower", "embed_audio", "vqmodel", "generation_embeddings", "generation_aligner", "generation_head")
_LANGUAGES = ("text_model", "language_model")
_CROSS_ATTENTION = ("cross_attn", "crossattention")
_PREFIX_MODELS = ("paligemma",)
_WAY_OUT = "name a student of a class in the table of docs/train.md, such as Qwen/Qwen2.5-VL-3B-Instruct"


def find_parts(model: PreTrainedModel) -> Parts:
    """The submodules that are tower, projector and language model, found by the names transformers gives them.

    Raises ModelError for a model with other parts.
    """
    names: list[str] = [name for name, _ in model.named_modules()]
    _require_one_text(model)

    def find(role: str, endings: tuple[str, ...]) -> str:
        for ending in endings:
            matches = [name for name in names if name == ending or name.endswith(f".{ending}")]
            if matches:
                return min(matches, key=len)
        raise ModelError(
            f"{type(model).__name__}: found no {role} in this model (looked for modules named "
            f"{', '.join(endings)}); it cannot be trained in stages\n{_WAY_OUT}"
        )

    tower = find("vision tower", _TOWERS)
    deepstack: Any = getattr(model.get_submodule(tower), "deepstack_merger_list", ())
    inner = next(name for name, module in model.named_modules() if module is model.base_model)
    loose = [name for name, _ in model.base_model.named_parameters(recurse=False)]
    found = Parts(
        tower=tower,
        projector=find("projector", _PROJECTORS),
        language=find("language model", _LANGUAGES),
        further_projectors=tuple(f"{tower}.deepstack_merger_list.{index}" for index in range(len(deepstack))),
        unused=tuple(sorted(name for name in names if name.rpartition(".")[2] in _UNUSED)),
        fixed=tuple(f"{inner}.{name}".removeprefix(".") for name in loose),
    )
    _require_no_cross_attention(model, [name for name in names if name.startswith(f"{found.language}.")])
    _require_known(model, found)
    return found


def _require_one_text(model: PreTrainedModel) -> None:
    """Refuse models that do not read question and reply as one text from left to right."""
    name = type(model).__name__
    if model.config.is_encoder_decoder:
        raise ModelError(
            f"{name}: this model has an encoder for the question and a separate decoder for the reply; a student "
            f"needs one language model for both\n{_WAY_OUT}"
        )
    if model.config.model_type in _PREFIX_MODELS:
        raise ModelError(
            f"{name}: the tokens of its prompt also attend to later tokens of the prompt, and it has no chat "
            f"template; a student must have causal attention\n{_WAY_OUT}"
        )


def _require_no_cross_attention(model: PreTrainedModel, modules: Sequence[str]) -> None:
    """Refuse a language model that sees images otherwise than as tokens; `modules`: the names of its modules."""
    if any(name.rpartition(".")[2] in _CROSS_ATTENTION for name in modules):
        raise ModelError(
            f"{type(model).__name__}: its language model has cross-attention to images; a student must have image "
            f"tokens in its text\n{_WAY_OUT}"
        )


def _require_known(model: PreTrainedModel, found: Parts) -> None:
    """Refuse a model with weights that belong to no part: it is not known whether images pass through them."""
    output: Any = model.get_output_embeddings()
    head = {id(weight) for weight in output.parameters()} if output is not None else set()
    known = tuple(f"{name}." for name in (found.tower, *found.projectors, found.language, *found.unused))
    others = sorted(
        name
        for name, weight in model.named_parameters()
        if id(weight) not in head and name not in found.fixed and not name.startswith(known)
    )
    if others:
        raise ModelError(
            f"{type(model).__name__}: {len(others)} of its weights are not in its tower ({found.tower}), "
            f"its projector ({found.projector}) or its language model ({found.language}): {', '.join(others[:3])}\n"
            f"{_WAY_OUT}"
        )
