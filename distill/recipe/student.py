"""The `[student]` section of a recipe: the model that is trained."""

from typing import Literal, Self

from pydantic import Field, model_validator

from distill.recipe.base import Dtype, LocalOrHub, Section


class Student(Section):
    """The model to train: SiQ-VL parts, or any Hugging Face image-text-to-text checkpoint."""

    model: LocalOrHub | None = None
    vision: LocalOrHub | None = None
    language: LocalOrHub | None = None
    pixel_shuffle: int | None = Field(default=None, ge=1)
    revision: str | None = None
    dtype: Dtype = "bfloat16"
    attention: Literal["auto", "packed", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"] = "auto"
    """How rows that share a line are kept apart. packed: row by row (CPU) or by the varlen kernel of torch (GPU)."""
    trust_remote_code: bool = False
    image_memory_gb: float = Field(default=2.0, ge=0)
    """Resized images kept in memory, so that they are decoded once."""
    image_disk_gb: float = Field(default=20.0, ge=0)
    """Images beyond that kept in the run's folder until it is trained; what fits neither is decoded at every use."""
    image_tokens: Literal["auto", "on", "off"] = "auto"
    """Whether stages that train neither tower nor projector compute the tokens of an image once. auto: where that
    saves work (on a CPU, when images are seen more than once)."""
    image_tokens_gb: float = Field(default=20.0, ge=0)
    """Image tokens kept in the run's folder; a stage that needs more computes them at every step."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        parts = (self.vision, self.language, self.pixel_shuffle)
        if self.model and any(part is not None for part in parts):
            raise ValueError("give either model, or vision + language + pixel_shuffle, not both")
        if not self.model and any(part is None for part in parts):
            raise ValueError("give model, or all of vision, language and pixel_shuffle")
        return self
