"""EfficientNet-Lite2 with ImageNet weights as a function from pictures to features.

Its library and weights come from packages (setup.py). It teaches the tower and is the eye of the tool teacher.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from setup import CODE, WEIGHTS, SetupError

SIZE = 260


def libraries(code: Path = CODE) -> None:
    """Let the libraries that setup.py has installed be imported, after those of the environment."""
    if not code.is_dir():
        raise SetupError(f"{code} is not there: run `python setup.py fetch`")
    if str(code) not in sys.path:
        sys.path.append(str(code))


class Lite:
    """Loaded once; `features` may be called many times."""

    def __init__(self, weights: Path = WEIGHTS) -> None:
        libraries()
        from efficientnet_lite_pytorch import EfficientNet

        path = next(weights.glob("efficientnet-lite2-*.pth"))
        self.model = EfficientNet.from_name("efficientnet-lite2")
        self.model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        self.model.eval()

    @torch.inference_mode()
    def features(self, images: list[Image.Image]) -> np.ndarray:
        """RGB pictures of any size to (n, 1280) of unit length, each picture padded to a square."""
        found = []
        for start in range(0, len(images), 16):
            batch = np.stack([_square(image) for image in images[start : start + 16]])
            pixels = torch.from_numpy(batch).permute(0, 3, 1, 2).float().sub_(127).div_(128)
            found.append(self.model.extract_features(pixels).mean((2, 3)))
        features = torch.cat(found)
        return (features / features.norm(dim=1, keepdim=True)).numpy()


def _square(image: Image.Image) -> np.ndarray:
    side = round(max(image.size) * 1.1)
    ground = Image.new("RGB", (side, side), image.convert("RGB").getpixel((0, 0)))
    ground.paste(image, ((side - image.width) // 2, (side - image.height) // 2))
    return np.array(ground.resize((SIZE, SIZE), Image.Resampling.BILINEAR))
