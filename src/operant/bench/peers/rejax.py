"""rejax: PPO in JAX, environments and all, compiled into one function.

Only training is timed: the loop over `train_iteration` is compiled as rejax does it, without its
evaluations. On a CPU JAX uses all cores. Not matched, because rejax fixes them: gradients are
clipped element by element, Adam's epsilon is 1e-8, the value loss is clipped. These are a few
element-wise operations more or less.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from operant.bench.peers import Setting, not_usable


def check(setting: Setting) -> None:
    """Raise ValueError unless rejax is there and can do it."""
    _import()
    _device(setting)


def _import() -> Any:
    # JAX would take three quarters of a GPU's memory at once, and PyTorch needs some.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        import rejax
    except ImportError as error:
        raise not_usable("rejax", error) from None
    return rejax


def _jax() -> Any:
    import jax

    return jax


def _device(setting: Setting) -> Any:
    kind, _, index = setting.device.partition(":")
    try:
        return _jax().devices("cpu" if kind == "cpu" else "gpu")[int(index or 0)]
    except (RuntimeError, IndexError):
        raise ValueError(
            f"the peer rejax was to run on {setting.device}, but its JAX does not see it: "
            "pip install 'jax[cuda13]'"
        ) from None


class RejaxTrainer:
    """See `operant.bench.peers.Trainer`."""

    shares = flops_per_step = None

    def __init__(self, setting: Setting) -> None:
        from operant.toolchain.machine import usable_cores

        jax, self._device = _jax(), _device(setting)
        algorithm = _import().PPO.create(
            env=setting.env,
            num_envs=setting.num_envs,
            num_steps=setting.num_steps,
            num_epochs=setting.epochs,
            num_minibatches=setting.minibatches,
            learning_rate=setting.learning_rate,
            gamma=setting.gamma,
            gae_lambda=setting.gae_lambda,
            clip_eps=setting.clip,
            ent_coef=setting.entropy_coef,
            vf_coef=setting.value_coef,
            max_grad_norm=setting.max_grad_norm,
            agent_kwargs={
                "activation": setting.activation,
                "hidden_layer_sizes": setting.hidden,
            },
        )
        with jax.default_device(self._device):
            self._state = jax.jit(algorithm.init_state)(jax.random.PRNGKey(0))

        def iterate(state: Any, iterations: int) -> Any:
            step = algorithm.train_iteration
            return jax.lax.fori_loop(0, iterations, lambda _, state: step(state), state)

        self._iterate = jax.jit(iterate)
        threads = usable_cores() if setting.device == "cpu" else 1
        self.setting = replace(setting, engine="jit", threads=threads)

    def train(self, iterations: int) -> None:
        """Whole iterations; see `Trainer`. The first call compiles."""
        jax = _jax()
        with jax.default_device(self._device):
            self._state = jax.block_until_ready(self._iterate(self._state, iterations))

    def close(self) -> None:
        """Nothing to give back."""


def open_trainer(setting: Setting) -> RejaxTrainer:
    """rejax's PPO."""
    return RejaxTrainer(setting)
