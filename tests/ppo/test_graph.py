"""The graph engine, on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import operant
from operant.models import PPO
from operant.training.callbacks import Callback
from operant.training.guard import NonFiniteError

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
SMALL = {"num_envs": 256, "num_steps": 16, "epochs": 2, "minibatches": 4, "seed": 3}
ROLLOUT = 256 * 16


def ppo_with(engine: str, env: Any = "CartPole-v1", **options: Any) -> PPO:
    given = {"device": "cuda", "engine": engine, "compile": "off", "precision": "fp32"}
    return PPO(env, **{**SMALL, **given, **options})


def weights(ppo: PPO) -> Tensor:
    return torch.cat([p.detach().flatten() for p in ppo.policy.parameters()])


@pytest.mark.parametrize(
    ("env", "options"),
    [
        ("CartPole-v1", {"target_kl": 0.01}),
        ("Pendulum-v1", {"normalize_obs": True, "normalize_reward": True, "value_clip": 0.2}),
    ],
)
def test_replaying_is_running(env: str, options: dict[str, Any]) -> None:
    graph, eager = (ppo_with(engine, env, **options) for engine in ("graph", "eager"))
    assert graph.engine.name == "graph"
    assert eager.engine.name == "eager"
    assert graph.env.backend == eager.env.backend == "cuda"
    for ppo in (graph, eager):
        ppo.learn(4 * ROLLOUT)
    torch.testing.assert_close(weights(graph), weights(eager), rtol=1e-4, atol=1e-5)
    assert graph.mean_return == pytest.approx(eager.mean_return, rel=1e-3, nan_ok=True)
    assert graph.episodes == eager.episodes
    assert all(part > 0 for part in graph.timings)


@pytest.mark.parametrize("level", ["off", "on"])
def test_the_same_seed_gives_the_same_bits(level: str) -> None:
    one, same = (
        ppo_with("graph", compile=level, precision="auto").learn(3 * ROLLOUT) for _ in range(2)
    )
    assert one.engine.compiled == (level == "on")
    assert one.engine.precision == "tf32"
    assert torch.equal(weights(one), weights(same))


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
def test_low_precision_trains_float32_weights(precision: str) -> None:
    ppo, exact = ppo_with("graph", precision=precision), ppo_with("graph")
    for trained in (ppo, exact):
        trained.learn(ROLLOUT)
    assert weights(ppo).dtype == torch.float32
    assert 0 < (weights(ppo) - weights(exact)).abs().max() < 5e-3


def test_save_and_load_continue_to_the_bit(tmp_path: Any) -> None:
    options = {"normalize_obs": True, "normalize_reward": True, "total_steps": 4 * ROLLOUT}

    class Halt(Callback):
        def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
            if ppo.iteration == 2:
                ppo.stop()

    whole = ppo_with("graph", "Pendulum-v1", **options).learn()
    half = ppo_with("graph", "Pendulum-v1", **options)
    half.learn(callbacks=Halt())
    half.save(tmp_path)
    loaded = PPO.load(tmp_path)
    assert loaded.engine.name == "graph"
    assert torch.equal(weights(loaded.learn()), weights(whole))
    on_cpu = PPO.load(tmp_path, device="cpu", engine="auto")
    assert on_cpu.engine.name == "fused"
    on_cpu.learn()
    np.testing.assert_allclose(weights(on_cpu), weights(whole).cpu(), atol=0.05)


def test_weights_changed_in_place_and_replaced() -> None:
    ppo, other = ppo_with("graph"), ppo_with("graph", seed=9)
    ppo.learn(ROLLOUT)
    ppo.policy.load_state_dict(other.policy.state_dict())
    ppo.engine.collect(0, 0)
    before = ppo.engine.buffer.value.clone()
    for parameter in ppo.policy.parameters():
        parameter.data = parameter.data.clone()
    ppo.engine.collect(0, 0)
    now = ppo.policy.value(ppo.engine.buffer.obs[0])
    torch.testing.assert_close(now, ppo.engine.buffer.value[0], rtol=1e-4, atol=1e-5)
    assert not torch.equal(before, ppo.engine.buffer.value)  # the environments went on


class Own(nn.Module):
    """A network of someone's own."""

    def __init__(self, curious: bool = False) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.body, self.head = nn.Linear(4, 32), nn.Linear(32, 2)
        self.value = nn.Linear(32, 1)
        self.curious = curious

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.relu(self.body(obs))
        if self.curious and x.mean().item() > 1e9:
            x = -x
        return self.head(x), self.value(x).squeeze(-1)


class Littering(Own):
    """Leaves another trainer, which only the garbage collector finds, while it is captured."""

    litter: list[PPO]

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        if self.litter and torch.cuda.is_current_stream_capturing():
            older = self.litter.pop()
            older.itself = older  # type: ignore[attr-defined]
            del older
            [[] for _ in range(100_000)]  # Python collects garbage when so many are made
        return super().forward(obs)


