"""PPO on the card, where environments, policy and rollout are: nothing leaves it in an iteration.

`DeviceEngine` runs each operation as PyTorch reaches it; it is what `eager` means on a card, and
what the `graph` engine captures. So nothing here depends on a value that only the card knows:
counts that vary are bounded, choices are masks. One read an iteration brings the figures.

Between the end of an update and the next rollout the card waits for the host. So there is little in
between: what goes to the card, and what comes back, is copied as a part of the work on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from operant.buffers.gpu import GpuBuffer
from operant.buffers.triton_scans import discounted_triton
from operant.models.distributions import masked
from operant.ppo.engines.base import DATA, FIGURES, BaseEngine
from operant.ppo.engines.exchange import Exchange, Marks
from operant.ppo.engines.places import Places
from operant.ppo.job import Episodes, Job
from operant.ppo.kernels.cpu.shuffle import shuffle_keys_of_many
from operant.ppo.kernels.triton.episodes import last_episodes
from operant.ppo.kernels.triton.moments import SPLIT, variances
from operant.ppo.kernels.triton.noise import fill_uniforms_triton
from operant.ppo.kernels.triton.order import fill_orders
from operant.ppo.loss import Loss, normalized, ppo_loss
from operant.toolchain.gpus import check_memory
from operant.training.guard import check_device_rollout
from operant.vector.gpu_env import CudaVecEnv, Results

RECENT = 100
"""Episodes whose returns and lengths come with the figures."""
VALUE_ROWS = 1 << 20
"""Observations whose values are computed at once."""
LOSS_SCALE = 1024.0
"""Gradients are this much larger in float16, which has no numbers below 6e-8."""
CARRY_BYTES = 4
"""Of an environment's discounted return, which goes on from rollout to rollout."""
KEYS = 64
"""Iterations whose keys are computed at once."""
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


