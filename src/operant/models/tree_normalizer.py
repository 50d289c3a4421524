"""`TreeNormalizer`: running statistics of the numbers among the leaves of an observation."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from operant.buffers.normalizer import RunningNormalizer
from operant.models.encoders import EncoderOptions, numeric
from operant.spaces.rows import ObsLayout


class TreeNormalizer(nn.Module):
    """A `RunningNormalizer` for each leaf of plain numbers; images, codes, choices and bits pass
    unchanged.

    Args:
        layout: of a Dict or Tuple space.
        options: how its leaves are encoded, which says what is an image.

    Raises:
        ValueError: there is nothing to normalise.
    """

    def __init__(self, layout: ObsLayout, options: EncoderOptions | None = None) -> None:
        super().__init__()
        self.layout = layout
        leaves = [leaf for leaf in layout.leaves if numeric(leaf.space, options)]
        if not leaves:
            raise ValueError(f"only numbers of a Box can be normalised; {layout.space} has none")
        self.paths = tuple(leaf.path for leaf in leaves)
        self.normalizers = nn.ModuleList(RunningNormalizer(leaf.shape) for leaf in leaves)

    def forward(self, obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Leaves ``[B, ...]`` by path, those with numbers as float32, normalised and clipped; a new
        dict."""
        found = dict(obs)
        for path, normalizer in zip(self.paths, self.normalizers, strict=True):
            found[path] = normalizer(obs[path].float())
        return found

    def update(self, rows: Tensor) -> None:
        """Take in observations as a rollout has them: rows of the layout's memory, uint8
        ``[..., nbytes]``."""
        views = self.layout.views(rows)
        for path, normalizer in zip(self.paths, self.normalizers, strict=True):
            assert isinstance(normalizer, RunningNormalizer)
            normalizer.update(views[path])
