"""`Trainer`: what all algorithms have in common. An algorithm is a subclass; see there."""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar, Never, Self

import numpy as np
import torch
from torch import Tensor, nn

from operant.lang.env import Env
from operant.models.action_distributions import distribution_for
from operant.models.distributions import Distribution
from operant.toolchain.machine import commit
from operant.toolchain.torch_threads import one_thread_an_operation
from operant.training.add_on import AddOn, AddOns
from operant.training.advice import refuse_arguments
from operant.training.agent import Agent
from operant.training.agent_returns import AgentReturns
from operant.training.callbacks import Callback, checked, overrides
from operant.training.config import BaseConfig
from operant.training.episodes import Episodes
from operant.training.evaluate import Evaluated
from operant.training.evaluator import Evaluator, evaluated
from operant.training.guard import NonFiniteError
from operant.training.network import check_network, new_network
from operant.training.progress import shown
from operant.training.ranks import RankError, anyone_says, check_same, first_says, world_size
from operant.training.recent import Recent
from operant.training.section import converted
from operant.training.shards import Shards
from operant.vector.batch import Batch, env_class, fix_parameters, is_batch
from operant.vector.copies import env_key
from operant.vector.foreign_env import ForeignEnv
from operant.vector.make import MakesEnvs, env_of
from operant.version import __version__

WINDOW = 100
"""Episodes that ``mean_return`` and ``mean_length`` look back on."""

_OWN = ("run.threads", "run.device", "env.workers")
"""What ranks may have each of their own."""

COUNTERS = (
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
)
"""Figures that every algorithm has, in the order of the files."""