def test_garbage_of_an_older_engine_does_not_break_a_capture() -> None:
    policy = Littering()
    policy.litter = [ppo_with("graph")]
    assert ppo_with("graph", policy=policy).engine.name == "graph"
    assert not policy.litter


def test_any_module_and_one_that_looks_at_the_host() -> None:
    ppo = ppo_with("auto", policy=Own())
    assert ppo.engine.name == "graph"
    assert ppo.engine_reason.startswith("the fastest for this job; not fused, because it knows")
    ppo.learn(2 * ROLLOUT)
    curious = ppo_with("graph", policy=Own(curious=True))
    assert curious.engine.name == "eager"
    assert "cannot capture the policy" in curious.engine_reason
    curious.learn(2 * ROLLOUT)
    torch.testing.assert_close(weights(curious), weights(ppo), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("nan_guard", [False, True])
def test_one_read_an_iteration(nan_guard: bool) -> None:
    from torch.profiler import ProfilerActivity, profile

    ppo = ppo_with("graph", nan_guard=nan_guard)
    ppo.learn(2 * ROLLOUT)
    # Without `acc_events` PyTorch (to 2.12) warns that it drops those of earlier cycles, but
    # only in the first profile of a process: whichever test came first would fail.
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as found:
        ppo.learn(5 * ROLLOUT)
        torch.cuda.synchronize()
    names = [event.name for event in found.events()]
    assert sum("DtoH" in name for name in names) == 3
    assert not any("Pageable" in name for name in names)  # such a copy keeps the host waiting


def test_bad_numbers_are_found_and_undone() -> None:
    class Spoil(Callback):
        def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
            with torch.no_grad():
                ppo.policy.critic_head.bias.fill_(float("inf"))

    ppo = ppo_with("graph")
    with pytest.raises(NonFiniteError, match=r"iteration 1: the value of environment 0"):
        ppo.learn(3 * ROLLOUT, Spoil())
    assert ppo.optimizer.count == 8


def trained(ppo: PPO) -> list[Tensor]:
    adam = ppo.optimizer
    tensors = [*ppo.policy.state_dict().values(), adam.exp_avg, adam.exp_avg_sq]
    return [tensor.detach().clone() for tensor in tensors]


@pytest.mark.parametrize("replaced", [False, True])
def test_everything_is_put_back(replaced: bool) -> None:
    class Spoil(Callback):
        def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
            for parameter in ppo.policy.parameters() if replaced else ():
                parameter.data = parameter.data + 0.125
            self.before, self.count = trained(ppo), ppo.optimizer.count

        def on_rollout(self, ppo: PPO, buffer: Any) -> None:
            if ppo.iteration == 2:
                buffer.reward[1, 2] = float("nan")

    ppo, spoil = ppo_with("graph", normalize_obs=True, normalize_reward=True), Spoil()
    with pytest.raises(NonFiniteError, match="iteration 2: the loss"):
        ppo.learn(4 * ROLLOUT, spoil)
    assert ppo.optimizer.count == spoil.count == 16
    for found, good in zip(trained(ppo), spoil.before, strict=True):
        assert torch.equal(found, good)


def test_what_was_handed_out_is_not_overwritten() -> None:
    ppo, handed, copies = ppo_with("graph", "Pendulum-v1", max_episode_steps=5), [], []
    for iteration in range(3):
        episodes = ppo.engine.collect(iteration, 16 * iteration)
        ppo.engine.advantages()
        ppo.engine.update(iteration, 1e-3, 0.2)
        handed.append(episodes.last(100)[0])
        copies.append(handed[-1].copy())
    for array, copy in zip(handed, copies, strict=True):
        assert np.array_equal(array, copy)
    assert not np.array_equal(copies[0], copies[1])


def test_episodes_for_those_who_listen() -> None:
    class Watch(Callback):
        total, count = 0.0, 0

        def on_episodes(self, ppo: PPO, episodes: Any) -> None:
            self.total += float(episodes.returns.sum())
            self.count += len(episodes)
            assert (episodes.returns == episodes.lengths).all()  # CartPole pays 1 a step

    ppo, watch = ppo_with("graph"), Watch()
    ppo.learn(4 * ROLLOUT, watch)
    assert ppo.episodes == watch.count > 0
    assert watch.total < 4 * ROLLOUT


def test_it_learns() -> None:
    ppo = PPO("CartPole-v1", device="cuda", num_envs=1024, num_steps=32, seed=1, engine="graph")
    ppo.learn(1_500_000)
    assert ppo.mean_return > 200  # a random policy: 22


def test_too_many_environments_say_how_many_would_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    # Not really taken: tests of other processes need memory too.
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**30, 2**37))
    for name in ("memory_reserved", "memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda device: 0)
    with pytest.raises(MemoryError, match=r"about [\d,]+ environments would fit"):
        operant.make("CartPole-v1", 2**24, backend="cuda")
    with pytest.raises(MemoryError, match=r"a rollout of .* about [\d,]+ environments would fit"):
        ppo_with("graph", num_envs=2**20, num_steps=512)
