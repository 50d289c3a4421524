"""Observations as rows of memory: a tree of typed leaves side by side, or the one array of a Box.

A batch hands out the observations of its environments as one array ``[num_envs, *shape]`` of one
dtype, which a rollout stores and a minibatch gathers as it is. Of a Box, Discrete or MultiDiscrete
space that array holds the observations themselves. Of a Dict or Tuple space it holds bytes: each
environment has a row in which every leaf begins at a multiple of 8 bytes, so that `split` gives
typed views of the same memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np
from gymnasium import spaces

from operant.spaces.pack_kernel import Packer, gaps, pack_kernel

_ALIGNMENT = 8
"""Bytes; the largest item of a leaf, an int64 or a float64."""
_LEAVES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
_INSTEAD = {
    spaces.Text: "write a text as a MultiDiscrete of character codes, one a place",
    spaces.Sequence: "write a sequence as a Box for its greatest length, and a MultiBinary beside "
    "it that says which items count",
    spaces.Graph: "write a graph as Boxes for the most nodes and edges, and a MultiBinary beside "
    "each that says which count",
    spaces.OneOf: "write a choice as a Dict of all its spaces, and a Discrete that says which "
    "counts",
}

_LEFT_OUT = (
    "leave it out, as the wrapper gymnasium.wrappers:FilterObservation(filter_keys=[...]) does"
)
"""For spaces of other packages, such as the missions of MiniGrid."""


@dataclass(frozen=True)
class Leaf:
    """One array of an observation."""

    path: str
    """Where it is in the tree, such as ``"camera"`` or ``"arm/0"``; ``""`` where it is alone."""
    keys: tuple[Any, ...]
    """The same as keys of dicts and indices of tuples, the outermost first."""
    space: spaces.Space[Any]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int = 0
    """Bytes from the beginning of the row."""

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in a row, without what aligns the next."""
        return math.prod(self.shape) * self.dtype.itemsize

    def of(self, obs: Any) -> Any:
        """This leaf of an observation, or of many, as the environment gives them."""
        for key in self.keys:
            obs = obs[key]
        return obs


