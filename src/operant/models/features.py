"""`Features`: from observations to a vector, with inputs normalised by running statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from operant.buffers.normalizer import RunningNormalizer
from operant.models.bonus import IMAGE_PART, PART, Setting
from operant.models.cnn import ImpalaCNN, NatureCNN, SmallCNN
from operant.models.encoders import EncoderOptions, encoder, leaf_encoder, numeric
from operant.models.layers import linear, mlp
from operant.spaces.rows import ObsLayout

CLIP = 5.0
"""Normalised inputs are limited to plus and minus this, as in Burda et al. (2018)."""


class Inputs(nn.Module):
    """Statistics of the leaves of an observation: numbers, and the pixels of images; codes, choices
    and bits pass unchanged.

    Args:
        layout: of the observations.
        options: how leaves are encoded, which says what is an image.
    """

    def __init__(self, layout: ObsLayout, options: EncoderOptions) -> None:
        super().__init__()
        self.layout = layout
        leaves = [leaf for leaf in layout.leaves if _has_numbers(leaf.space, options)]
        self.paths = tuple(leaf.path for leaf in leaves)
        """Leaves that are normalised."""
        self.normalizers = nn.ModuleList(RunningNormalizer(leaf.shape, CLIP) for leaf in leaves)

    def forward(self, obs: Any) -> Any:
        """Observations ``[B, *shape]``, or a dict of leaves, with the numbers normalised; new."""
        if not self.layout.is_tree:
            return self.normalizers[0](obs.float()) if self.paths else obs
        found = dict(obs)
        for path, normalizer in zip(self.paths, self.normalizers, strict=True):
            found[path] = normalizer(obs[path].float())
        return found

    def update(self, rows: Tensor) -> None:
        """Take in observations ``[..., *shape]`` as they lie in memory."""
        views = self.layout.views(rows)
        for path, normalizer in zip(self.paths, self.normalizers, strict=True):
            assert isinstance(normalizer, RunningNormalizer)
            normalizer.update(views[path])


class Features(nn.Module):
    """An encoder as the policy's, hidden layers with ReLU, and a linear layer. Takes what `Inputs`
    returns.

    Args:
        setting: spaces and encoders.
        hidden: sizes of the hidden layers.
        size: features.
    """

    def __init__(self, setting: Setting, hidden: Sequence[int], size: int) -> None:
        super().__init__()
        options = setting.encoders
        self.encode, width = _normalized_encoder(setting.observation_space, options)
        self.body = mlp(width, hidden, nn.ReLU)
        self.head = linear(hidden[-1] if hidden else width, size, 1.0)

    def forward(self, obs: Any) -> Tensor:
        """Float32 ``[B, size]``."""
        features: Tensor = self.head(self.body(self.encode(obs)))
        return features


def part_size(module: nn.Module) -> int:
    """Samples that go through a network at once on a CPU."""
    convolutions = any(isinstance(one, nn.Conv2d) for one in module.modules())
    return IMAGE_PART if convolutions else PART


def _has_numbers(space: spaces.Space[Any], options: EncoderOptions) -> bool:
    """Whether a leaf is normalised: plain numbers, or an image."""
    if numeric(space, options):
        return True
    if not isinstance(space, spaces.Box) or space.dtype == bool:
        return False
    return isinstance(leaf_encoder(space, options), NatureCNN | SmallCNN | ImpalaCNN)


def _normalized_encoder(space: spaces.Space[Any], options: EncoderOptions) -> tuple[Any, int]:
    """An encoder of inputs that are normalised: nothing is scaled once more."""
    encode, size = encoder(space, options, normalized=True)
    for module in encode.modules() if isinstance(encode, nn.Module) else ():
        if isinstance(module, NatureCNN | SmallCNN | ImpalaCNN):
            module.pixels.scale = 1.0
    return encode, size


def mean_square(x: Tensor) -> Tensor:
    """The mean of the squares of each row: ``[B]`` of ``[B, size]``."""
    return torch.square(x).mean(-1)
