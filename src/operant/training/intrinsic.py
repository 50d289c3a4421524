"""`Intrinsic`: the add-on that pays bonuses to a policy and trains what they are made of.

After a rollout: each bonus is computed with what it has learnt so far, scaled, weighted and added
to the rewards (or kept as a stream of its own); then it learns from the same rollout. On a GPU
nothing here waits for it until the figures are read, and under an engine that replays graphs all of
it is one graph.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor, nn

from operant.buffers.value_stream import ValueStream
from operant.models.bonus import Bonus, Rollout, Setting
from operant.models.encoders import EncoderOptions
from operant.training.adam import Adam
from operant.training.add_on import AddOn
from operant.training.bonuses import bonus_of, is_ours
from operant.training.captured import Captured
from operant.training.guard import NonFiniteError
from operant.training.intrinsic_config import IntrinsicConfig
from operant.training.random_play import random_observations
from operant.training.return_scale import ReturnScale
from operant.training.sample_order import SampleOrder
from operant.training.schedule import scheduled

_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
_TAKEN: WeakSet[Bonus] = WeakSet()
"""Bonuses that a trainer has. Copies of them are nobody's."""


class Intrinsic(AddOn):
    """See the top of this file.

    Args:
        bonuses: of one's own, or of the library; those that the configuration names are added.
            They belong to one trainer.

    Raises:
        TypeError, ValueError: something else than bonuses, a bad name, or two of one name.
    """

    name = "intrinsic"
    needs_next_obs = True

    def __init__(self, bonuses: Sequence[Bonus] = ()) -> None:
        for one in bonuses:
            if not isinstance(one, Bonus):
                raise TypeError(f"a bonus must be an operant.models.Bonus, got {one!r}")
            if not _NAME.fullmatch(one.name):
                raise ValueError(
                    f"a bonus's name must be lower-case letters, digits and _, "
                    f"{type(one).__name__} has {one.name!r}"
                )
        names = [one.name for one in bonuses]
        if len(set(names)) < len(names):
            raise ValueError(f"bonuses must have names of their own, got {', '.join(names)}")
        self.bonuses = list(bonuses)

    def complete(self, config: IntrinsicConfig) -> Intrinsic:
        """Itself, with the bonuses that `config` names and that it does not have yet, in an order
        that does not depend on how they were given: a checkpoint has their parameters in it.

        Raises:
            ValueError: one that another trainer has, or whose name is the library's.
        """
        self._check_free()
        known = {one.name: one for one in self.bonuses}
        for kind in config.kind:
            if kind not in known:
                known[kind] = bonus_of(config, kind)
            elif not is_ours(known[kind]):
                raise ValueError(
                    f"{type(known[kind]).__name__} has the name {kind!r} of the library's bonus, "
                    "which intrinsic.kind asks for too; call it something else"
                )
        own = sorted(known.keys() - set(config.kind))
        self.bonuses = [known[name] for name in (*own, *config.kind)]
        return self

    def _check_free(self) -> None:
        """Raise ValueError if a trainer has one of the bonuses: building it again would change what
        that one trains."""
        for one in self.bonuses:
            if one in _TAKEN:
                raise ValueError(
                    f"the bonus {one.name!r} belongs to a trainer already, which trains it; give "
                    f"this one a {type(one).__name__} of its own"
                )

    @property
    def metrics(self) -> tuple[str, ...]:  # type: ignore[override]
        """Mean of what is paid, its share of all rewards, and the bonuses' own figures."""
        return ("reward_mean", "reward_share", *(name for name, _, _ in self._named()))

    def _named(self) -> list[tuple[str, int, str]]:
        """Figures of the bonuses: by their name here, whose, and by their name there."""
        return [
            (f"{one.name}_{name}", k, name)
            for k, one in enumerate(self.bonuses)
            for name in one.figures
            if name != "loss" or _is_trained(one)
        ]

    # Making it ------------------------------------------------------------------------------
    def begin(self, trainer: Any) -> None:
        """See `AddOn`: networks and memory are made for the trainer's environments.

        Raises:
            ValueError: no bonus, or one that another trainer has.
        """
        if not self.bonuses:
            raise ValueError(
                "Intrinsic pays bonuses, and there is none: Intrinsic([RND()]), or set "
                "intrinsic.kind"
            )
        self._check_free()
        config, env = trainer.config, trainer.env
        self._options: IntrinsicConfig = getattr(config, "intrinsic", None) or IntrinsicConfig()
        self._setting = Setting(
            env.single_observation_space,
            trainer.distribution,
            env.num_envs,
            trainer.buffer.num_steps,
            trainer.device,
            EncoderOptions(config.policy.image, config.policy.channels, config.policy.embedding),
            env.describe().max_episode_steps,
        )
        self._seed = config.run.seed
        parts = nn.ModuleDict()
        with torch.random.fork_rng(devices=[]):  # the trainer's own numbers stay as they are
            torch.manual_seed(self._seed)
            for one in self.bonuses:
                one.build(self._setting)
                if _is_trained(one) and not _weights(one):
                    raise ValueError(
                        f"the bonus {one.name!r} has a loss and no parameters that it could train; "
                        "make them in build"
                    )
                parts[f"bonus_{one.name}"] = one
                if one.normalized:
                    parts[f"scale_{one.name}"] = ReturnScale(env.num_envs, self._options.gamma)
        self._parts = parts.to(trainer.device)
        weights = [p for one in self.bonuses if _is_trained(one) for p in _weights(one)]
        self._adam = Adam(weights) if weights else None
        share = self._options.share
        self._order = SampleOrder(len(trainer.buffer), share, trainer.device, self._seed)
        self._figures = torch.zeros(len(self.metrics), dtype=torch.float64, device=trainer.device)
        self._numbers = torch.zeros(4, dtype=torch.float64, device=trainer.device)
        """Weight of the bonus, of other rewards; learning rate; Adam's steps."""
        self._active = torch.ones(1, device=trainer.device)
        self._began = not any(one.random_steps for one in self.bonuses)
        self._on_device = trainer.device.type != "cpu"
        # On a GPU that would be a wait: there the update finds it.
        self._guarded = config.run.nan_guard and not self._on_device
        self._iteration = 0
        replays = trainer.engine_name in ("graph", "fused") and self._on_device
        self._pay = Captured(self._pay_and_train, self._tensors(trainer.buffer), replays)
        self._copies: list[Tensor] = []
        _TAKEN.update(self.bonuses)

    def _tensors(self, buffer: Any) -> list[Tensor]:
        """All that paying and training change."""
        adam = [] if self._adam is None else [self._adam.exp_avg, self._adam.exp_avg_sq]
        changed = [*self._parts.state_dict(keep_vars=True).values(), *adam, self._order.drawn]
        return [*(x.detach() for x in changed), self._numbers, self._figures, buffer.reward]

    def parameters(self) -> list[nn.Parameter]:
        """See `AddOn`."""
        return list(self._parts.parameters())

    # An iteration ---------------------------------------------------------------------------
    def after_collect(self, trainer: Any, buffer: Any) -> None:
        """Pay for the rollout, then learn from it; see `AddOn`."""
        self._iteration = trainer.iteration
        if not self._began:
            self._watch_random_steps(trainer)
        options, progress = self._options, trainer.steps / trainer.total_steps
        self._numbers[0].fill_(scheduled(options.coef, options.coef_schedule, progress))
        self._numbers[1].fill_(options.extrinsic_coef)
        self._numbers[2].fill_(options.lr)
        self._pay(buffer)

    def _watch_random_steps(self, trainer: Any) -> None:
        """Statistics of observations begin with those of a random policy."""
        steps = max(one.random_steps for one in self.bonuses)
        dist = self._setting.distribution
        for rows in random_observations(trainer.env, dist, steps, self._seed):
            for one in self.bonuses:
                if one.random_steps:
                    one.observe(rows.to(self._setting.device))
        self._began = True

    def _pay_and_train(self, buffer: Any) -> None:
        rollout = Rollout(buffer, self._setting.layout, self._setting.device)
        with torch.no_grad():
            self._pay_for(rollout, buffer)
            for one in self.bonuses:
                if type(one).observe is not Bonus.observe:
                    one.observe(rollout.live_next_obs)
        losses = self._train(rollout)
        found = [{**losses[k], **one.state_figures()} for k, one in enumerate(self.bonuses)]
        for _, k, name in self._named():
            if name not in found[k]:
                raise ValueError(
                    f"the bonus {self.bonuses[k].name!r} has {name!r} among its figures, and "
                    "neither loss nor state_figures returned it"
                )
        values = [found[k][name].detach().double() for _, k, name in self._named()]
        if values:
            self._figures[2:].copy_(torch.stack(values))

    def _pay_for(self, rollout: Rollout, buffer: Any) -> None:
        """Add the weighted bonus to the rewards, or keep it beside them."""
        bonus, live = self._bonus(rollout), rollout.live
        coef, other = self._numbers[0].float(), self._numbers[1].float()
        gained = buffer.reward.to(bonus.device)
        size, others = (coef * bonus).abs().mean(), (other * gained).abs().mean()
        self._figures[0].copy_((bonus if live is None else bonus[live]).mean())
        self._figures[1].copy_(size / (size + others).clamp(min=1e-30))
        stream: ValueStream | None = buffer.intrinsic
        if stream is not None:
            stream.reward.copy_(bonus)
            stream.weights.copy_(torch.stack([other, coef]))
        else:
            buffer.reward.copy_(other * gained + coef * bonus)

    def _bonus(self, rollout: Rollout) -> Tensor:
        """All bonuses as one, ``[T, N]``."""
        found = []
        for one in self.bonuses:
            bonus = one.reward_of(rollout)
            wanted = tuple(rollout.done.shape)
            if not isinstance(bonus, Tensor) or tuple(bonus.shape) != wanted:
                got = f"shape {list(bonus.shape)}" if isinstance(bonus, Tensor) else repr(bonus)
                raise ValueError(
                    f"the bonus {one.name!r} must be [T, N], {list(wanted)}, got {got}"
                )
            bonus = bonus.float()
            if rollout.live is not None:
                bonus = torch.where(rollout.live, bonus, 0.0)
            if self._guarded:
                self._check_finite(one, bonus)
            if one.normalized:
                bonus = self._parts[f"scale_{one.name}"](bonus, rollout.live)
            found.append(bonus)
        combined = torch.stack(found)
        return combined.prod(0) if self._options.combine == "product" else combined.sum(0)

    def _check_finite(self, one: Bonus, bonus: Tensor) -> None:
        """Raise NonFiniteError, or the loss of PPO would be blamed for it."""
        bad = (~torch.isfinite(bonus)).nonzero()
        if len(bad):
            t, env = bad[0].tolist()
            detail = f"{float(bonus[t, env])} at step {t}"
            raise NonFiniteError(f"bonus {one.name!r}", self._iteration, env, detail)

    # Learning -------------------------------------------------------------------------------
    def _train(self, rollout: Rollout) -> list[dict[str, Tensor]]:
        """A step of Adam's for each minibatch; means of what the bonuses' losses return."""
        if self._adam is None:
            return [{} for _ in self.bonuses]
        index = self._order.draw(None if rollout.live is None else rollout.live.flatten())
        if not len(index):  # every row rested through the rollout
            unknown = torch.full((), math.nan, device=index.device)
            return [dict.fromkeys(one.figures, unknown) for one in self.bonuses]
        parts = index.tensor_split(min(self._options.minibatches, len(index)))
        every = [self._train_on(rollout, part) for part in parts]
        return [
            {name: torch.stack([one[k][name] for one in every]).mean() for name in every[0][k]}
            for k in range(len(self.bonuses))
        ]

    def _train_on(self, rollout: Rollout, index: Tensor) -> list[dict[str, Tensor]]:
        """One step on the samples `index` ``[B]``; means of the losses."""
        assert self._adam is not None
        batch = rollout.samples(index)
        with torch.enable_grad():
            found = [_means(one, one.loss(batch)) for one in self.bonuses]
            losses = [means["loss"] for means in found if means]
            if not losses:
                return found
            total = torch.stack(losses).sum()
            pieces = torch.autograd.grad(total, self._adam.parameters, materialize_grads=True)
        gradient = torch.cat([piece.flatten() for piece in pieces])
        if self._on_device:
            rate, count = self._numbers[2], self._numbers[3:]
            self._adam.step_on_gpu(gradient, rate, count, self._active)
        else:
            self._adam.gradient.copy_(gradient)
            self._adam.step(self._options.lr)
        return [{name: x.detach() for name, x in means.items()} for means in found]

    def update(self, trainer: Any, buffer: Any) -> dict[str, float]:
        """The figures of `after_collect`; see `AddOn`."""
        return dict(zip(self.metrics, self._figures.tolist(), strict=True))

    # Saving ---------------------------------------------------------------------------------
    def back_up(self) -> None:
        """Copy what is put back to where it is computed; see `AddOn`."""
        kept = self._rolled_back()
        if len(self._copies) != len(kept):
            self._copies = [torch.empty_like(x) for x in kept]
        for copy, x in zip(self._copies, kept, strict=True):
            copy.copy_(x)
        self._steps_before = 0 if self._adam is None else self._adam.count
        self._began_before = self._began

    @torch.no_grad()
    def roll_back(self) -> None:
        """See `AddOn`."""
        for copy, x in zip(self._copies, self._rolled_back(), strict=True):
            x.copy_(copy)
        if self._adam is not None:
            self._adam.count = self._steps_before
        self._began = self._began_before

    def _rolled_back(self) -> list[Tensor]:
        kept = [x.detach() for one in self.bonuses for x in one.rolled_back()]
        scales = [part for part in self._parts.values() if isinstance(part, ReturnScale)]
        kept += [x for scale in scales for x in scale.state_dict().values()]
        if self._adam is not None:
            kept += [self._adam.exp_avg, self._adam.exp_avg_sq]
        return [*kept, self._order.drawn, self._numbers]

    def _state_tensors(self) -> dict[str, Tensor]:
        tensors = dict(self._parts.state_dict())
        if self._adam is not None:
            tensors |= {
                "adam.exp_avg": self._adam.exp_avg,
                "adam.exp_avg_sq": self._adam.exp_avg_sq,
            }
        return tensors | {"drawn": self._order.drawn}

    def state(self) -> dict[str, np.ndarray]:
        """See `AddOn`."""
        found = {name: x.cpu().numpy().copy() for name, x in self._state_tensors().items()}
        return found | {"steps": np.array(self._steps()), "began": np.array(int(self._began))}

    def _steps(self) -> float:
        """That Adam has taken."""
        counted = 0 if self._adam is None else self._adam.count
        return self._numbers[3].item() if self._on_device else float(counted)

    @torch.no_grad()
    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """See `AddOn`."""
        tensors = self._state_tensors()
        odd = sorted(set(state) ^ {*tensors, "steps", "began"})
        if odd:
            what = "missing" if odd[0] in tensors else "unknown"
            names = ", ".join(one.name for one in self.bonuses)
            raise ValueError(f"{odd[0]!r} is {what}: this trainer has the bonuses {names}")
        for name, x in tensors.items():
            given = torch.from_numpy(np.array(state[name]))
            if given.shape != x.shape or given.dtype != x.dtype:
                raise ValueError(
                    f"{name} must be {x.dtype} of shape {tuple(x.shape)}, got {given.dtype} of "
                    f"shape {tuple(given.shape)}"
                )
            x.copy_(given)
        steps = float(state["steps"])
        if not (math.isfinite(steps) and steps >= 0):
            raise ValueError(f"steps must be a count, got {steps}")
        self._began = bool(state["began"])
        self._numbers[3].fill_(steps)
        if self._adam is not None:
            self._adam.count = int(steps)

    def __getstate__(self) -> dict[str, Any]:
        return {"bonuses": self.bonuses}  # a copy is told to begin with another trainer


def _is_trained(bonus: Bonus) -> bool:
    """Whether it has something to minimise."""
    return type(bonus).loss is not Bonus.loss


def _weights(bonus: Bonus) -> list[nn.Parameter]:
    """What is trained of it."""
    return [parameter for parameter in bonus.parameters() if parameter.requires_grad]


def _means(bonus: Bonus, found: Any) -> dict[str, Tensor]:
    """Means of what its `Bonus.loss` returned."""
    if found is None:
        return {}
    named = found if isinstance(found, Mapping) else {"loss": found}
    if "loss" not in named:
        raise ValueError(f"the loss of the bonus {bonus.name!r} has no 'loss', got {list(named)}")
    return {name: x.mean() for name, x in named.items()}
