"""Batches of a space's samples as rows of memory, and rows as batches: the public functions."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from operant.spaces.rows import ObsLayout

_COMPILED_FROM = 64
"""Rows; for fewer, NumPy takes some microseconds more, and nothing has to be compiled."""
_MOST_KNOWN = 64
_known: dict[int, tuple[spaces.Space[Any], tuple[Any, ...], ObsLayout]] = {}
"""By id: a space, which is so kept, the items of what is nested in it, and its layout."""


def layout(space: spaces.Space[Any]) -> ObsLayout:
    """How samples of a space lie in memory: offset, dtype and shape of each leaf, bytes of a row.

    Spaces that were asked for lately are remembered, so a second call takes a microsecond or two.

    Args:
        space: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of such, nested.

    Raises:
        ValueError: a space, or one within it, whose samples are not arrays of a fixed size (Text,
            Sequence, Graph, OneOf); no leaf, an empty one, or two with one path.
    """
    if not isinstance(space, spaces.Space):
        raise ValueError(f"expected a space of gymnasium.spaces, got {space!r}")
    entry = _known.get(id(space))
    if entry is not None and all(tuple(node.items()) == items for node, items in entry[1]):
        return entry[2]
    found = ObsLayout.of(space)
    if len(_known) >= _MOST_KNOWN:
        for oldest in list(_known)[:1]:  # atomic: another thread may do the same
            _known.pop(oldest, None)
    nodes = tuple((node, tuple(node.items())) for node in _dicts(space))
    _known[id(space)] = (space, nodes, found)
    return found


def flatten(space: spaces.Space[Any] | ObsLayout, samples: Any, out: Any = None) -> Any:
    """Pack a batch of samples into rows of memory.

    Args:
        space: of the samples, or its `layout`.
        samples: a batch as Gymnasium's vector environments give it: of a Dict a dict of arrays
            ``[B, ...]``, of a Tuple a tuple of them, nested as the space is, else one array
            ``[B, *space.shape]``. Or a list of B single samples. Arrays of another dtype are
            converted if that keeps their values; floats are rounded (float64 to float32). Torch
            tensors must have the dtype of their leaf.
        out: rows to write to, ``[B, *layout(space).shape]``; for a Dict or Tuple aligned to 8
            bytes, each row contiguous.

    Returns:
        `out` if given. Of a Dict or Tuple rows ``[B, nbytes]`` uint8, the caller's, with zeros
        between the leaves; else an array of the space's own dtype, ``[B, *space.shape]``, which is
        `samples` itself where it fits. A tensor, on their device, if any sample is a tensor.

    Raises:
        ValueError: samples that are not of this structure, shape or dtype; an `out` that does not
            fit; a space that has no layout.
    """
    known = space if isinstance(space, ObsLayout) else layout(space)
    done = _flatten_at_once(known, samples, out)
    if done is not None:
        return done
    values = _values(known, samples)
    if "torch" in sys.modules and any(_is_tensor(value) for value in (*values, out)):
        return _flatten_tensors(known, values, out)
    return _flatten_arrays(known, values, out)


def unflatten(space: spaces.Space[Any] | ObsLayout, rows: Any) -> Any:
    """The samples in rows of memory, as views: nothing is copied.

    Args:
        space: of the samples, or its `layout`.
        rows: an array or a torch tensor ``[..., *layout(space).shape]``, as `flatten` gives it.

    Returns:
        Of a Dict a dict, of a Tuple a tuple, nested as the space is, of arrays or tensors
        ``[..., *leaf.shape]`` that share the memory of `rows`; else `rows` themselves.

    Raises:
        ValueError: rows of another shape or dtype, not contiguous, or not aligned to 8 bytes; a
            space that has no layout.
    """
    known = space if isinstance(space, ObsLayout) else layout(space)
    _check_rows("rows", known, rows)
    if not known.is_tree:
        return rows
    views = _views("rows", known, rows)
    if known.getter is not None:  # nothing nested
        return {leaf.keys[0]: view for leaf, view in zip(known.leaves, views, strict=True)}
    return _tree(known.space, iter(views))


def _dicts(space: Any) -> list[dict[Any, Any]]:
    """The dicts of a space that may change: of Dicts, nested ones too."""
    if isinstance(space, spaces.Dict):
        return [space.spaces, *(one for v in space.spaces.values() for one in _dicts(v))]
    if isinstance(space, spaces.Tuple):
        return [one for inner in space.spaces for one in _dicts(inner)]
    return []


def _flatten_at_once(known: ObsLayout, samples: Any, out: Any) -> np.ndarray | None:
    """The rows of a batch that is as the kernel takes it, which looks at shapes and dtypes itself;
    None for anything else. Without this, 1024 rows of six leaves take three times as long."""
    if known.getter is None or not isinstance(samples, dict) or len(samples) != len(known.leaves):
        return None
    try:
        arrays = known.getter(samples)
        if type(arrays[0]) is not np.ndarray or not arrays[0].ndim:
            return None
        rows = np.empty((len(arrays[0]), known.nbytes), np.uint8) if out is None else out
        if type(rows) is np.ndarray and len(rows) >= _COMPILED_FROM:
            return rows if known.packer(rows, *arrays) else None
    except (KeyError, TypeError):  # of the getter; of the kernel
        pass
    return None


def _values(known: ObsLayout, samples: Any) -> list[Any]:
    """What is given for each leaf, ``[B, ...]``; its shape is not looked at."""
    if not known.is_tree:
        if isinstance(samples, list) and samples and _is_tensor(samples[0]):
            return [_stacked(samples)]
        return [samples]
    several = isinstance(samples, list) or (
        isinstance(samples, tuple) and isinstance(known.space, spaces.Dict)
    )
    found: list[Any] = []
    if not several:
        _collect(known.space, samples, "", found)
        return found
    each: list[list[Any]] = []
    for sample in samples:
        each.append([])
        _collect(known.space, sample, "", each[-1])
    if not each:
        return [np.empty((0, *leaf.shape), leaf.dtype) for leaf in known.leaves]
    try:
        return [_stacked(of_leaf) for of_leaf in zip(*each, strict=True)]
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"the samples differ in shape: {error}") from None


def _collect(space: Any, value: Any, path: str, found: list[Any]) -> None:
    where = f"{path[1:]!r} of the samples" if path else "samples"
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping):
            raise ValueError(f"{where} must be a dict of {list(space)}, got {type(value).__name__}")
        if value.keys() != space.spaces.keys():
            raise ValueError(f"{where} must have the keys {list(space)}, got {list(value)}")
        for key, inner in space.spaces.items():
            _collect(inner, value[key], f"{path}/{key}", found)
    elif isinstance(space, spaces.Tuple):
        count = len(space.spaces)
        if not isinstance(value, tuple | list) or len(value) != count:
            got = len(value) if isinstance(value, tuple | list) else type(value).__name__
            raise ValueError(
                f"{where} must be a tuple of {count} (a list is one of single samples), got {got}"
            )
        for index, inner in enumerate(space.spaces):
            _collect(inner, value[index], f"{path}/{index}", found)
    else:
        found.append(value)


def _stacked(samples: Any) -> Any:
    if _is_tensor(samples[0]):
        return sys.modules["torch"].stack(list(samples))
    return np.array(samples)


def _flatten_arrays(known: ObsLayout, values: list[Any], out: Any) -> np.ndarray:
    arrays = [_array(leaf, value) for leaf, value in zip(known.leaves, values, strict=True)]
    count = _count(known, arrays)
    if out is not None:
        _check_rows("out", known, out, count)
    if not known.is_tree:
        if out is None:
            return arrays[0]
        out[...] = arrays[0]
        return np.asarray(out)
    rows = np.empty((count, *known.shape), known.dtype) if out is None else out
    views = _views("out", known, rows)
    if count >= _COMPILED_FROM and rows.flags.c_contiguous:
        given = [a.view(np.int16) if a.dtype == np.float16 else a for a in arrays]
        if known.packer(rows, *given):
            return rows
    for view, array in zip(views, arrays, strict=True):
        view[...] = array
    for offset, size in known.gaps:
        rows[:, offset : offset + size] = 0
    return rows


def _array(leaf: Any, value: Any) -> np.ndarray:
    """A contiguous array of the leaf's dtype with the same values."""
    if type(value) is np.ndarray and value.dtype == leaf.dtype and value.flags.carray:
        return value
    try:
        given = np.asarray(value)
        with np.errstate(all="ignore"):
            found = np.require(given, leaf.dtype, ["C", "A", "W"])
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{_named(leaf)} must be an array of {leaf.dtype}: {error}") from None
    kept = given.dtype == leaf.dtype or given.dtype.kind + leaf.dtype.kind == "ff"
    if not kept and not np.array_equal(found, given):
        raise ValueError(
            f"{_named(leaf)} must be {leaf.dtype}, got {given.dtype} with values that it has not"
        )
    return found


