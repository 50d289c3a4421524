"""One of the two things that a policy answers, where it can give that alone."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


def head_of(policy: nn.Module, obs: Any) -> Tensor:
    """The actor's output ``[B, H]``; without the critic's work if the policy has a method
    ``head``."""
    only_head = _method(policy, "head")
    result: Tensor = policy(obs)[0] if only_head is None else only_head(obs)
    return result


def value_of(policy: nn.Module, obs: Any) -> Tensor:
    """The critic's output ``[B]``; without the actor's work if the policy has a method
    ``value``."""
    only_value = _method(policy, "value")
    result: Tensor = policy(obs)[1] if only_value is None else only_value(obs)
    return result


def _method(policy: nn.Module, name: str) -> Any:
    """A method of a policy; None if it has none, or a layer of this name."""
    found = getattr(policy, name, None)
    return None if isinstance(found, nn.Module | Tensor) else found
