"""The rules of an environment that comes as a compiled library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from operant.compiler.spec.layouts import action_layout, observation_layout, space_of
from operant.compiler.spec.rules import Memory, Rules, resolve_params
from operant.lang.env import Env

if TYPE_CHECKING:
    from operant.compiler.spec.native_abi import Library


class NativeState(NamedTuple):
    """What a library remembers of one environment."""

    bytes: np.ndarray
    """uint8 ``[state_bytes]``; what they mean is the library's affair."""


class NativeEnv(Env):
    """Base of the classes that `operant.vector.native.load` makes: one for each library."""

    native_library: ClassVar[Library]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """There is nothing to compile."""


@dataclass(frozen=True, kw_only=True)
class NativeRules(Rules):
    """See `Rules`. The functions are those of `library`."""

    library: Library

    @classmethod
    def read(cls, env: type[Any], overrides: Mapping[str, Any]) -> NativeRules:
        """See `Rules.of`."""
        params = resolve_params(env, overrides)
        library: Library = env.native_library
        size = library.spec.state_bytes
        return cls(
            env=env,
            params=params,
            float_params=(),
            memory={"bytes": Memory(np.dtype(np.uint8), (size,))},
            observation=observation_layout(space_of(env, "observation_space", params), env),
            action=action_layout(space_of(env, "action_space", params), env),
            mask_size=library.spec.mask_size,
            library=library,
        )


def is_native(env: object) -> bool:
    """Whether `env` is the class of a library."""
    return isinstance(env, type) and issubclass(env, NativeEnv)