@dataclass(frozen=True)
class ObsLayout:
    """How the observations of a space lie in memory."""

    space: spaces.Space[Any]
    leaves: tuple[Leaf, ...]
    shape: tuple[int, ...]
    """Of one observation in memory: the space's own, or ``(bytes of a row,)`` of a tree."""
    dtype: np.dtype[Any]
    """Of the memory: the space's own, or uint8 of a tree."""

    @classmethod
    def of(cls, space: spaces.Space[Any]) -> ObsLayout:
        """The layout of a space.

        Raises:
            ValueError: a space, or one within it, whose elements are not arrays of a fixed size.
        """
        if not isinstance(space, spaces.Dict | spaces.Tuple):
            leaf = _leaf((), space)
            return cls(space, (leaf,), leaf.shape, leaf.dtype)
        leaves: list[Leaf] = []
        end = 0
        for keys, inner in _walk(space, ()):
            leaf = _leaf(keys, inner, end)
            if leaf.nbytes == 0:
                raise ValueError(f"the leaf {leaf.path!r} of the space is empty; leave it out")
            same = [other.keys for other in leaves if other.path == leaf.path]
            if same:
                raise ValueError(
                    f"the path {leaf.path!r} is there twice in the space, as {same[0]} and as "
                    f"{keys}; rename one of these keys"
                )
            leaves.append(leaf)
            end += -(-leaf.nbytes // _ALIGNMENT) * _ALIGNMENT
        if not leaves:
            raise ValueError(f"the space {space} has no leaf: there is nothing to see or to do")
        return cls(space, tuple(leaves), (end,), np.dtype(np.uint8))

    @cached_property
    def is_tree(self) -> bool:
        """Whether the memory holds rows of bytes."""
        return isinstance(self.space, spaces.Dict | spaces.Tuple)

    @property
    def nbytes(self) -> int:
        """Of one observation in memory."""
        return math.prod(self.shape) * self.dtype.itemsize

    def memory(self, *lead: int) -> np.ndarray:
        """Zeroed memory for ``[*lead]`` observations; the caller's."""
        return np.zeros((*lead, *self.shape), self.dtype)

    def split(self, rows: Any) -> Any:
        """What a policy is given of observations in memory: `rows` themselves, or of a tree a dict
        of its leaves by path. Views.

        Args:
            rows: an array or a tensor ``[..., *shape]``; of a tree contiguous in the last
                dimension, and aligned, as memory made by `memory` and rows gathered from it are.
        """
        return self.views(rows) if self.is_tree else rows

    def views(self, rows: Any) -> dict[str, Any]:
        """Every leaf by its path, ``[..., *leaf.shape]``: views of `rows`, see `split`."""
        if not self.is_tree:
            return {"": rows}
        if isinstance(rows, np.ndarray):
            records = rows.view(self._record)[..., 0]
            return {leaf.path: records[leaf.path] for leaf in self.leaves}
        lead = tuple(rows.shape[:-1])
        found = {}
        for leaf in self.leaves:
            part = rows[..., leaf.offset : leaf.offset + leaf.nbytes]
            found[leaf.path] = part.view(self._torch_dtypes[leaf.path]).reshape(
                (*lead, *leaf.shape)
            )
        return found

    def pack(self, obs: Any, out: np.ndarray) -> np.ndarray:
        """Write observations, as the environment gives them, into memory ``[..., *shape]``; the
        memory."""
        if not self.is_tree:
            out[...] = obs
            return out
        views = self.views(out)
        for leaf in self.leaves:
            views[leaf.path][...] = leaf.of(obs)
        return out

    def rows(self, obs: Any) -> tuple[np.ndarray, bool]:
        """Memory ``[B, *shape]`` that holds `obs`, and whether that was one observation alone.

        Args:
            obs: one observation or a batch, as the environment gives them (of a tree a dict or a
                tuple), or ``[B, *shape]`` in memory already.

        Raises:
            ValueError: a wrong shape, or a leaf is missing.
        """
        if self.is_tree and isinstance(obs, Mapping | tuple | list):
            return self._packed(obs)
        try:
            batch = np.asarray(obs, self.dtype)
        except (TypeError, ValueError):
            got = f"a {type(obs).__name__}"
            pair = isinstance(obs, tuple) and len(obs) == 2 and isinstance(obs[1], dict)
            got += " of an observation and an info: write obs, info = env.reset()" if pair else ""
            raise ValueError(f"observations must be numbers of {self.space}, got {got}") from None
        single = batch.shape == self.shape
        if single:
            batch = batch[None]
        if batch.shape[1:] != self.shape or batch.ndim != len(self.shape) + 1:
            raise ValueError(
                f"observations must have shape {self.shape}, or [B, ...] of it, got {batch.shape}"
            )
        return np.ascontiguousarray(batch), single

    def _packed(self, obs: Any) -> tuple[np.ndarray, bool]:
        try:
            arrays = [np.asarray(leaf.of(obs), leaf.dtype) for leaf in self.leaves]
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"observations must be of {self.space}: {error!r}") from None
        pairs = list(zip(self.leaves, arrays, strict=True))
        single = all(array.shape == leaf.shape for leaf, array in pairs)
        counts = {() if single else array.shape[:1] for array in arrays}
        for leaf, array in pairs:
            if array.shape != (*(() if single else array.shape[:1]), *leaf.shape):
                raise ValueError(
                    f"{leaf.path!r} of the observations must have shape {leaf.shape}, or [B, ...] "
                    f"of it, got {array.shape}"
                )
        if len(counts) > 1:
            raise ValueError(f"leaves have different numbers of observations: {sorted(counts)}")
        out = self.memory(*counts.pop())
        self.pack(obs, out)
        return (out[None], True) if single else (out, False)

    def example(self, count: int) -> np.ndarray:
        """`count` observations that the space has, as far as integers go; memory."""
        out = self.memory(count)
        for leaf, view in zip(self.leaves, self.views(out).values(), strict=True):
            view[...] = getattr(leaf.space, "start", 0)  # of Discrete and MultiDiscrete
        return out

    def __getstate__(self) -> dict[str, Any]:
        # What was made of it stays here: a process that is sent a layout makes its own.
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @cached_property
    def packer(self) -> Packer:
        """The compiled function that packs a batch of a tree; it is made when asked for."""
        return pack_kernel([(one.offset, one.dtype, one.shape) for one in self.leaves], self.nbytes)

    @cached_property
    def gaps(self) -> list[tuple[int, int]]:
        """Offset and bytes of what no leaf takes in a row of a tree."""
        return gaps([(one.offset, one.nbytes) for one in self.leaves], self.nbytes)

    @cached_property
    def getter(self) -> Callable[[Any], tuple[Any, ...]] | None:
        """Of a Dict of two leaves or more, nothing nested: what takes all of them from a dict."""
        flat = isinstance(self.space, spaces.Dict) and all(len(a.keys) == 1 for a in self.leaves)
        return (
            itemgetter(*(a.keys[0] for a in self.leaves)) if flat and len(self.leaves) > 1 else None
        )

    @cached_property
    def _record(self) -> np.dtype[Any]:
        """A row as one item of NumPy's, whose fields are the leaves."""
        return np.dtype(
            {
                "names": [leaf.path for leaf in self.leaves],
                "formats": [(leaf.dtype, leaf.shape) for leaf in self.leaves],
                "offsets": [leaf.offset for leaf in self.leaves],
                "itemsize": self.nbytes,
            },
            align=True,
        )

    @cached_property
    def _torch_dtypes(self) -> dict[str, Any]:
        import torch

        return {leaf.path: torch.from_numpy(np.empty(0, leaf.dtype)).dtype for leaf in self.leaves}


def _walk(
    space: spaces.Space[Any], keys: tuple[Any, ...]
) -> Iterator[tuple[tuple[Any, ...], spaces.Space[Any]]]:
    """The leaves of a space, with their keys, in its own order."""
    if isinstance(space, spaces.Dict):
        for key, inner in space.spaces.items():
            yield from _walk(inner, (*keys, key))
    elif isinstance(space, spaces.Tuple):
        for index, inner in enumerate(space.spaces):
            yield from _walk(inner, (*keys, index))
    else:
        yield keys, space


def _leaf(keys: tuple[Any, ...], space: spaces.Space[Any], offset: int = 0) -> Leaf:
    path = "/".join(str(key) for key in keys)
    where = f" at {path!r}" if path else ""
    if not isinstance(space, _LEAVES) or space.shape is None or space.dtype is None:
        advice = next(
            (text for kind, text in _INSTEAD.items() if isinstance(space, kind)),
            _LEFT_OUT if path else "",
        )
        raise ValueError(
            f"samples of {space}{where} have no fixed size in memory; known are Box, "
            "Discrete, MultiDiscrete and MultiBinary, and Dict and Tuple of them"
            f"{advice and '; '}{advice}"
        )
    dtype = np.dtype(space.dtype)
    if not dtype.isnative or dtype.itemsize > _ALIGNMENT or dtype.kind not in "biuf":
        raise ValueError(
            f"samples of {space}{where} have the dtype {dtype!r}; known are bool, integers "
            "and floats of 8 bytes at most in this machine's byte order: take float64, say"
        )
    return Leaf(path, keys, space, dtype, space.shape, offset)
