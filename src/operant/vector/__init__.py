"""Running many environments: the vector API and its backends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operant.vector.async_pool import AsyncEnvPool

__all__ = ["AsyncEnvPool"]


def __getattr__(name: str) -> Any:
    if name == "AsyncEnvPool":
        from operant.vector.async_pool import AsyncEnvPool

        return AsyncEnvPool
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
