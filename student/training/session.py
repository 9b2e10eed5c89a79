"""Objects that the stages of one command share."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from student.models.start_model import StartModels

if TYPE_CHECKING:
    from student.data.images import ImageStore


@dataclass(slots=True)
class Session:
    """What stages of one command share: resized images, and the model that several start from."""

    start_models: StartModels = field(default_factory=StartModels)
    store: "ImageStore | None" = None
