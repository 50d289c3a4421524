"""Convolutional encoders. Each is a module from images ``[B, *shape]`` to features float32
``[B, size]``, scales bytes itself, and knows from the space how its axes are arranged."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from operant.models.layers import conv, linear
from operant.models.pixels import NATURE_SIDE, Pixels, image_shape


class NatureCNN(nn.Module):
    """The network of Mnih et al. (2015) for images of 36 x 36 and more: convolutions of 8 x 8, 4 x
    4 and 3 x 3 with strides 4, 2 and 1, then a layer.

    Args:
        space: of one image: a Box that is image-shaped, see `operant.models.pixels`.
        size: features.
        channels: ``"first"``, ``"last"``, or ``"auto"``: seen from the shape.

    Raises:
        ValueError: the image is too small, or not one.
    """

    def __init__(self, space: spaces.Box, size: int = 512, channels: str = "auto") -> None:
        super().__init__()
        self.pixels, self.size = Pixels(space, channels), size
        depth, *sides = self.pixels.shape
        if min(sides) < NATURE_SIDE:
            raise ValueError(
                f"NatureCNN needs images of {NATURE_SIDE} x {NATURE_SIDE} at least, got "
                f"{' x '.join(map(str, sides))}; take SmallCNN (policy.image = 'small')"
            )
        self.convolutions = nn.Sequential(
            *(conv(depth, 32, 8, 4), nn.ReLU()),
            *(conv(32, 64, 4, 2), nn.ReLU()),
            *(conv(64, 64, 3), nn.ReLU()),
        )
        self.dense = _dense(self.convolutions, self.pixels.shape, size)

    def forward(self, obs: Tensor) -> Tensor:
        """Features ``[B, size]`` of images ``[B, *shape]``."""
        features: Tensor = self.dense(self.convolutions(self.pixels(obs)))
        return features


class SmallCNN(nn.Module):
    """For images too small for `NatureCNN`, of about 10 x 10 to 32 x 32: convolutions of 3 x 3,
    padded, the first with stride 1, the others with stride 2, then a layer.

    Args:
        space, channels: see `NatureCNN`.
        size: features.
        depths: channels of the convolutions.

    Raises:
        ValueError: the space is not image-shaped.
    """

    def __init__(
        self,
        space: spaces.Box,
        size: int = 128,
        channels: str = "auto",
        depths: Sequence[int] = (16, 32, 32),
    ) -> None:
        super().__init__()
        self.pixels, self.size = Pixels(space, channels), size
        self.convolutions = _small(self.pixels.shape[0], depths)
        self.dense = _dense(self.convolutions, self.pixels.shape, size)

    def forward(self, obs: Tensor) -> Tensor:
        """Features ``[B, size]`` of images ``[B, *shape]``."""
        features: Tensor = self.dense(self.convolutions(self.pixels(obs)))
        return features


class ImpalaCNN(nn.Module):
    """The residual network of Espeholt et al. (2018): for each depth a convolution, a maximum over
    3 x 3 with stride 2, and two residual blocks; then a layer. Slower than `NatureCNN`, and often
    better on games.

    Args:
        space, channels: see `NatureCNN`; any size.
        size: features.
        depths: channels of the three parts.

    Raises:
        ValueError: the space is not image-shaped.
    """

    def __init__(
        self,
        space: spaces.Box,
        size: int = 256,
        channels: str = "auto",
        depths: Sequence[int] = (16, 32, 32),
    ) -> None:
        super().__init__()
        self.pixels, self.size = Pixels(space, channels), size
        layers: list[nn.Module] = []
        before = self.pixels.shape[0]
        for depth in depths:
            layers += [conv(before, depth, 3, padding=1, gain=1.0), nn.MaxPool2d(3, 2, 1)]
            layers += [_Residual(depth), _Residual(depth)]
            before = depth
        self.convolutions = nn.Sequential(*layers, nn.ReLU())
        self.dense = _dense(self.convolutions, self.pixels.shape, size)

    def forward(self, obs: Tensor) -> Tensor:
        """Features ``[B, size]`` of images ``[B, *shape]``."""
        features: Tensor = self.dense(self.convolutions(self.pixels(obs)))
        return features


class _Residual(nn.Module):
    """``x + conv(relu(conv(relu(x))))``."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.first = conv(depth, depth, 3, padding=1, gain=1.0)
        self.second = conv(depth, depth, 3, padding=1, gain=1.0)

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = self.second(self.first(x.relu()).relu())
        return x + added


class GridEncoder(nn.Module):
    """For grids of codes, such as MiniGrid's: each code of each channel is looked up in a table, a
    cell is the sum of what its channels stand for (as in BabyAI's network, Hui et al., 2020), and
    the cells go through the convolutions of `SmallCNN`.

    Args:
        space, channels: see `NatureCNN`; a Box of integers from 0 on.
        size: features.
        embedding: numbers that a cell becomes.
        depths: channels of the convolutions.

    Raises:
        ValueError: the space is not image-shaped, or its values are no codes.
    """

    offset: Tensor

    def __init__(
        self,
        space: spaces.Box,
        size: int = 128,
        channels: str = "auto",
        embedding: int = 16,
        depths: Sequence[int] = (32, 32),
    ) -> None:
        super().__init__()
        depth, height, width, self.order = image_shape(space, channels)
        codes = _codes(space)
        self.size = size
        self.table = nn.Embedding(depth * codes, embedding)
        self.register_buffer("offset", torch.arange(depth) * codes, persistent=False)
        self.convolutions = _small(embedding, depths)
        self.dense = _dense(self.convolutions, (embedding, height, width), size)

    def forward(self, obs: Tensor) -> Tensor:
        """Features ``[B, size]`` of grids ``[B, *shape]``."""
        if self.order == "hw":
            obs = obs.unsqueeze(-1)
        elif self.order == "chw":
            obs = obs.permute(0, 2, 3, 1)
        elif self.order == "khwc":
            obs = obs.permute(0, 2, 3, 1, 4).flatten(3, 4)
        cells = self.table(obs.long() + self.offset).sum(-2)
        features: Tensor = self.dense(self.convolutions(cells.permute(0, 3, 1, 2)))
        return features


def _codes(space: spaces.Box) -> int:
    """How many codes an entry of a grid may have."""
    most = 1 << 16
    if not np.issubdtype(space.dtype, np.integer) and space.dtype != np.bool_:
        raise ValueError(f"a grid of codes is a Box of integers, got {space}")
    low, high = int(np.min(space.low)), int(np.max(space.high))
    if low < 0 or high >= most:
        raise ValueError(f"the codes of a grid are 0 to {most - 1} at most, got {low} to {high}")
    return high + 1


def _small(depth: int, depths: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for k, wide in enumerate(depths):
        layers += [conv(depth, wide, 3, 1 if k == 0 else 2, padding=1), nn.ReLU()]
        depth = wide
    return nn.Sequential(*layers)


def _dense(convolutions: nn.Module, shape: tuple[int, int, int], size: int) -> nn.Sequential:
    """What makes features of the output of convolutions of images of this shape."""
    with torch.no_grad():
        numbers = convolutions(torch.zeros(1, *shape)).numel()
    return nn.Sequential(nn.Flatten(), linear(numbers, size, math.sqrt(2)), nn.ReLU())
