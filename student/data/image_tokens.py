"""Tokens of images, computed once, for stages that train neither tower nor projector.

In such a stage the language model gets the same tokens of an image every time. The student itself computes them,
under no_grad and in the order of the rows. They are kept in the run's folder and given to the training batches
instead of pixels; `get_image_features` of the model passes it on. Stages that start from the same tower and projector
share them. Pixels still work: text generation during a stage uses the tower. Does not make pixels
(student/data/images.py) and does not know what is trained (student/models/freeze.py).
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling

from distill.artifacts.manifest import fingerprint, versions
from distill.errors import ModelError, StorageError
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import Stage, start_of
from distill.types import ImageRef, Progress, ProgressCallback
from distill.word_tables import counted
from student.data.disk_cache import DiskCache
from student.data.encode import Examples
from student.data.encoded_rows import MappedRows
from student.data.images import TOKEN_AXES, Features, ImageStore, join_features, pack, processor_fingerprint, unpack
from student.data.pixel_levels import MASK, PIXELS
from student.models.parts import Parts

_OF_PIXELS = (PIXELS, MASK, "image_position_ids")
"""Inputs of the tower that say nothing of its tokens."""
_BATCH_VALUES = 1 << 23
"""Pixel values that go through the tower at once: 55 images of 224 x 224, or a dozen tiles of 512 x 512."""
_KNOWN_OUTPUTS = ("pooler_output", "deepstack_features", "last_hidden_state", "hidden_states", "attentions")
"""Of what a model makes of pixels: the tokens, and what they were made from."""
_FORM = "form"
_WAY_OUT = "set student.image_tokens = 'off'"
_CONFIG_OF_TEXT = ("text_config", "transformers_version", "dtype", "_name_or_path", "architectures")


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Costs and savings of keeping the image tokens of a stage."""

    trained: Sequence[str]
    """Parts that the stage trains."""
    images: int
    """Distinct ones."""
    uses: float
    """How often images are looked at, over all epochs and all stages that share the tokens."""
    bytes: int
    limit_bytes: int
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Whether image tokens are kept, and why."""

    use: bool
    reason: str


def choose(setting: Literal["auto", "on", "off"], need: Need) -> Choice:
    """Whether to keep image tokens.

    On a GPU a tower of SigLIP's size takes about as long as bringing its tokens there, so "auto" keeps them on a CPU.
    """
    gigabytes = need.bytes / 1e9
    if setting == "off":
        return Choice(use=False, reason="student.image_tokens = 'off'")
    if "projector" in need.trained:
        return Choice(use=False, reason="the projector is trained")
    if not need.images:
        return Choice(use=False, reason="the rows have no images")
    if need.bytes > need.limit_bytes:
        limit = need.limit_bytes / 1e9
        return Choice(
            use=False, reason=f"{gigabytes:.1f} GB of image tokens, more than student.image_tokens_gb = {limit:g}"
        )
    often = f"{need.uses / need.images:.1f} uses an image"
    if setting == "auto" and need.uses <= need.images:
        return Choice(use=False, reason=often)
    if setting == "auto" and need.device != "cpu":
        return Choice(use=False, reason=f"on {need.device} the tower is about as fast as copying its tokens")
    return Choice(use=True, reason=f"{often}, {gigabytes:.2f} GB")


class TokenStore:
    """Tokens of images, in the shape of an ImageStore: `features` of one image, `join` for a batch."""

    full = False
    """Nothing has to be computed: reading tokens is no work for processes of its own."""

    def __init__(self, cache: DiskCache) -> None:
        self._cache = cache

    def features(self, ref: ImageRef, max_pixels: int) -> Features:
        """`pixel_values`: float[tokens, width], and what else the model wants to know of an image."""
        result = self._cache.get(ref.sha256)
        if result is None:
            raise StorageError(
                f"{self._cache.folder}: the tokens of image {ref.sha256[:12]} are damaged or missing; run the same "
                "command again; it computes them again"
            )
        return unpack(*result)

    def normalised(self, features: Features) -> dict[str, torch.Tensor]:
        return dict(features)

    def join(self, parts: Sequence[Features], *, raw: bool = False) -> dict[str, torch.Tensor]:
        """Inputs of several images: `pixel_values` float[1, 1, 1, 1, tokens, width], a shape that no pixels have."""
        joined = join_features(parts)
        if PIXELS in joined:
            joined[PIXELS] = joined[PIXELS][(None,) * (TOKEN_AXES - 2)]
        return joined


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageEncoder:
    """A student's way from images to tokens: its tower and projector, and the store that has their pixels.

    `folder`: the folder of a run's caches, which holds the tokens.
    """

    model: PreTrainedModel
    parts: Parts
    store: ImageStore
    image_id: int
    max_pixels: int
    folder: Path

    def tokens(self, ref: ImageRef) -> int:
        """The number of tokens that the processor writes for an image."""
        return self.store.expansion(ref, self.max_pixels).count(self.image_id)

    def count(self, examples: Examples) -> tuple[int, int]:
        """The number of distinct images of the rows, and the tokens of all of them. Reads images not seen before."""
        refs = distinct_images(examples)
        return len(refs), sum(map(self.tokens, refs))


def for_stage(
    encoder: ImageEncoder,
    examples: Examples,
    recipe: Recipe,
    stage: Stage,
    *,
    count: tuple[int, int],
    device: torch.device,
    on_progress: ProgressCallback,
) -> ImageStore | TokenStore:
    """What a stage's batches take images from: pixels, or tokens where keeping those pays; says which and why.

    `count`: what `encoder.count` says of the rows.
    """
    assert recipe.student is not None
    settings, model, (images, tokens) = recipe.student, encoder.model, count
    limit_bytes = int(settings.image_tokens_gb * 1e9)
    choice = choose(
        settings.image_tokens,
        Need(
            trained=stage.train,
            images=images,
            uses=int(examples.columns.images.sum()) * _passes(stage, examples) * sharing(recipe.stages, stage),
            bytes=tokens * _width(model) * model.dtype.itemsize,
            limit_bytes=limit_bytes,
            device=device.type,
        ),
    )

    def say(done: int) -> None:
        facts = {"kept": "yes" if choice.use else "no", "because": choice.reason}
        on_progress(Progress(stage=f"image tokens {stage.name}", done=done, total=images, unit="images", facts=facts))

    if not choice.use:
        # A stage that trains the projector has nothing to keep, which needs no word.
        if "projector" not in stage.train:
            say(0)
        return encoder.store
    model.to(device)
    try:
        refs = distinct_images(examples)
        return token_store(encoder, refs, max_bytes=limit_bytes, on_image=lambda done, _: say(done))
    except (ModelError, StorageError) as error:
        # Other stages may have taken the room, or the disk is full: that costs time, not the run.
        if settings.image_tokens == "on" and isinstance(error, ModelError):
            raise
        choice = Choice(use=False, reason=str(error))
        say(0)
        return encoder.store


def distinct_images(examples: Examples) -> list[ImageRef]:
    """The images of the rows, each once."""
    rows = examples.rows
    refs = rows.image_refs() if isinstance(rows, MappedRows) else (ref for each in rows for ref in each.row.images)
    return list({ref.sha256: ref for ref in refs}.values())


def sharing(stages: Sequence[Stage], stage: Stage) -> int:
    """How many stages see images through the tower and projector that `stage` starts from; 0 if it trains them."""
    made_by: dict[str | None, str | None] = {None: None}
    for each in stages:
        made_by[each.name] = each.name if "projector" in each.train else made_by[start_of(stages, each)]
    same = [each for each in stages if made_by[each.name] == made_by[stage.name] and "projector" not in each.train]
    # By name: a stage whose settings have been settled is no longer equal to the recipe's.
    return len(same) if stage.name in [each.name for each in same] else 0


def _passes(stage: Stage, examples: Examples) -> float:
    """The approximate number of epochs of a stage."""
    if stage.max_tokens is not None:
        return stage.max_tokens / max(1, sum(examples.lengths))
    if stage.max_steps is None:
        return stage.epochs
    rows = stage.max_steps * stage.batch_size * stage.group_rows
    if stage.batch_tokens is not None:
        rows = round(stage.max_steps * stage.batch_tokens * len(examples) / max(1, sum(examples.lengths)))
    return rows / max(1, len(examples))


def _width(model: PreTrainedModel) -> int:
    """Numbers a kept token is made of: its embedding, and what deeper layers add to it (Qwen3-VL)."""
    layers = getattr(getattr(model.config, "vision_config", None), "deepstack_visual_indexes", None) or ()
    return int(model.get_input_embeddings().embedding_dim) * (1 + len(layers))


def token_store(
    encoder: ImageEncoder,
    refs: Sequence[ImageRef],
    *,
    max_bytes: int,
    on_image: Callable[[int, int], None] = lambda done, total: None,
) -> TokenStore:
    """The tokens of these images, computed if they are not cached; the model then gets them instead of pixels.

    `on_image` hears how many are done. Raises ModelError when the model makes another number of tokens of an image
    than its processor writes.
    """
    cache = DiskCache(encoder.folder / f"tokens-{_identity(encoder)[:16]}", max_bytes=max_bytes)
    images = list({ref.sha256: ref for ref in refs}.values())
    # Reading all of them finds damaged entries while the tower is still loaded.
    missing = [ref for ref in images if _FORM not in cache or cache.get(ref.sha256) is None]
    encoder.store.prepare(missing, encoder.max_pixels)
    done = len(images) - len(missing)
    on_image(done, len(images))
    for group in _groups(missing, encoder):
        _compute(encoder, group, cache)
        done += len(group)
        on_image(done, len(images))
    if images:
        _attach(encoder.model, cache)
    return TokenStore(cache)


def _groups(refs: Sequence[ImageRef], encoder: ImageEncoder) -> Iterator[list[tuple[ImageRef, Features]]]:
    """Images whose pixels go through the tower together; the same ones in every run."""
    group: list[tuple[ImageRef, Features]] = []
    values = 0
    for ref in refs:
        features = encoder.store.features(ref, encoder.max_pixels)
        size = features[PIXELS].numel()
        if group and values + size > _BATCH_VALUES:
            yield group
            group, values = [], 0
        group.append((ref, features))
        values += size
    if group:
        yield group


@torch.no_grad()
def _compute(encoder: ImageEncoder, group: Sequence[tuple[ImageRef, Features]], cache: DiskCache) -> None:
    """Put the tokens of the images of a group into the cache."""
    model, joined = encoder.model, encoder.store.join([features for _, features in group])
    inputs = {name: value.to(model.device) for name, value in joined.items()}
    of_pixels = _of_pixels(_inner(model))
    known = signature(of_pixels).parameters
    was_training = model.training
    model.eval()
    outputs = of_pixels(**{name: value for name, value in inputs.items() if name in known}, return_dict=True)
    model.train(was_training)
    if getattr(outputs, "pooler_output", None) is None:
        raise ModelError(f"{type(model).__name__}: its get_image_features gives no tokens; {_WAY_OUT}")
    if more := sorted(name for name, value in outputs.items() if name not in _KNOWN_OUTPUTS and value is not None):
        raise ModelError(
            f"{type(model).__name__}: its get_image_features gives more than tokens ({', '.join(more)}); {_WAY_OUT}"
        )
    layers = [
        _flat(outputs.pooler_output),
        *(_flat(layer) for layer in getattr(outputs, "deepstack_features", None) or ()),
    ]
    tokens = torch.cat(layers, dim=-1).cpu()
    counts = [encoder.tokens(ref) for ref, _ in group]
    if sum(counts) != len(tokens):
        raise ModelError(
            f"{type(model).__name__} makes {counted(len(tokens), 'token')} of {counted(len(group), 'image')}, its "
            f"processor writes {sum(counts)}; {_WAY_OUT}"
        )
    form = {"width": layers[0].shape[-1], "listed": isinstance(outputs.pooler_output, list | tuple)}
    cache.put(_FORM, [], form)
    for (ref, features), own in zip(group, torch.split(tokens, counts), strict=True):
        rest = {name: value for name, value in features.items() if name not in _OF_PIXELS}
        if not cache.put(ref.sha256, *pack({PIXELS: own, **rest})):
            raise StorageError(
                f"{cache.folder}: no room for the tokens of all images ({cache.bytes / 1e9:.1f} GB written); free "
                "space, or raise student.image_tokens_gb"
            )


def _flat(tokens: Any) -> torch.Tensor:
    """All images' tokens one after the other, float[tokens, width]; some models list them by image."""
    joined = torch.cat(list(tokens)) if isinstance(tokens, list | tuple) else tokens
    return joined.reshape(-1, joined.shape[-1])