class Trainer:
    """Environments, policy, counters, the loop, saving and loading.

    An algorithm is a subclass with

    - ``config_type``, a `BaseConfig` with the algorithm's own section, and ``metrics``;
    - ``__init__(env, config=None, *, policy=None, add_ons=(), **options)``, which makes the batch,
      calls this one's, and in the end ``self.add_ons.begin(self)``;
    - `iterate`, which collects a rollout, trains on it, and returns a figure for each metric;
    - ``buffer``, the rollout: ``len(buffer)`` is the steps of an iteration;
    - `optimizer_tensors`, and `state` and `set_state` where it remembers more than that.

    Args:
        config: everything the run depends on.
        env: the batch, in SAME_STEP mode; reset by the algorithm.
        device: where the policy is.
        policy: see `operant.models.actor_critic`; None: the one that ``[policy]`` describes.
        add_ons: see `operant.training.add_on`.
        shards: how it works with other ranks; None: it does not.

    PyTorch's global generator is seeded here: it initialises the network.

    Raises:
        ValueError: parts that do not fit together.
    """

    config: BaseConfig
    config_type: ClassVar[type[BaseConfig]]
    metrics: ClassVar[tuple[str, ...]] = COUNTERS
    """Figures of an iteration, in the order of the files."""
    engine_name: str = "eager"
    """How the loop is executed."""
    engine_reason: str = "the only one"
    optimizer_steps: int = 0
    """Steps that the optimiser has taken."""
    buffer: Any
    """The rollout: ``len(buffer)`` is the steps of an iteration."""

    def __init__(
        self,
        config: BaseConfig,
        env: Batch,
        device: torch.device,
        policy: nn.Module | None = None,
        add_ons: Sequence[AddOn] = (),
        shards: Shards | None = None,
    ) -> None:
        self.config = config
        self.shards = Shards() if shards is None else shards
        """What its sums are made of, on which ranks."""
        if shards is None and world_size() > 1:
            raise ValueError(f"{type(self).__name__} trains in one process, not on several ranks")
        self.device, self.env = device, env
        name = type(self).__name__
        fix_parameters(env, f"{name} trains this batch, and its configuration has them")
        torch.manual_seed(config.run.seed)
        self.policy = self.complete(self.new_policy() if policy is None else policy).to(device)
        self.distribution: Distribution = getattr(
            self.policy, "distribution", None
        ) or distribution_for(env.single_action_space, config.policy.squash)
        check_network(self.policy, self.distribution, env, device)
        self.add_ons = AddOns(add_ons)
        self.agent_returns = AgentReturns(env.describe().agents, WINDOW)
        """Of each agent, if an environment has several."""
        self.metric_names = (
            *self.metrics,
            *self.agent_returns.metrics,
            *self.add_ons.metrics,
            *self.shards.metrics,
        )
        self.total_steps = config.run.total_steps
        """Where training will end: what `learn` was told last."""
        self.steps = 0
        """Steps taken, of every row of the batch: an environment with three agents counts three."""
        self.iteration = 0
        self.episodes = 0
        self.seconds = 0.0
        """Time spent in `learn`, over all sessions of a run, callbacks included."""
        self._since = 0.0
        self.recent = Recent(WINDOW)
        """Return and length of the last episodes."""
        self._stopping = False
        self.random = torch.Generator().manual_seed(config.run.seed)
        """What `predict` samples with."""
        self._before: list[Tensor] = []
        self._steps_before = 0

    # What an algorithm is -------------------------------------------------------------------
    def iterate(self, total: int, callbacks: list[Callback]) -> dict[str, float]:
        """Collect a rollout, tell `collected` of it, train on it; figures by name.

        `total` is where training will end, for schedules. Episodes that ended are to be counted
        with `count_episodes`.

        Raises:
            NonFiniteError: NaN or infinity was met.
        """
        raise NotImplementedError

    def complete(self, policy: nn.Module) -> nn.Module:
        """A policy, new or the user's, with what the algorithm wants besides."""
        return policy

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """What the optimiser remembers, by name; not copies: loading writes into them."""
        return {}

    def state(self) -> dict[str, np.ndarray]:
        """What the algorithm itself remembers from one iteration to the next, as copies."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from there.

        Raises:
            ValueError: a missing entry or a wrong shape.
        """

    def back_up(self) -> None:
        """Remember, before an iteration, what it changes in policy and optimiser."""
        self._before = [tensor.clone() for tensor in self._trained()]
        self._steps_before = self.optimizer_steps

    @torch.no_grad()
    def roll_back(self) -> None:
        """Put back what `back_up` remembered."""
        for tensor, good in zip(self._trained(), self._before, strict=True):
            tensor.copy_(good)
        self.optimizer_steps = self._steps_before

    def _trained(self) -> list[Tensor]:
        return [*self.policy.state_dict().values(), *self.optimizer_tensors().values()]

    def retract(self, broken_off: bool = False) -> None:
        """Take back an iteration that began before it was asked for, if one did, or, if
        `broken_off`, one that has not ended."""

    def evaluator(self) -> Callback:
        """The callback that evaluates every ``run.eval_every`` steps.

        Raises:
            ValueError: no episodes are asked for, or they might never end.
        """
        return Evaluator(self)

    def evaluated(self) -> Evaluated:
        """``run.eval_episodes`` episodes with the policy as it is; always the same ones."""
        return evaluated(self)

    # For the algorithm ----------------------------------------------------------------------
    def new_policy(self) -> nn.Module:
        """The network that ``[policy]`` describes, for the spaces of the batch."""
        spaces = (self.env.single_observation_space, self.env.single_action_space)
        return new_network(self.config.policy, *spaces)

    def collected(self, episodes: Episodes, callbacks: list[Callback]) -> None:
        """Show a rollout, and the episodes that finished in it, to add-ons and callbacks."""
        for add_on in self.add_ons:
            add_on.after_collect(self, self.buffer)
        for callback in callbacks:
            callback.on_rollout(self, self.buffer)
        listening = [c for c in callbacks if overrides(c, "on_episodes")]
        if listening and len(episodes):  # looked at only if someone listens: it may take a wait
            for callback in listening:
                callback.on_episodes(self, episodes)

    def count_episodes(self, episodes: Episodes) -> None:
        """Add finished episodes to the counters."""
        most = WINDOW * max(1, len(self.agent_returns.recent))
        count, episodes = self.shards.all_episodes(episodes, most, self.env.num_envs)
        self.episodes += count
        self.recent.add(*episodes.last(WINDOW))
        self.agent_returns.add(episodes)

    # The loop -------------------------------------------------------------------------------
    def learn(
        self,
        total_steps: int | None = None,
        callbacks: Iterable[Callback] | Callback = (),
        progress: bool | None = None,
        **unknown: Never,
    ) -> Self:
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
            TypeError: `callbacks` are something else.
        """
        refuse_arguments(unknown, type(self).__name__, self.config.elsewhere())
        total = self.config.run.total_steps
        if total_steps is not None:
            total = converted("total_steps", total_steps, int)
        if total < 1:
            raise ValueError(f"total_steps must be at least 1, got {total}")
        callbacks = checked(callbacks)
        self.total_steps = total
        self._since = time.perf_counter()
        broken_off = True
        try:
            self._check_ranks()
            with one_thread_an_operation(), shown(self, total, callbacks, progress) as called:
                while self.steps < total and not anyone_says(self.shards.group, self._stopping):
                    self._iterate(total, called)
                broken_off = False
        except RankError:
            raise
        except Exception as error:
            sentence = f"stopped: {error or type(error).__name__}"
            self.shards.group.failed(sentence, isinstance(error, NonFiniteError))
            raise
        finally:
            self.retract(broken_off)
            self._stopping = False
            self.seconds += time.perf_counter() - self._since
        return self

    def _check_ranks(self) -> None:
        """Raise RankError unless all ranks are about to do the same."""
        if self.shards.group.size == 1:
            return
        digest = hashlib.sha256()
        for name, tensor in self.policy.state_dict().items():
            digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
        config = {
            name: str(value)
            for section, table in self.config.to_dict().items()
            for key, value in table.items()
            if (name := f"{section}.{key}") not in _OWN
        }
        facts = {
            "operant": f"{__version__} ({commit()})",
            "torch": torch.__version__,
            **config,
            "the engine": self.engine_name,
            "steps": f"{self.steps} of {self.total_steps}",
            "the weights": digest.hexdigest()[:12],
        }
        check_same(self.shards.group, facts)

    def stop(self) -> None:
        """Make `learn` return after the iteration that is running, or at once if none is."""
        self._stopping = True

    def _iterate(self, total: int, callbacks: list[Callback]) -> None:
        guarded = self.config.run.nan_guard
        if guarded:
            self.back_up()
            self.add_ons.back_up()
        try:
            figures = self.iterate(total, callbacks)
            figures |= self.add_ons.update(self, guarded)
        except NonFiniteError as error:
            if guarded:
                self.roll_back()
                self.add_ons.roll_back()
            if self.shards.group.rank:
                raise error.moved(self.shards.group.rank * self.env.num_envs) from None
            raise
        now = time.perf_counter()
        self.iteration += 1
        self.steps += self.rollout_steps
        figures["sps"] = self.rollout_steps / (now - self._since)
        self.seconds += now - self._since
        self._since = now  # what callbacks take is counted with the next iteration
        if callbacks:
            metrics = self._metrics(figures)
            for callback in callbacks:
                callback.on_update(self, metrics)

    @property
    def rollout_steps(self) -> int:
        """Steps of an iteration, on all ranks."""
        return len(self.buffer) * self.shards.group.size

    def _metrics(self, figures: Mapping[str, float]) -> dict[str, float]:
        known = {
            **figures,
            **self.shards.figures(),
            **self.recent.spread()._asdict(),
            **self.agent_returns.figures(),
            "iteration": self.iteration,
            "steps": self.steps,
            "seconds": self.seconds,
            "episodes": self.episodes,
        }
        return {name: known[name] for name in self.metric_names}

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

    def predict(self, obs: Any, deterministic: bool = True, action_masks: Any = None) -> Any:
        """Actions for observations, as the environment takes them: a new array, of a Dict or Tuple
        space a dict or tuple of these.

        The actions alone: a policy has no state here, so it is ``action = trainer.predict(obs)``,
        not ``action, state = ...`` as elsewhere.

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

        `load` on either continues to the bit on the same machine and device. Of several ranks all
        call this, and rank 0 writes.

        Raises:
            ValueError: a name for a file, such as ``"agent.zip"``, or one that means something
                else to `load`.
            RankError: rank 0 could not write it.
        """
        from operant.runs.checkpoint import save_checkpoint
        from operant.training.saved import folder_for
        from operant.training.snapshot import not_saved_note, snapshot

        note, parts = not_saved_note(self.env), snapshot(self)
        if note is not None:
            warnings.warn(note, stacklevel=2)
        folder = folder_for(path)
        path, written = folder / f"{self.steps:012d}", False
        try:
            if not self.shards.group.rank:
                path = save_checkpoint(folder, self.steps, *parts)
            written = True
        finally:
            saved = first_says(self.shards.group, written)  # nobody goes on before it is there
        if not saved:
            raise RankError(0, f"could not write {path}")
        return path

    @classmethod
    def load(
        cls,
        path: str | Path,
        env: str | type[Env] | ForeignEnv | MakesEnvs | Batch | None = None,
        *,
        policy: nn.Module | None = None,
        add_ons: Sequence[AddOn] = (),
        **options: Any,
    ) -> Self:
        """The trainer that a checkpoint describes.

        Args:
            path: a checkpoint, a folder that `save` wrote to, a run directory; or a run's name, or
                ``"latest"`` for the run that was started or resumed last.
            env: needed where the environment is neither one of ours nor in Gymnasium's registry.
            policy: needed where the policy was not one of `operant.models`.
            add_ons: those it was trained with.
            options: values to change, such as ``device="cpu"``.

        Raises:
            CheckpointError: damaged, or not a checkpoint; the message names the file.
            ValueError: it does not fit the environment or the policy.
        """
        from operant.runs.checkpoint import load_checkpoint
        from operant.training.saved import find_saved
        from operant.training.snapshot import restored

        found = load_checkpoint(find_saved(path))
        if env is not None and not isinstance(env, str) and not is_batch(env):
            env = env_of(env)  # type: ignore[arg-type]
        return restored(cls, found, env, policy, options, add_ons)

    def __reduce__(self) -> tuple[Any, ...]:
        from operant.training.saved import description, made_again

        return made_again, description(self, env_key(env_class(self.env)))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        from operant.training.saved import description, made_again

        copied: Self = made_again(*deepcopy(description(self, env_class(self.env)), memo))
        return copied

    def __copy__(self) -> Self:
        return deepcopy(self)  # two trainers of one policy would undo each other's work

    def __repr__(self) -> str:
        reached = f", mean return {self.mean_return:.1f}" if self.recent else ""
        name = type(self).__name__
        return f"<{name} of {self.config.env.id!r}, {self.steps:,} steps{reached}>"