class DeviceEngine(BaseEngine):
    """See `operant.ppo.job.Engine`."""

    name = "eager"
    threads = 1
    preferred_precision = "fp32"
    knows_addresses = False
    """Whether kernels are told where weights are before an iteration begins."""

    def __init__(self, job: Job) -> None:
        self.job = job
        assert isinstance(job.env, CudaVecEnv)
        self.env: CudaVecEnv = job.env
        self.device = self.env.device
        ppo, envs = job.config.ppo, job.env.num_envs
        check_memory(self.device, envs, self._bytes_per_env(), "a rollout")
        self.buffer: GpuBuffer = self._new_buffer(envs, self.device)  # type: ignore[assignment]

        def new(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=self.device)

        self._carry = new(envs)
        self._parts = new(2, 2, SPLIT, dtype=torch.float64)
        self._active = new(1)  # 0 after the target KL was passed
        self._set_exchange()
        self._low, self._rounded = self._rounded_weights()
        limit = self.env.max_episode_steps
        self._finals = 0 if limit is None else 1 + (ppo.num_steps - 1) // limit
        self._set_up()
        self._find_tensors()

    def _new_buffer(self, num_envs: int, device: torch.device) -> GpuBuffer:
        job, dist, obs = self.job, self.job.distribution, self.env.buffers["obs"]
        buffer = GpuBuffer(
            job.config.ppo.num_steps,
            num_envs,
            tuple(obs.shape[1:]),
            dist.action_shape,
            device=device,
            obs_dtype=obs.dtype,
            action_dtype=dist.action_dtype,
            mask_size=job.mask_size,
        )
        if job.return_normalizer is None:
            buffer.scaled_reward = buffer.reward
        return buffer

    def _set_exchange(self) -> None:
        """What host and card tell each other. The host writes before it launches what reads it,
        which ends before the one wait of an iteration: so nothing is overwritten that is still to
        be copied."""
        ppo, device = self.job.config.ppo, self.device
        self._told_step = Exchange((1,), torch.int64, device)
        self._told_keys = Exchange((ppo.epochs, 8), torch.int64, device)
        self._told_rates = Exchange((2,), torch.float64, device)
        self._told_count = Exchange((1,), torch.float64, device)  # Adam's steps so far
        self._first_step, self._keys = self._told_step.card, self._told_keys.card
        self._rates = self._told_rates.card  # learning rate, clip
        rows, recent, known = ppo.epochs * ppo.minibatches, 1 + 2 * RECENT, 1 + 2 * RECENT + 5
        self._found = Exchange((known + rows * len(FIGURES),), torch.float64, device)
        found = self._found.card
        self._recent = found[:recent]
        self._checks = found[recent:known]  # bad, epochs, spread, unexplained, Adam's steps
        self._taken = self._checks[4:]
        self._figures = found[known:].view(rows, len(FIGURES))
        self._marks = Marks(device)
        self._summary: np.ndarray | None = None
        self._under_way = False
        self._keys_for = self._key_block = -1  # the iteration whose keys are known; its block

    def _find_tensors(self) -> None:
        """Where the policy's tensors are, and memory for copies of what an iteration changes."""
        self._places = Places(self.job.policy)
        self._own = self._to_keep()
        self._before = [torch.empty_like(tensor) for tensor in self._own]

    def _to_keep(self) -> list[Tensor]:
        """What is copied when an iteration begins; first of all, what is trained."""
        return self._trained() if self.job.config.run.nan_guard else []

    def _set_up(self) -> None:
        """Whatever else an engine needs, before anything runs: here, memory for random numbers."""
        ppo, envs, draws = self.job.config.ppo, self.env.num_envs, self.job.distribution.noise_size
        self._noise = torch.zeros(ppo.num_steps, envs, draws, device=self.device)
        self._orders = torch.zeros(
            ppo.epochs, len(self.buffer), dtype=torch.int32, device=self.device
        )

    def _bytes_per_env(self) -> int:
        """Memory that a rollout takes for each environment, the update included."""
        buffer, steps = self._new_buffer(1, torch.device("meta")), self.job.config.ppo.num_steps
        return buffer.nbytes + CARRY_BYTES + steps * self._bytes_per_sample()

    def _bytes_per_sample(self) -> int:
        """What is not in the buffer: random numbers, and activations of a minibatch, roughly."""
        ppo = self.job.config.ppo
        widest = max((p.shape[0] for p in self.job.policy.parameters() if p.ndim > 1), default=1)
        numbers = 4 * self.job.distribution.noise_size + 4 * ppo.epochs
        return numbers + 16 * widest // ppo.minibatches

    def _rounded_weights(self) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Memory for the weights that autocast rounds, by name, and the weights; may be none."""
        dtype = AUTOCAST.get(self.precision)
        kinds = (nn.Linear, nn.modules.conv._ConvNd)
        layers = [(k, m) for k, m in self.job.policy.named_modules() if isinstance(m, kinds)]
        found = {
            f"{name}.{key}" if name else key: parameter
            for name, layer in (layers if dtype else [])
            for key, parameter in layer.named_parameters(recurse=False)
        }
        low = {name: torch.empty_like(p, dtype=dtype).detach() for name, p in found.items()}
        return low, list(found.values())  # not views: a parameter may be given other memory

    # collect --------------------------------------------------------------------------------
    def collect(self, iteration: int, step: int) -> Episodes:
        """Fill the buffer; see `Engine`. The episodes are read from the card when looked at."""
        if self._under_way and self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # the last iteration was broken off before its wait
        if self._places.changed():
            self._reconnect()
        self._summary = None
        self._begin(iteration, step)
        return DeviceEpisodes(self)

    def _begin(self, iteration: int, step: int) -> None:
        """Let the card play, from step `step` on."""
        self._tell(iteration, step)
        self._play()

    def _tell(self, iteration: int, step: int) -> None:
        """Write what the card will be sent."""
        self._told_step.host[0] = step
        if self._keys_for != iteration:
            self._find_keys(iteration)
        self._told_keys.host[:] = self._next_keys

    def _play(self) -> None:
        self._under_way = True
        self._marks.note(0)
        self._run("collect")
        self._marks.note(1)

    def _reconnect(self) -> None:
        """Someone gave the policy other tensors."""
        self._find_tensors()

    def keep(self) -> None:
        """See `Engine`. The rollout begins with the copies."""
        self._count_before = self.job.optimizer.count

    def _keep(self) -> None:
        """Fill ``_before``."""
        copy_all(self._before, self._own)

    @torch.no_grad()
    def _collect(self) -> None:
        job, buffer, env = self.job, self.buffer, self.env
        self._told_step.send()
        fill_uniforms_triton(self._noise, job.config.run.seed, self._first_step)
        if self._low:
            torch._foreach_copy_(list(self._low.values()), self._rounded)
        own = env.buffers
        buffer.obs[0].copy_(own["obs"])
        buffer.action_mask[0].copy_(own["action_mask"])
        for t in range(buffer.num_steps):
            action = self._act(
                buffer.obs[t],
                buffer.action_mask[t],
                self._noise[t],
                buffer.action[t],
                buffer.log_prob[t],
            )
            env.step_into(action, self._results(t))
        env.take_over(self._results(buffer.num_steps - 1))
        for rows, values in self._value_parts():
            values.copy_(self._value(rows))
        if self._finals:
            places, there = buffer.final_places(self._finals)
            seen = buffer.final_observations(places, there).flatten(0, 1)
            final = torch.cat([self._value(part) for part in torch.split(seen, VALUE_ROWS)])
            buffer.set_final_values(places, there, final.view_as(places))
        last_episodes(buffer.terminated, buffer.truncated, buffer.report, RECENT, self._recent)
        if job.config.run.nan_guard:
            self._checks[0] = self._sum_of_all()

    def _act(
        self, obs: Tensor, mask: Tensor, noise: Tensor, action: Tensor, log_prob: Tensor
    ) -> Tensor:
        """Sample actions, as the environment takes them. Writes `action` and `log_prob`."""
        job = self.job
        with self._precision():
            head = self._low_forward(obs)[0] if self._low else job.head(obs)
        head = head.float()
        if job.mask_size:
            head = masked(head, mask)
        drawn, found = job.distribution.sample(head, noise)
        action.copy_(drawn)
        log_prob.copy_(found)
        return job.distribution.to_env(drawn).contiguous()

    def _value(self, obs: Tensor) -> Tensor:
        with self._precision():
            value = self._low_forward(obs)[1] if self._low else self.job.value(obs)
        return value.float()

    def _low_forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Head and value by weights that were rounded once for the whole rollout. Autocast would
        round them to the same numbers, at every step."""
        outputs: tuple[Tensor, Tensor] = functional_call(self.job.policy, self._low, (obs,))
        return outputs

    def _value_parts(self) -> list[tuple[Tensor, Tensor]]:
        """The observations of a rollout, the last ones too, and where their values go, in parts."""
        obs, values = self.buffer.obs.flatten(0, 1), self.buffer.values.flatten()
        parts = (torch.split(x, VALUE_ROWS) for x in (obs, values))
        return list(zip(*parts, strict=True))

    def _results(self, t: int) -> Results:
        """Where step `t` writes."""
        b = self.buffer
        return Results(
            obs=b.obs[t + 1],
            reward=b.reward[t],
            terminated=b.terminated[t],
            truncated=b.truncated[t],
            final_obs=b.final_obs[t],
            action_mask=b.action_mask[t + 1],
            report=b.report[t],
        )

    def _sum_of_all(self) -> Tensor:
        """A number that is not finite if one of the rollout is not. Only a hint: the sum of good
        numbers may overflow."""
        b = self.buffer
        tensors = [b.values, b.log_prob, b.reward, b.final_value]
        tensors += [b.obs] if b.obs.is_floating_point() else []
        return torch.stack([x.sum(dtype=torch.float64) for x in tensors]).sum()

    # advantages -----------------------------------------------------------------------------
    def advantages(self) -> None:
        """Scale the rewards if asked, then estimate advantages."""
        self._told_count.host[0] = self.job.optimizer.count
        self._run("advantages")
        self._marks.note(2)

    @torch.no_grad()
    def _advantages(self) -> None:
        b, ppo, normalizer = self.buffer, self.job.config.ppo, self.job.return_normalizer
        if normalizer is not None:
            # The place of the advantages is free until they are computed.
            discounted_triton(
                b.reward, b.terminated, b.truncated, self._carry, ppo.gamma, b.advantage
            )
            normalizer.update(b.advantage)
            torch.mul(b.reward, normalizer.scale(), out=b.scaled_reward)
        b.compute_advantages(ppo.gamma, ppo.gae_lambda)

    def _explain(self) -> None:
        """What the values do not explain of their targets is the advantages."""
        variances(self.buffer.target, self.buffer.advantage, self._parts, self._checks[2:4])

    # update ---------------------------------------------------------------------------------
    def update(self, iteration: int, learning_rate: float, clip: float) -> dict[str, float]:
        """Epochs over shuffled minibatches; see `Engine`.

        Raises:
            RuntimeError: the policy has other tensors than when the rollout was collected, and the
                engine trains those that it knew.
        """
        if self.knows_addresses and self._places.changed():
            raise RuntimeError(
                "the policy's tensors were replaced after its rollout was collected; "
                "do that in on_update, or change them in place"
            )
        self._train(learning_rate, clip)
        self._find_keys(iteration + 1)  # while the card works
        figures = self._figures_of(self._wait(), iteration)
        self.env.check_rules()  # the card was waited for already
        return figures

    def _train(self, learning_rate: float, clip: float) -> None:
        """Let the card train."""
        self._told_rates.host[:] = learning_rate, clip
        self._run("update")
        self._marks.note(3)

    def _find_keys(self, iteration: int) -> None:
        """Look up the keys of the orders of an iteration. Those of many are computed at once."""
        block, place = divmod(iteration, KEYS)
        if block != self._key_block:
            seed, epochs = self.job.config.run.seed, self.job.config.ppo.epochs
            found = shuffle_keys_of_many(seed, block * KEYS, KEYS, epochs)
            self._many_keys, self._key_block = found.view(np.int64), block
        self._next_keys, self._keys_for = self._many_keys[place], iteration

    def _update(self) -> None:
        job, ppo = self.job, self.job.config.ppo
        self._begin_update()
        self._explain()
        self._told_rates.send()
        self._told_keys.send()
        fill_orders(self._orders, self._keys)
        data = self.buffer.flat(*DATA)
        row = 0
        for epoch in range(ppo.epochs):
            self._begin_epoch()
            for index in self._orders[epoch].tensor_split(ppo.minibatches):
                self._train_on(index, data, self._figures[row])
                row += 1
            if ppo.target_kl:
                kl = self._figures[row - ppo.minibatches : row, FIGURES.index("kl")].mean()
                self._active.mul_(kl <= ppo.target_kl)
        if job.obs_normalizer is not None:
            job.obs_normalizer.update(data[0])

    def _begin_update(self) -> None:
        self._told_count.send()
        self._taken.copy_(self._told_count.card)
        self._active.fill_(1.0)
        self._checks[1].fill_(0.0 if self.job.config.ppo.target_kl else self.job.config.ppo.epochs)

    def _begin_epoch(self) -> None:
        """Count those that are trained, if not all may be."""
        if self.job.config.ppo.target_kl:
            self._checks[1] += self._active[0]

    def _train_on(self, index: Tensor, data: list[Tensor], figures: Tensor) -> None:
        """One optimiser step on the samples `index` ``[B]``; writes `figures`, float64 ``[6]``."""
        total, some = self._loss(index, *data)
        pieces = torch.autograd.grad(total, self.job.optimizer.parameters, materialize_grads=True)
        with torch.no_grad():
            self._apply(list(pieces), some, figures)

    def _loss(self, index: Tensor, *data: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of the samples `index`, scaled if in float16, and figures ``[5]`` about it."""
        ppo = self.job.config.ppo
        samples = [x.index_select(0, index) for x in data]
        obs, action, mask, old_log_prob, target, old_value, advantage = samples
        if ppo.normalize_advantage:
            advantage = normalized(advantage)
        with self._precision():
            head, value = self.job.policy(obs)
        head, value = head.float(), value.float()
        if self.job.mask_size:
            head = masked(head, mask)
        log_prob, entropy = self.job.distribution.evaluate(head, action)
        loss: Loss = ppo_loss(
            log_prob,
            entropy,
            value,
            old_log_prob,
            advantage,
            target,
            old_value,
            clip=self._rates[1].float(),
            value_clip=ppo.value_clip,
            value_coef=ppo.value_coef,
            entropy_coef=ppo.entropy_coef,
        )
        return loss.total * self._loss_scale, torch.stack(loss[1:])

    def _apply(self, pieces: list[Tensor], some: Tensor, figures: Tensor) -> None:
        """Clip the gradient and let Adam step, unless the target KL was passed."""
        ppo, adam = self.job.config.ppo, self.job.optimizer
        gradient = torch.cat([piece.flatten() for piece in pieces]) / self._loss_scale
        norm = gradient.norm()
        figures.copy_(torch.cat([some, norm.unsqueeze(0)]))
        if ppo.max_grad_norm:
            gradient = gradient * (ppo.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        if self.job.config.run.nan_guard:
            # A bad gradient moves nothing, so that the weights stay good; reported at the end.
            gradient = gradient.nan_to_num(0.0, 0.0, 0.0)
        adam.step_on_card(gradient, self._rates[0], self._taken, self._active)

    def _wait(self) -> np.ndarray:
        """The one wait of an iteration: for figures, episodes, and whether all was well."""
        self._marks.wait()
        self._under_way = False
        summary = self._summary = self._found.host.copy()  # the next iteration writes there
        self.job.optimizer.count = int(summary[self._recent.numel() + 4])
        return summary

    def _figures_of(self, summary: np.ndarray, iteration: int) -> dict[str, float]:
        """What `update` reports, after the NaN guard."""
        recent, known = self._recent.numel(), self._recent.numel() + self._checks.numel()
        bad, epochs, spread, unexplained, _ = summary[recent:known].tolist()
        if self.job.config.run.nan_guard and not math.isfinite(bad):
            check_device_rollout(self.buffer, iteration)
        rows = summary[known:].reshape(-1, len(FIGURES))
        found = self.report(rows[: round(epochs) * self.job.config.ppo.minibatches], iteration)
        found["explained_variance"] = 1 - unexplained / spread if spread > 0 else float("nan")
        return found

    # How it is executed ---------------------------------------------------------------------
    def _run(self, part: str) -> None:
        """Do a part of an iteration on the card."""
        self._prepare(part)
        with self._on_device(), self._products():
            self._do(part)

    def _on_device(self) -> AbstractContextManager[Any]:
        """Kernels that are not PyTorch's are launched on the card that is the current one."""
        return torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()

    def _prepare(self, part: str) -> None:
        """Layers such as dropout act in updates only."""
        if part != "advantages":
            self.job.policy.train(part == "update")

    def _do(self, part: str) -> None:
        """A part, between the copies that belong to it: all that is captured."""
        if part == "collect":
            self._keep()
        getattr(self, f"_{part}")()
        if part == "update":
            self._found.fetch()

    @property
    def precision(self) -> str:
        """Of the networks: ``"fp32"``, ``"tf32"``, ``"bf16"`` or ``"fp16"``."""
        asked = self.job.config.run.precision
        return self.preferred_precision if asked == "auto" else asked

    @contextmanager
    def _products(self) -> Iterator[None]:
        """Matrix products of float32 are rounded as the precision says."""
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if self.precision == "tf32" else "highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)

    def _precision(self) -> AbstractContextManager[Any]:
        dtype = AUTOCAST.get(self.precision)
        if dtype is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype)

    @property
    def _loss_scale(self) -> float:
        return LOSS_SCALE if self.precision == "fp16" else 1.0

    def timings(self) -> tuple[float, float, float] | None:
        """Seconds of the last iteration's parts, on the card's clock."""
        return self._marks.seconds()

    # state ----------------------------------------------------------------------------------
    def state(self) -> dict[str, np.ndarray]:
        """The running returns of the reward normalisation."""
        return {"return_carry": self._carry.cpu().numpy().copy()}

    def set_state(self, state: dict[str, Any]) -> None:
        """See `Engine`."""
        carry = state.get("return_carry")
        if not isinstance(carry, np.ndarray) or carry.shape != tuple(self._carry.shape):
            raise ValueError(f"return_carry must have shape {tuple(self._carry.shape)}")
        self._carry.copy_(torch.from_numpy(carry.astype(np.float32)))

    def read_recent(self) -> np.ndarray:
        """Number of episodes, then returns and lengths of the last: from the card, if need be."""
        if self._summary is None:
            return self._recent.cpu().numpy()
        return self._summary[: self._recent.numel()]


