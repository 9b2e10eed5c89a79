"""The `[student]` section of a recipe: the model that is trained."""

from typing import Literal, Self

from pydantic import model_validator

from distill.recipe.base import Dtype, LicensedCard, LocalOrHub, Section, key

_CONTENT = "the content of a directory; for a hub name the name"
_CARD = "it changes only the model card of an export, which each export writes again"


class StudentCard(LicensedCard):
    """Facts for the model card of an exported student that cannot be measured, such as the licence."""

    license: str = key(
        "other",
        'Licence as the Hugging Face hub spells it, such as apache-2.0; "other" where it has none or is not known.',
        because=_CARD,
        pattern=r"^[a-z0-9][a-z0-9.-]*$",
    )
    license_name: str | None = key(None, 'Name of the licence, with license = "other".', because=_CARD)
    license_link: str | None = key(None, 'Address of the licence\'s text, with license = "other".', because=_CARD)


class Student(Section):
    """The model to train: SiQ-VL parts, or any Hugging Face image-text-to-text checkpoint."""

    model: LocalOrHub | None = key(
        None,
        "Directory or hub name of an image-text-to-text checkpoint; instead of vision, language and pixel_shuffle.",
        affects="signals train eval",
        compared_by=_CONTENT,
    )
    vision: LocalOrHub | None = key(
        None,
        "Directory or hub name of the vision tower of a SiQ-VL student.",
        affects="train eval",
        compared_by=_CONTENT,
    )
    language: LocalOrHub | None = key(
        None,
        "Directory or hub name of the language model of a SiQ-VL student.",
        affects="train eval",
        compared_by=_CONTENT,
    )
    pixel_shuffle: int | None = key(
        None,
        "Factor of the pixel shuffle of a SiQ-VL student: n x n patches become one image token.",
        affects="train eval",
        ge=1,
    )
    revision: str | None = key(
        None, "Revision (branch, tag or commit) of a hub name; default: the newest.", affects="signals train eval"
    )
    dtype: Dtype = key("bfloat16", "Data type of the weights.", affects="train eval")
    attention: Literal["auto", "packed", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"] = key(
        "auto",
        "How attention separates rows that share a line. packed: row by row (CPU) or by the varlen kernel of torch "
        "(GPU). auto: packed on a CPU; on a GPU flash attention where it is installed, else packed, else sdpa.",
        affects="train eval",
    )
    trust_remote_code: bool = key(False, "Run the code that comes with the checkpoint.", affects="train eval")
    image_memory_gb: float = key(
        2.0,
        "Gigabytes of resized images kept in memory, so that each is decoded once.",
        because="it changes only where prepared images are kept",
        ge=0,
    )
    image_disk_gb: float = key(
        20.0,
        "Gigabytes of resized images kept in the run's folder while it trains; images beyond that are decoded at "
        "every use.",
        because="it changes only where prepared images are kept",
        ge=0,
    )
    image_tokens: Literal["auto", "on", "off"] = key(
        "auto",
        "Whether stages that train neither tower nor projector compute the tokens of an image once. auto: where that "
        "saves work (on a CPU, when images are seen more than once).",
        because="the tokens are the same, computed once or at every step",
    )
    image_tokens_gb: float = key(
        20.0,
        "Gigabytes of image tokens kept in the run's folder; a stage that needs more computes them at every step.",
        because="it changes only where image tokens are kept",
        ge=0,
    )
    card: StudentCard = key(StudentCard(), "Facts for the model card of an export.")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        parts = (self.vision, self.language, self.pixel_shuffle)
        if self.model and any(part is not None for part in parts):
            raise ValueError("give either model, or vision + language + pixel_shuffle, not both")
        if not self.model and any(part is None for part in parts):
            raise ValueError("give model, or all of vision, language and pixel_shuffle")
        return self
