"""`PublishedWeights`: a policy under version numbers, for another thread to act with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy

import torch
from torch import Tensor, nn


class PublishedWeights:
    """Copies of a policy's weights and statistics. Version v is what v updates have made of it.

    Published by one thread, taken by another; the versions are counted by `Collector`, which also
    says when one may be forgotten.

    Args:
        policy: whose; it is trained meanwhile.
    """

    def __init__(self, policy: nn.Module) -> None:
        self._policy = policy
        self._versions: dict[int, _Copy] = {}
        self.newest = -1

    @torch.no_grad()
    def publish(self, version: int, oldest: int) -> None:
        """Copy what the policy is now; versions before `oldest` are forgotten."""
        self._versions[version] = _Copy([x.detach().clone() for x in tensors_of(self._policy)])
        self.newest = version  # an assignment: seen by the other thread after what it names
        for old in [v for v in self._versions if v < oldest]:
            del self._versions[old]

    @torch.no_grad()
    def put_into(self, policy: nn.Module, version: int) -> None:
        """Give a copy of the policy these weights."""
        self._versions[version].put_into(policy)


class _Copy:
    """Tensors that never change; on a GPU also when they are there."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self._tensors = tensors
        self._device = tensors[0].device
        self._there: torch.cuda.Event | None = None
        if self._device.type == "cuda":
            self._there = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._there.record(torch.cuda.current_stream(self._device))

    def put_into(self, policy: nn.Module) -> None:
        if self._there is not None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(self._there)
            for tensor in self._tensors:  # not given to others before this stream has read them
                tensor.record_stream(stream)
        for own, tensor in zip(tensors_of(policy), self._tensors, strict=True):
            own.copy_(tensor)


def tensors_of(policy: nn.Module) -> list[Tensor]:
    """What a policy answers with: parameters and buffers, those too that no checkpoint has."""
    return [*policy.parameters(), *policy.buffers()]


def acting_copy(policy: nn.Module) -> nn.Module:
    """A policy to act with while `policy` is trained.

    Raises:
        ValueError: it cannot be copied.
    """
    try:
        return deepcopy(policy)
    except Exception as error:  # whatever a class of the user's raises
        raise ValueError(
            f"run.mode=async acts with a copy of the policy, and {type(policy).__name__} cannot be "
            f"copied: {error}; use run.mode=sync, or give it a __deepcopy__"
        ) from error


class OwnStream:
    """What a thread launches on a GPU within `used` runs beside what others do; on a CPU nothing.
    One stream, however often: PyTorch keeps freed memory of each apart."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @contextmanager
    def used(self) -> Iterator[None]:
        """Of this thread."""
        if self._stream is None:
            yield
            return
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            yield
