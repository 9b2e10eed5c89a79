"""The processor of a checkpoint: its tokenizer and what makes tensors of its images.

Many processors (InternVL, the Qwens, Gemma 4, SmolVLM2, LLaVA-OneVision, GLM-4V) also take videos, and need
torchvision for these only. The project uses no videos, so without torchvision they are loaded without their video
part. LFM2-VL is loaded with an image processor of this project.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoFeatureExtractor, AutoImageProcessor, AutoProcessor, ProcessorMixin
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING
from transformers.utils import PushToHubMixin, cached_file, is_torchvision_available

from distill.machine import hub
from student.models.lfm2_images import Lfm2VlImageProcessorPil

VIDEOS = "video_processor"
_PIXTRAL = "PixtralProcessor"
_IMAGES = {"Lfm2VlProcessor": Lfm2VlImageProcessorPil}
"""Image processors that transformers has for torchvision alone."""


def load_processor(
    path_or_name: str, *, revision: str | None = None, trust_remote_code: bool = False
) -> ProcessorMixin:
    """The processor of a directory or hub name; raises what transformers raises where one cannot be made."""
    options = {"revision": revision, "trust_remote_code": trust_remote_code}
    config = AutoConfig.from_pretrained(path_or_name, **options)
    kind = PROCESSOR_MAPPING.get(type(config), None)
    if kind is None or is_torchvision_available():
        return AutoProcessor.from_pretrained(path_or_name, **options)
    if kind.__name__ == _PIXTRAL:
        return pixtral_processor().from_pretrained(path_or_name, **options)
    if VIDEOS in kind.get_attributes() or kind.__name__ in _IMAGES:
        return _without_torchvision(kind).from_pretrained(path_or_name, **options)
    return AutoProcessor.from_pretrained(path_or_name, **options)


def pixtral_processor() -> Any:
    """The processor class of Mistral 3 without torchvision.

    It needs no more of it than a function for sizes, which the module for PIL has, too.
    """
    folder = "transformers.models.pixtral"
    alias = f"{folder}.image_processing_pixtral"
    sys.modules[alias] = import_module(f"{folder}.image_processing_pil_pixtral")
    try:
        return getattr(import_module(f"{folder}.processing_pixtral"), _PIXTRAL)
    finally:
        del sys.modules[alias]


class _NoVideos(PushToHubMixin):  # type: ignore[misc]
    """A substitute for a video processor: it keeps the settings, so that a saved student has them again."""

    _auto_class = None
    model_input_names = ()
    num_frames = fps = None

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings

    def to_dict(self) -> dict[str, Any]:
        return self.settings


def _without_torchvision(kind: Any) -> Any:
    """A processor class under its own name, with images on PIL and nothing but settings for videos."""

    def arguments(
        cls: Any, /, path_or_name: str, processor_dict: dict[str, Any] | None = None, **options: Any
    ) -> Any:
        options.pop("subfolder", None)
        parts: list[Any] = []
        for name in cls.get_attributes():
            if name == VIDEOS:
                parts.append(_NoVideos(_video_settings(path_or_name, processor_dict or {}, options.get("revision"))))
            elif name == "tokenizer":
                parts.append(cls._load_tokenizer_from_pretrained(name, path_or_name, **options))
            elif name == "feature_extractor":
                parts.append(AutoFeatureExtractor.from_pretrained(path_or_name, **options))
            else:
                parts.append(_IMAGES.get(kind.__name__, AutoImageProcessor).from_pretrained(path_or_name, **options))
        return parts

    return type(
        kind.__name__,
        (kind,),
        {
            "check_argument_for_proper_class": lambda *_: None,
            "_get_arguments_from_pretrained": classmethod(arguments),
        },
    )


def image_settings(path_or_name: str) -> dict[str, Any]:
    """How a checkpoint's images are prepared, such as their mean and deviation; empty where it has no such file."""
    with hub.cache_if_unreached(path_or_name):
        # A processor that was saved as a whole keeps them in its own file, which transformers reads first.
        whole = _settings_of(path_or_name, "processor_config.json").get("image_processor")
        return dict(whole) if whole is not None else _settings_of(path_or_name, "preprocessor_config.json")


def _video_settings(path_or_name: str, settings: dict[str, Any], revision: str | None) -> dict[str, Any]:
    if isinstance(settings.get(VIDEOS), dict):
        return dict(settings[VIDEOS])
    return _settings_of(path_or_name, "video_preprocessor_config.json", revision)


def _settings_of(path_or_name: str, name: str, revision: str | None = None) -> dict[str, Any]:
    """The values of a JSON file of a checkpoint; empty where it has no such file."""
    path = cached_file(path_or_name, name, revision=revision, _raise_exceptions_for_missing_entries=False)
    return json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
