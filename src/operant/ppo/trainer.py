"""`PPO`: the loop. Parts: collect, advantages and update are an engine's; the loss is in `loss`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple, Never

import numpy as np
import torch
from torch import nn

from operant.lang.env import Env
from operant.models.distributions import Distribution, distribution_for
from operant.ppo.adam import Adam
from operant.ppo.advice import refuse_arguments
from operant.ppo.agent import Agent
from operant.ppo.batch import check_order, config_for, env_class, fix_parameters, make_env
from operant.ppo.callbacks import Callback, only_watches, overrides
from operant.ppo.config import Config, dotted_name
from operant.ppo.engines.choose import choose_device, choose_engine
from operant.ppo.guard import NonFiniteError
from operant.ppo.job import Episodes, Iteration, Job
from operant.ppo.policy import add_return_normalizer, configured_policy
from operant.ppo.progress import shown
from operant.ppo.recent import Recent
from operant.ppo.schedule import scheduled
from operant.ppo.threads import one_thread_an_operation
from operant.vector.batch import Batch
from operant.vector.copies import env_key

WINDOW = 100
"""Episodes that ``mean_return`` and ``mean_length`` look back on."""

METRICS = (
    "iteration",
    "steps",
    "seconds",
    "sps",
    "episodes",
    "mean_return",
    "return_min",
    "return_max",
    "return_std",
    "mean_length",
    "policy_loss",
    "value_loss",
    "entropy",
    "kl",
    "clip_fraction",
    "explained_variance",
    "grad_norm",
    "epochs",
    "learning_rate",
    "clip",
    "collect_seconds",
    "advantages_seconds",
    "update_seconds",
)
"""Figures of an iteration, in the order of the files."""


class Timings(NamedTuple):
    """Seconds that the parts of an iteration took."""

    collect: float
    advantages: float
    update: float


class PPO:
    """Proximal policy optimisation on a batch of environments.

    >>> ppo = PPO("CartPole-v1", num_envs=8, num_steps=16, seed=1)
    >>> ppo.learn(total_steps=256).steps
    256

    Args:
        env: an id, an environment class, or a batch made by `operant.make` or of another kind, see
            `operant.vector.batch` (in SAME_STEP mode; it brings its own number of environments).
        config: the whole configuration; by default the shipped one of the environment, if any.
        policy: a network of your own, see `operant.models.actor_critic`; by default
            `operant.models.policy_for` the spaces.
        options: single values by name, with or without their section: ``learning_rate=1e-3``.

    The seed also seeds PyTorch's global generator, which initialises the network. `pickle` and
    `copy` make a trainer that goes on as this one does, with a batch of its own.

    Raises:
        ValueError, TypeError: an unknown option, a bad value, or parts that do not fit together.
    """

    def __init__(
        self,
        env: str | type[Env] | Batch,
        config: Config | None = None,
        *,
        policy: nn.Module | None = None,
        **options: Any,
    ) -> None:
        check_order(env, config, policy)
        if policy is not None and any(dotted_name(key).startswith("policy.") for key in options):
            raise ValueError("options of [policy] are for the built-in networks, not for policy=")
        self.config = config = config_for(env, config, options)
        self.device = choose_device(config.run.device, env)
        self.env = make_env(config, env, self.device)
        fix_parameters(self.env)
        torch.manual_seed(config.run.seed)
        if policy is None:
            spaces = (self.env.single_observation_space, self.env.single_action_space)
            policy = configured_policy(config, *spaces)
        else:
            add_return_normalizer(policy, config)
        self.policy = policy.to(self.device)
        self.distribution: Distribution = getattr(policy, "distribution", None) or distribution_for(
            self.env.single_action_space, config.policy.squash
        )
        self._check_policy()
        self.optimizer = Adam(policy.parameters(), config.ppo.adam_eps)
        job = Job(
            config,
            self.env,
            policy,
            self.distribution,
            self.optimizer,
            self.device,
            getattr(policy, "obs_normalizer", None),
            getattr(policy, "return_normalizer", None) if config.ppo.normalize_reward else None,
        )
        chosen = choose_engine(job)
        self.engine, self.engine_reason = chosen.engine, chosen.reason
        self.env.reset(seed=config.run.seed)
        self.steps = 0
        """Environment steps taken and trained on."""
        self.iteration = 0
        self.episodes = 0
        self.seconds = 0.0
        """Time spent in `learn`, over all sessions of a run, callbacks included."""
        self._since = 0.0
        self.recent = Recent(WINDOW)
        """Return and length of the last episodes."""
        self._stopping = False
        self.timings = Timings(0.0, 0.0, 0.0)
        self.random = torch.Generator().manual_seed(config.run.seed)
        """What `predict` samples with."""

    # The loop -------------------------------------------------------------------------------
    def learn(
        self,
        total_steps: int | None = None,
        callbacks: Iterable[Callback] | Callback = (),
        progress: bool | None = None,
        **unknown: Never,
    ) -> PPO:
        """Train until `steps` has reached `total_steps`; the trainer itself.

        Args:
            total_steps: steps in all, those of earlier calls included; by default
                ``config.run.total_steps``. Rounded up to whole rollouts.
            callbacks: called in this order; see `Callback`.
            progress: True shows steps, speed, return and time left, on standard error: a bar, or
                lines where that is no terminal. False shows nothing. None: in a terminal and in a
                notebook.

        Raises:
            NonFiniteError: NaN or infinity was met. The policy is as it was before the iteration.
        """
        refuse_arguments(unknown)
        total = self.config.run.total_steps if total_steps is None else int(total_steps)
        if total < 1:
            raise ValueError(f"total_steps must be at least 1, got {total}")
        callbacks = [callbacks] if isinstance(callbacks, Callback) else callbacks
        self._since = time.perf_counter()
        try:
            with one_thread_an_operation(), shown(self, total, callbacks, progress) as called:
                while self.steps < total and not self._stopping:
                    self._iterate(total, called)
        finally:
            self.engine.retract(broken_off=True)
            self._stopping = False
            self.seconds += time.perf_counter() - self._since
        return self

    def stop(self) -> None:
        """Make `learn` return after the iteration that is running, or at once if none is."""
        self._stopping = True

    def _iterate(self, total: int, callbacks: list[Callback]) -> None:
        guarded = self.config.run.nan_guard
        if guarded:
            self.engine.keep()
        try:
            figures = self._collect_and_update(total, callbacks)
        except NonFiniteError:
            if guarded:
                self.engine.undo()
            raise
        now = time.perf_counter()
        self.iteration += 1
        self.steps += len(self.engine.buffer)
        figures["sps"] = len(self.engine.buffer) / (now - self._since)
        self.seconds += now - self._since
        self._since = now  # what callbacks take is counted with the next iteration
        if callbacks:
            metrics = self._metrics(figures)
            for callback in callbacks:
                callback.on_update(self, metrics)

    def _collect_and_update(self, total: int, callbacks: list[Callback]) -> dict[str, float]:
        began = time.perf_counter()
        now = self._following(total, 0)
        assert now is not None
        episodes = self.engine.collect(now.number, now.step)
        collected = time.perf_counter()
        for callback in callbacks:
            callback.on_rollout(self, self.engine.buffer)
        listening = [c for c in callbacks if overrides(c, "on_episodes")]
        if listening and len(episodes):  # looked at only if someone listens: it may take a wait
            for callback in listening:
                callback.on_episodes(self, episodes)

        called = time.perf_counter()
        self.engine.advantages()
        estimated = time.perf_counter()
        following = None
        if all(map(only_watches, callbacks)) and not self._stopping:
            following = self._following(total, 1)
        self.engine.expect(following)
        figures = self.engine.update(now.number, now.learning_rate, now.clip)
        ended = time.perf_counter()
        self._count(episodes)
        parts = (collected - began, estimated - called, ended - estimated)
        self.timings = Timings(*(self.engine.timings() or parts))
        figures["learning_rate"], figures["clip"] = now.learning_rate, now.clip
        for name, seconds in self.timings._asdict().items():
            figures[f"{name}_seconds"] = seconds
        return figures

    def _following(self, total: int, later: int) -> Iteration | None:
        """The iteration that comes now, or `later`; None after the last."""
        ppo, steps = self.config.ppo, self.steps + later * len(self.engine.buffer)
        if steps >= total:
            return None
        return Iteration(
            self.iteration + later,
            steps // self.env.num_envs,
            scheduled(ppo.learning_rate, ppo.learning_rate_schedule, steps / total),
            scheduled(ppo.clip, ppo.clip_schedule, steps / total),
        )

    def _count(self, episodes: Episodes) -> None:
        self.episodes += len(episodes)
        self.recent.add(*episodes.last(WINDOW))

    def _metrics(self, figures: Mapping[str, float]) -> dict[str, float]:
        known = {
            **figures,
            **self.recent.spread()._asdict(),
            "iteration": self.iteration,
            "steps": self.steps,
            "seconds": self.seconds,
            "episodes": self.episodes,
        }
        return {name: known[name] for name in METRICS}

    @property
    def mean_return(self) -> float:
        """Mean return of the last `WINDOW` episodes of training; NaN before the first."""
        return self.recent.spread().mean_return

    @property
    def mean_length(self) -> float:
        """Mean length of the last `WINDOW` episodes of training; NaN before the first."""
        return self.recent.spread().mean_length

    # Using the policy -----------------------------------------------------------------------
    @property
    def agent(self) -> Agent:
        """The policy as it is now, ready to act; shares its weights."""
        env = self.env
        return Agent(
            self.policy,
            self.distribution,
            env.single_observation_space,
            env.single_action_space,
            self.device,
        )

    def predict(self, obs: Any, deterministic: bool = True, action_masks: Any = None) -> np.ndarray:
        """Actions for observations, as the environment takes them; a new array.

        The actions alone: a policy has no state here, so it is ``action = ppo.predict(obs)``, not
        ``action, state = ...`` as elsewhere.

        Args:
            obs: one observation, or a batch ``[B, *obs_shape]``.
            deterministic: the most probable action (the mean, for Box), or a sample.
            action_masks: which actions are allowed, see `Agent.act`.

        Raises:
            ValueError: a wrong shape.
        """
        if deterministic:
            return self.agent.act(obs, None, action_masks)
        agent = self.agent
        rows, _ = agent.obs_layout.rows(obs)
        noise = torch.rand(len(rows), self.distribution.noise_size, generator=self.random)
        return agent.act(obs, noise.numpy(), action_masks)

    # Saving ---------------------------------------------------------------------------------
    def save(self, path: str | Path) -> Path:
        """Write a checkpoint of everything into the folder `path`; the checkpoint's own path.

        `PPO.load` on either continues to the bit on the same machine and device.

        Raises:
            ValueError: a name for a file, such as ``"agent.zip"``, or one that means something
                else to `load`.
        """
        from operant.ppo.saved import folder_for
        from operant.ppo.snapshot import snapshot
        from operant.runs.checkpoint import save_checkpoint

        return save_checkpoint(folder_for(path), self.steps, *snapshot(self))

    @classmethod
    def load(
        cls,
        path: str | Path,
        env: str | type[Env] | Batch | None = None,
        *,
        policy: nn.Module | None = None,
        **options: Any,
    ) -> PPO:
        """The trainer that a checkpoint describes.

        Args:
            path: a checkpoint, a folder that `save` wrote to, a run directory; or a run's name, or
                ``"latest"`` for the run that was started or resumed last.
            env: needed where the environment is not one of the built-in or registered ones.
            policy: needed where the policy was not one of `operant.models`.
            options: values to change, such as ``device="cpu"``.

        Raises:
            CheckpointError: damaged, or not a checkpoint; the message names the file.
            ValueError: it does not fit the environment or the policy.
        """
        from operant.ppo.saved import find_saved
        from operant.ppo.snapshot import restored
        from operant.runs.checkpoint import load_checkpoint

        return restored(cls, load_checkpoint(find_saved(path)), env, policy, options)

    def __reduce__(self) -> tuple[Any, ...]:
        from operant.ppo.saved import description, made_again

        return made_again, description(self, env_key(env_class(self.env)))

    def __deepcopy__(self, memo: dict[int, Any]) -> PPO:
        from operant.ppo.saved import description, made_again

        return made_again(*deepcopy(description(self, env_class(self.env)), memo))

    def __copy__(self) -> PPO:
        return deepcopy(self)  # two trainers of one policy would undo each other's work

    def __repr__(self) -> str:
        reached = f", mean return {self.mean_return:.1f}" if self.recent else ""
        return f"<PPO of {self.config.env.id!r}, {self.steps:,} steps{reached}>"

    def _check_policy(self) -> None:
        """Raise ValueError unless the policy follows the protocol."""
        layout = self.agent.obs_layout
        sample = layout.split(torch.from_numpy(layout.example(2)).to(self.device))
        self.policy.eval()
        with torch.inference_mode():
            outputs = self.policy(sample)
        wanted = f"(head [B, {self.distribution.head_size}], value [B])"
        if not (isinstance(outputs, tuple) and len(outputs) == 2):
            raise ValueError(f"the policy's forward must return {wanted}, got {type(outputs)}")
        shapes = [tuple(output.shape) for output in outputs]
        if shapes != [(2, self.distribution.head_size), (2,)]:
            raise ValueError(
                f"the policy's forward must return {wanted} for {self.env.single_action_space}; "
                f"for B = 2 it returned shapes {shapes[0]} and {shapes[1]}"
            )
        size = self.env.mask_size
        if size not in (0, self.distribution.head_size):
            raise ValueError(
                f"the environment's action mask has {size} entries, the policy's head "
                f"{self.distribution.head_size}"
            )
