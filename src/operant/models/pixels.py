"""What counts as an image, and images as the tensors that convolutions take.

A Box is *image-shaped* if it has three dimensions (height, width and channels in either order),
two (one channel), or four (a stack of frames ``[frames, height, width, channels]``, whose frames
become channels), and no side below 3. Unless told otherwise (``image="auto"``),

- a bool Box, or one of bytes 0 and 1, that is image-shaped is a stack of planes, and
- one of uint8 with sides of 10 and more is a picture: both go through a CNN; if its values stay
  below 32 it is a grid of codes, of which 5 is not more than 4, so that they are looked up in a
  table (`operant.models.GridEncoder`);
- everything else, floats too, is plain numbers, to be normalised. So is MiniGrid's 7 x 7 x 3,
  although it holds codes: in 49,152 steps of DoorKey-5x5 two seeds reached returns of 0.95 and
  0.77 with numbers, 0.86 and 0.19 with the table, in twice the CPU time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from operant.models.names import CHANNEL_NAMES, IMAGE_NAMES

NATURE_SIDE = 36
"""The least side of an image that the strides of the Nature network leave something of."""
_PICTURE_SIDE = 10
_LEAST_SIDE = 3
_MOST_CODES = 32


class ImageShape(NamedTuple):
    """The axes of an image-shaped space, as `Pixels` arranges them."""

    channels: int
    height: int
    width: int
    order: str
    """Of the space: ``"hw"``, ``"hwc"``, ``"chw"`` or ``"khwc"``."""


def image_shape(space: spaces.Box, channels: str = "auto") -> ImageShape:
    """The axes of a Box that is image-shaped.

    Args:
        space: of one image.
        channels: where they are, ``"first"`` or ``"last"``; ``"auto"``: two equal sides beside each
            other are height and width, else the smaller of the first and the last axis counts the
            channels. So (84, 84, 3) and (210, 160, 3) have them last, (4, 84, 84) first.

    Raises:
        ValueError: another number of axes.
    """
    if channels not in CHANNEL_NAMES:
        raise ValueError(f"channels must be one of {', '.join(CHANNEL_NAMES)}, got {channels!r}")
    shape = space.shape
    if len(shape) == 2:
        return ImageShape(1, *shape, "hw")
    if len(shape) == 4:
        frames, height, width, depth = shape
        return ImageShape(frames * depth, height, width, "khwc")
    if len(shape) != 3:
        raise ValueError(
            f"an image has 2 axes, 3 or, as a stack of frames, 4; got a Box of shape {shape}"
        )
    first, middle, last = shape
    if channels == "auto":
        is_last = first == middle or (middle != last and last <= first)
        channels = "last" if is_last else "first"
    if channels == "last":
        return ImageShape(last, first, middle, "hwc")
    return ImageShape(first, middle, last, "chw")


def image_encoding(
    space: spaces.Space[object], image: str = "auto", channels: str = "auto"
) -> str | None:
    """What encodes a space: ``"nature"``, ``"impala"``, ``"small"``, ``"grid"``; None: not as an
    image.

    Args:
        space: of one leaf of an observation.
        image: one of these for everything image-shaped of bytes or bools, and for Boxes of floats
            or other integers with three dimensions; ``"flat"`` for none; ``"auto"``: see above.
        channels: see `image_shape`.

    Raises:
        ValueError: an unknown name.
    """
    if image not in IMAGE_NAMES:
        raise ValueError(f"image must be one of {', '.join(IMAGE_NAMES)}, got {image!r}")
    if image == "flat" or not isinstance(space, spaces.Box) or not 2 <= len(space.shape) <= 4:
        return None
    is_bytes = space.dtype in (np.uint8, np.bool_)
    if not is_bytes and (image == "auto" or len(space.shape) != 3):
        return None
    side = min(image_shape(space, channels)[1:3])
    if side < _LEAST_SIDE:
        return None
    if image != "auto":
        return image
    largest = int(np.max(space.high))
    if largest > 1:
        if side < _PICTURE_SIDE:
            return None
        if largest < _MOST_CODES:
            return "grid"
    return "nature" if side >= NATURE_SIDE else "small"


def scale_of(space: spaces.Box) -> float:
    """What values are multiplied by so that the largest that the space has becomes 1, if that is
    finite and above 1; else 1."""
    largest = float(np.max(space.high))
    return 1 / largest if 1 < largest < np.inf else 1.0


class Pixels(nn.Module):
    """Images ``[B, *shape]`` of any dtype as float32 ``[B, channels, height, width]`` from 0 to 1,
    channels last in memory.

    Convolutions on a CPU are faster so: a gradient of 256 images 84 x 84 x 4 through `NatureCNN`
    took one core of a 2-core Xeon 96 ms instead of 158. Images with the channels last are not even
    copied.

    Args:
        space: a Box that is image-shaped.
        channels: see `image_shape`.

    Raises:
        ValueError: the space is not image-shaped.
    """

    def __init__(self, space: spaces.Box, channels: str = "auto") -> None:
        super().__init__()
        depth, height, width, self.order = image_shape(space, channels)
        self.shape = (depth, height, width)
        """Channels, height, width."""
        self.scale = scale_of(space)

    def forward(self, obs: Tensor) -> Tensor:
        """See the class."""
        if self.order == "hw":
            obs = obs.unsqueeze(1)
        elif self.order == "hwc":
            obs = obs.permute(0, 3, 1, 2)
        elif self.order == "khwc":
            obs = obs.permute(0, 1, 4, 2, 3).flatten(1, 2)
        # Arranged while it is bytes: a quarter of what floats would be.
        pixels = obs.contiguous(memory_format=torch.channels_last).float()
        return pixels if self.scale == 1 else pixels * self.scale
