"""Alias scopes of the kernels' vectorised loops; see `operant.compiler.runtime.alias_scopes`."""

from __future__ import annotations

from operant.compiler.runtime.alias_scopes import AliasScopes

# fmt: off
HEADS = AliasScopes(__name__, "heads", (
    "outputs", "log_std", "d_outputs", "d_log_std", "value", "d_value",
    "noise", "second_noise", "action",
    "old_action", "old_log_prob", "old_value", "advantage", "target",
    "largest", "sums", "log_total", "log_prob", "entropy", "own_entropy", "by_log_prob",
    "policy_loss", "value_loss", "kl", "clipped",
))
"""Rows of a tile, between the networks' outputs and their gradients: those of the outputs, of noise
and actions, of the samples' data, and of work memory."""
NOISE = AliasScopes(__name__, "noise", ("first", "second", "third", "fourth"))
"""Rows of a block of random numbers. The heads, which read them, name them otherwise."""
STORE = AliasScopes(__name__, "store", (
    "obs", "value", "log_prob", "reward", "terminated", "truncated",
    "env_obs", "env_reward", "env_terminated", "env_truncated",
    "tile_value", "tile_log_prob",
))
"""The rollout's memory, what environments answered, and what the policy said of a tile."""
# fmt: on