def copy_all(copies: list[Tensor], tensors: list[Tensor]) -> None:
    """Copy `tensors` to `copies`, those of one dtype at a time: PyTorch does it by one kernel."""
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        pairs = zip(copies, tensors, strict=True)
        to, own = zip(*(pair for pair in pairs if pair[1].dtype == dtype), strict=True)
        torch._foreach_copy_(to, own)


class DeviceEpisodes(Episodes):
    """Episodes of a rollout on the card: read from there when they are looked at."""

    _engine: DeviceEngine

    def __init__(self, engine: DeviceEngine) -> None:
        object.__setattr__(self, "_engine", engine)

    def __len__(self) -> int:
        return int(self._engine.read_recent()[0])

    def last(self, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns and lengths of the last `most` episodes, 100 at most, in order."""
        recent = self._engine.read_recent()
        count = min(int(recent[0]), most, RECENT)
        returns, lengths = recent[1 : 1 + count], recent[1 + RECENT : 1 + RECENT + count]
        return returns[::-1], lengths[::-1].astype(np.int64)

    @cached_property
    def _all(self) -> tuple[np.ndarray, ...]:
        b = self._engine.buffer
        terminated, ended = b.terminated.cpu().numpy(), b.truncated.cpu().numpy()
        cut = ended & ~terminated
        step, env = np.nonzero(ended | terminated)
        report = b.report.cpu().numpy()[step, env]
        lengths = report[:, 1].copy().view(np.int32)
        return env, step, report[:, 0].copy(), lengths, cut[step, env]

    env_index = property(lambda self: self._all[0])
    step = property(lambda self: self._all[1])
    returns = property(lambda self: self._all[2])
    lengths = property(lambda self: self._all[3])
    truncated = property(lambda self: self._all[4])