def _inner(model: PreTrainedModel) -> Any:
    """The module whose forward asks itself for image features; the one with the output head only passes on."""
    inner = model.base_model
    if not hasattr(inner, "get_image_features"):
        raise ModelError(f"{type(model).__name__} has no get_image_features; {_WAY_OUT}")
    return inner


def _of_pixels(inner: Any) -> Callable[..., Any]:
    """The model's own function from pixels to tokens, also where it was replaced."""
    bound: Callable[..., Any] = type(inner).get_image_features.__get__(inner)
    return bound


def _attach(model: PreTrainedModel, cache: DiskCache) -> None:
    """Let the model take tokens, which have six axes, instead of pixels, which have fewer."""
    inner = _inner(model)
    result = cache.get(_FORM)
    assert result is not None
    width, listed = result[1]["width"], result[1]["listed"]
    of_pixels = _of_pixels(inner)

    def get_image_features(pixel_values: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if pixel_values.ndim != TOKEN_AXES:
            return of_pixels(pixel_values, *args, **kwargs)
        pooled, *deeper = torch.split(pixel_values.flatten(0, -3), width, dim=-1)
        tokens = BaseModelOutputWithPooling(pooler_output=[pooled[0]] if listed else pooled)
        tokens.deepstack_features = [[layer[0]] for layer in deeper]
        return tokens

    inner.get_image_features = get_image_features


def _identity(encoder: ImageEncoder) -> str:
    """Hex digest of everything that decides the tokens of an image."""
    model, digest = encoder.model, hashlib.sha256()
    for part in (encoder.parts.tower, encoder.parts.projector):
        for name, value in model.get_submodule(part).state_dict().items():
            digest.update(f"{name}\0{value.dtype}\0{tuple(value.shape)}\0".encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    config: Mapping[str, Any] = model.config.to_dict()
    return fingerprint(
        {
            "weights": digest.hexdigest(),
            "class": type(model).__name__,
            "config": str(sorted((key, value) for key, value in config.items() if key not in _CONFIG_OF_TEXT)),
            "processor": processor_fingerprint(encoder.store.processor),
            "device": model.device.type,
            **versions("torch", "transformers"),
        }
    )
