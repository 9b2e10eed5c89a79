"""LFM2-VL's image processor on PIL: transformers has it for torchvision alone.

Sizes, tiles and patches are the same as in transformers' `Lfm2VlImageProcessor` (5.16 to 5.23), so the tokens of an
image are the same. Pixels may differ by 1 of 255, because PIL and torchvision resize differently.
"""

import math
from typing import Any, ClassVar

import numpy as np
from transformers import BatchFeature
from transformers.image_processing_backends import PilBackend
from transformers.image_transforms import resize
from transformers.image_utils import PILImageResampling
from transformers.processing_utils import ImagesKwargs


class _Settings(ImagesKwargs, total=False):  # type: ignore[misc, call-arg]
    """The settings that a checkpoint's file may have, as transformers names them."""

    downsample_factor: int
    do_image_splitting: bool
    min_tiles: int
    max_tiles: int
    use_thumbnail: bool
    min_image_tokens: int
    max_image_tokens: int
    encoder_patch_size: int
    tile_size: int
    max_pixels_tolerance: float
    do_pad: bool
    return_row_col_info: bool


class Lfm2VlImageProcessorPil(PilBackend):  # type: ignore[misc]
    """Images as rows of patches, padded to one number: a small image whole, a large one in tiles and a thumbnail."""

    valid_kwargs = _Settings
    model_input_names = ("pixel_values", "pixel_attention_mask", "spatial_shapes")
    downsample_factor, encoder_patch_size, tile_size = 2, 16, 512
    do_image_splitting = use_thumbnail = True
    min_tiles, max_tiles = 2, 10
    min_image_tokens, max_image_tokens = 64, 256
    max_pixels_tolerance = 2.0
    do_resize = do_rescale = do_normalize = do_pad = do_convert_rgb = True
    size: ClassVar[dict[str, int]] = {"height": 512, "width": 512}
    resample = PILImageResampling.BILINEAR
    rescale_factor = 1 / 255
    image_mean = image_std = (0.5, 0.5, 0.5)
    return_row_col_info = False

    def _preprocess(
        self,
        images: list[np.ndarray],
        do_rescale: bool,
        rescale_factor: float,
        do_normalize: bool,
        image_mean: Any,
        image_std: Any,
        return_tensors: Any = None,
        return_row_col_info: bool = False,
        **settings: Any,
    ) -> BatchFeature:
        patch = settings["encoder_patch_size"]
        tile_patches = (settings["tile_size"] // patch) ** 2 if settings["do_image_splitting"] else 0
        most = max(settings["max_image_tokens"] * settings["downsample_factor"] ** 2, tile_patches)
        cut = [self._pieces(image, settings) for image in images]
        rows, masks, shapes = [], [], []
        for piece in (piece for pieces, _, _ in cut for piece in pieces):
            values = self.rescale(piece, rescale_factor) if do_rescale else piece
            values = self.normalize(values, image_mean, image_std) if do_normalize else values
            rows.append(_patches(values, patch))
            shapes.append([piece.shape[1] // patch, piece.shape[2] // patch])
        most = max(most, *map(len, rows))  # a very narrow image has more
        if settings["do_pad"]:
            masks = [np.arange(most) < len(row) for row in rows]
            rows = [np.pad(row, ((0, most - len(row)), (0, 0))) for row in rows]
        data: dict[str, Any] = {"pixel_values": np.stack(rows)}
        if settings["do_pad"]:
            data |= {"pixel_attention_mask": np.stack(masks).astype(np.int32), "spatial_shapes": np.asarray(shapes)}
        if return_row_col_info:
            data |= {"image_rows": [grid[1] for _, grid, _ in cut], "image_cols": [grid[0] for _, grid, _ in cut]}
            data["image_sizes"] = [size for _, _, size in cut]
        return BatchFeature(data=data, tensor_type=return_tensors)

    def _pieces(
        self, image: np.ndarray, settings: dict[str, Any]
    ) -> tuple[list[np.ndarray], tuple[int, int], list[int]]:
        """The image as the tower sees it, its grid of tiles (width, height), and its size as a whole."""
        unit = settings["encoder_patch_size"] * settings["downsample_factor"]
        height, width = image.shape[-2:]
        size = _fitting_size(
            height, width, unit, settings["min_image_tokens"] * unit**2, settings["max_image_tokens"] * unit**2
        )
        whole = resize(image, size, resample=settings["resample"])
        smallest = settings["encoder_patch_size"]
        area = max(smallest, _rounded(height, unit)) * max(smallest, _rounded(width, unit))
        large = area > settings["max_image_tokens"] * unit**2 * settings["max_pixels_tolerance"]
        if not (large and settings["do_image_splitting"] and settings["max_tiles"] > 1):
            return [whole], (1, 1), list(size)
        side = settings["tile_size"]
        across, down = _closest_grid(height, width, settings["min_tiles"], settings["max_tiles"], side)
        full = resize(image, (down * side, across * side), resample=settings["resample"])
        tiles = [
            full[:, row * side : (row + 1) * side, column * side : (column + 1) * side]
            for row in range(down)
            for column in range(across)
        ]
        if settings["use_thumbnail"] and len(tiles) > 1:
            tiles.append(whole)
        return tiles, (across, down), list(size)


def _rounded(number: float, unit: int) -> int:
    return round(number / unit) * unit


def _fitting_size(height: int, width: int, unit: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """Height and width in whole units, with about the same shape and an area between the bounds."""
    new_height, new_width = (max(unit, _rounded(side, unit)) for side in (height, width))
    if new_height * new_width > max_pixels:
        shrink = math.sqrt(height * width / max_pixels)
        new_height, new_width = (max(unit, math.floor(side / shrink / unit) * unit) for side in (height, width))
    elif new_height * new_width < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        new_height, new_width = (math.ceil(side * grow / unit) * unit for side in (height, width))
    return new_height, new_width


def _closest_grid(height: int, width: int, min_tiles: int, max_tiles: int, side: int) -> tuple[int, int]:
    """Columns and rows of tiles, closest to the image's shape; of equal ones the larger, if the image is large."""
    grids = {
        (across, down)
        for across in range(1, max_tiles + 1)
        for down in range(1, max_tiles + 1)
        if min_tiles <= across * down <= max_tiles
    }
    best, best_difference = (1, 1), math.inf
    for grid in sorted(grids, key=lambda grid: grid[0] * grid[1]):
        difference = abs(width / height - grid[0] / grid[1])
        larger = difference == best_difference and width * height > 0.5 * side * side * grid[0] * grid[1]
        if difference < best_difference or larger:
            best, best_difference = grid, difference
    return best


def _patches(image: np.ndarray, side: int) -> np.ndarray:
    """Patches of an image [channels, height, width], row by row; [patches, side x side x channels]."""
    channels, height, width = image.shape
    grid = image.reshape(channels, height // side, side, width // side, side).transpose(1, 3, 2, 4, 0)
    return grid.reshape(-1, side * side * channels)