def _count(known: ObsLayout, arrays: list[Any]) -> int:
    """How many samples there are.

    Raises:
        ValueError: a wrong shape, or leaves that differ in it.
    """
    for leaf, array in zip(known.leaves, arrays, strict=True):
        if array.ndim != len(leaf.shape) + 1 or tuple(array.shape[1:]) != leaf.shape:
            wanted = ", ".join(map(str, ("B", *leaf.shape)))
            raise ValueError(
                f"{_named(leaf)} must have shape [{wanted}], got {list(array.shape)}; "
                "one sample alone goes in a list"
            )
    counts = {leaf.path: len(array) for leaf, array in zip(known.leaves, arrays, strict=True)}
    if len(set(counts.values())) > 1:
        raise ValueError(f"leaves have different numbers of samples: {counts}")
    return len(arrays[0])


def _flatten_tensors(known: ObsLayout, values: list[Any], out: Any) -> Any:
    import torch

    device = next(value.device for value in (out, *values) if _is_tensor(value))
    dtypes = known._torch_dtypes
    tensors = []
    for leaf, value in zip(known.leaves, values, strict=True):
        if not _is_tensor(value):
            value = torch.from_numpy(_array(leaf, value)).to(device)
        if value.dtype != dtypes[leaf.path] or value.device != device:
            raise ValueError(
                f"{_named(leaf)} must be a tensor of {dtypes[leaf.path]} on {device}, got "
                f"{value.dtype} on {value.device}; convert it with .to()"
            )
        tensors.append(value.detach())
    if device.type == "cpu":
        target = out.numpy() if _is_tensor(out) else out
        packed = _flatten_arrays(known, [tensor.numpy() for tensor in tensors], target)
        return torch.from_numpy(packed) if out is None else out
    count = _count(known, tensors)
    if out is not None:
        _check_rows("out", known, out, count)
    if not known.is_tree:
        return tensors[0].contiguous() if out is None else out.copy_(tensors[0])
    rows = torch.empty((count, known.nbytes), dtype=torch.uint8, device=device)
    rows = rows if out is None else out
    for view, tensor in zip(_views("out", known, rows), tensors, strict=True):
        view.copy_(tensor)
    for offset, size in known.gaps:
        rows[:, offset : offset + size] = 0
    return rows


