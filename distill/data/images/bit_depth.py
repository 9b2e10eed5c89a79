"""Grey values of more than eight bits as eight."""

from PIL import Image


def eight_bits(image: Image.Image) -> Image.Image:
    """Grey values of more than eight bits scaled to eight.

    16-bit values (PPM calls them 32-bit) use their full range. Other 32-bit integers and floats have none, so the
    smallest customary range that holds them is taken (0-1 for floats, 0-255, 0-65535), else their own extremes.
    """
    import numpy as np

    values = np.nan_to_num(np.asarray(image, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    low, high = 0.0, 65535.0
    if not (image.mode.startswith("I;16") or image.format == "PPM"):
        min_value, max_value = float(values.min()), float(values.max())
        ceilings = [ceiling for ceiling in (1.0, 255.0, 65535.0) if image.mode == "F" or ceiling > 1]
        fitting = [ceiling for ceiling in ceilings if min_value >= 0 and max_value <= ceiling]
        low, high = (0.0, fitting[0]) if fitting else (min_value, max_value)
    scaled = np.rint((values - low) * (255.0 / ((high - low) or 1.0)))
    return Image.fromarray(scaled.astype(np.uint8))
