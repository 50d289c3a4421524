"""The arrays that a vector environment hands out: NumPy's in main memory, or a device's tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from operant.spaces.rows import ObsLayout

if TYPE_CHECKING:
    import torch


class Arrays(Protocol):
    """Makes and converts arrays of one kind; operators and indexing are the same for both."""

    on_device: bool
    """Whether they are tensors."""

    @property
    def device(self) -> torch.device:
        """Where they are."""

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """New memory; `dtype` is NumPy's."""

    def rows(self, layout: ObsLayout, count: int) -> Any:
        """New memory for observations, zeroed."""

    def taken(self, obs: Any, layout: ObsLayout) -> Any:
        """Observations as they came, with arrays of this kind in them."""

    def array(self, values: Any, dtype: Any) -> Any:
        """Values as an array of this kind; themselves where they are one."""

    def handed(self, values: Any) -> Any:
        """Values of this kind, nested or not, as the vector environment takes them."""

    def is_own(self, values: Any) -> bool:
        """Whether values are an array of this kind already."""

    def stepping(self) -> AbstractContextManager[Any]:
        """In which the vector environment is called: what it makes, it may change at any time."""

    def where(self, chosen: Any, values: Any) -> Any:
        """`values` where `chosen`, else 0; a new array."""

    def copy(self, values: Any) -> Any:
        """The same in new memory."""

    def read(self, *truths: Any) -> tuple[bool, ...]:
        """Truth values of arrays without dimensions; waits for the device once."""


class HostArrays:
    """NumPy's."""

    on_device = False

    @property
    def device(self) -> torch.device:
        """See `Arrays`."""
        import torch

        return torch.device("cpu")

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """See `Arrays`."""
        return np.zeros(shape, dtype)

    def rows(self, layout: ObsLayout, count: int) -> np.ndarray:
        """See `Arrays`."""
        return layout.memory(count)

    def taken(self, obs: Any, layout: ObsLayout) -> Any:
        """See `Arrays`."""
        return obs

    def array(self, values: Any, dtype: Any) -> np.ndarray:
        """See `Arrays`."""
        return np.asarray(values, dtype)

    def handed(self, values: Any) -> Any:
        """See `Arrays`."""
        return values

    def is_own(self, values: Any) -> bool:
        """See `Arrays`."""
        return isinstance(values, np.ndarray)

    def stepping(self) -> AbstractContextManager[Any]:
        """See `Arrays`."""
        return nullcontext()

    def where(self, chosen: np.ndarray, values: np.ndarray) -> np.ndarray:
        """See `Arrays`."""
        return np.where(chosen, values, 0)

    def copy(self, values: np.ndarray) -> np.ndarray:
        """See `Arrays`."""
        return values.copy()

    def read(self, *truths: Any) -> tuple[bool, ...]:
        """See `Arrays`."""
        return tuple(map(bool, truths))


class DeviceArrays:
    """PyTorch's on one device.

    Args:
        example: an array that the vector environment handed out: a tensor, or something with
            ``__dlpack__``, to whose library actions are handed back in the same way.
    """

    on_device = True

    def __init__(self, example: Any) -> None:
        import torch

        self._torch = torch
        tensor = self._tensor(example)
        self._device = tensor.device
        self._library = None
        if not isinstance(example, torch.Tensor):
            self._library = example.__array_namespace__()

    @property
    def device(self) -> torch.device:
        """See `Arrays`."""
        return self._device

    def _tensor(self, values: Any) -> torch.Tensor:
        if isinstance(values, self._torch.Tensor):
            return values.detach()
        if hasattr(values, "__dlpack__"):
            return self._torch.utils.dlpack.from_dlpack(values)
        return self._torch.as_tensor(values)

    def _dtype(self, dtype: Any) -> torch.dtype:
        return self._torch.from_numpy(np.empty(0, dtype)).dtype

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> torch.Tensor:
        """See `Arrays`."""
        return self._torch.zeros(shape, dtype=self._dtype(dtype), device=self._device)

    def rows(self, layout: ObsLayout, count: int) -> torch.Tensor:
        """See `Arrays`."""
        return self.zeros((count, *layout.shape), layout.dtype)

    def taken(self, obs: Any, layout: ObsLayout) -> Any:
        """See `Arrays`."""
        if isinstance(obs, dict):
            return {key: self.taken(value, layout) for key, value in obs.items()}
        if isinstance(obs, tuple):
            return tuple(self.taken(value, layout) for value in obs)
        tensor = self._tensor(obs)
        return tensor if layout.is_tree else tensor.to(self._device, self._dtype(layout.dtype))

    def array(self, values: Any, dtype: Any) -> torch.Tensor:
        """See `Arrays`."""
        return self._tensor(values).to(self._device, self._dtype(dtype))

    def handed(self, values: Any) -> Any:
        """See `Arrays`."""
        if isinstance(values, dict):
            return {key: self.handed(value) for key, value in values.items()}
        if isinstance(values, tuple):
            return tuple(self.handed(value) for value in values)
        if values.is_inference():
            values = values.clone()
        return values if self._library is None else self._library.from_dlpack(values)

    def is_own(self, values: Any) -> bool:
        """See `Arrays`."""
        return isinstance(values, self._torch.Tensor)

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """See `Arrays`: tensors made in inference mode could not be changed outside of it."""
        with self._torch.inference_mode(False), self._torch.no_grad():
            yield

    def where(self, chosen: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """See `Arrays`."""
        return self._torch.where(chosen, values, 0)

    def copy(self, values: torch.Tensor) -> torch.Tensor:
        """See `Arrays`."""
        return values.clone()

    def read(self, *truths: Any) -> tuple[bool, ...]:
        """See `Arrays`."""
        return tuple(self._torch.stack(truths).tolist())


def arrays_of(obs: Any) -> Arrays:
    """The kind of arrays that observations are, nested or not."""
    while isinstance(obs, dict | tuple):
        obs = next(iter(obs.values())) if isinstance(obs, dict) else obs[0]
    foreign = not isinstance(obs, np.ndarray) and hasattr(obs, "__dlpack__")
    return DeviceArrays(obs) if foreign else HostArrays()


def on_host(values: Any) -> np.ndarray:
    """A tensor on any device as an array; an array as it is."""
    array: np.ndarray = values.cpu().numpy() if hasattr(values, "cpu") else values
    return array