def _check_rows(name: str, known: ObsLayout, rows: Any, count: int | None = None) -> None:
    tensor = _is_tensor(rows)
    if not tensor and not isinstance(rows, np.ndarray):
        raise ValueError(f"{name} must be an array or a tensor, got {type(rows).__name__}")
    dtype: Any = known.dtype
    if tensor:
        dtype = sys.modules["torch"].uint8 if known.is_tree else known._torch_dtypes[""]
    shape = tuple(rows.shape)
    lead = shape[: len(shape) - len(known.shape)]
    if count is not None:
        lead = (count,)
    if rows.dtype != dtype or (*lead, *known.shape) != shape:
        wanted = ", ".join(map(str, ("..." if count is None else count, *known.shape)))
        raise ValueError(f"{name} must be {dtype} [{wanted}], got {rows.dtype} {list(shape)}")
    if name == "out" and not tensor and not rows.flags.writeable:
        raise ValueError("out is read-only: give memory that can be written to, or none")


def _views(name: str, known: ObsLayout, rows: Any) -> list[Any]:
    try:
        views = list(known.views(rows).values())
    except (ValueError, RuntimeError):  # NumPy's, torch's: other strides than the dtypes need
        views = []
    if not views or (isinstance(rows, np.ndarray) and not all(v.flags.aligned for v in views)):
        raise ValueError(
            f"{name} must have contiguous rows that begin at multiples of 8 bytes; copy them first"
        )
    return views


def _tree(space: Any, views: Any) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _tree(inner, views) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_tree(inner, views) for inner in space.spaces)
    return next(views)


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _named(leaf: Any) -> str:
    return f"{leaf.path!r} of the samples" if leaf.path else "samples"
