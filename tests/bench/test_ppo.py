"""How PPO is measured beside its peers: turns, records, and who may take part."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from operant.bench import peers, ppo
from operant.bench.peers import Setting
from operant.bench.peers import rejax as rejax_peer
from operant.bench.peers import sb3 as sb3_peer

TINY = Setting(
    num_envs=8, num_steps=4, epochs=1, minibatches=2, hidden=(8,), engine="eager", threads=1
)


class FakeTrainer:
    """Notes what it is asked to do; an iteration takes as long as `clock` says."""

    def __init__(self, name: str, setting: Setting, order: list[str], clock: Any) -> None:
        self.name, self.setting, self.order, self.clock = name, setting, order, clock
        ours = {"collect": 0.25, "advantages": 0.05, "update": 0.7}
        self.shares = ours if name == "operant" else None
        self.flops_per_step = 2e7 if name == "operant" else None

    def train(self, iterations: int) -> None:
        self.order.append(f"{self.name} {iterations}")
        self.clock.now += iterations * {"operant": 0.5, "sb3": 4.0}[self.name]

    def close(self) -> None:
        self.order.append(f"close {self.name}")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> tuple[list[ppo.Contender], list[str], list[str]]:
    """Two contenders after three rounds, what they did, and what was shown."""
    order: list[str] = []
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(ppo.time, "perf_counter", lambda: clock.now)
    everyone = [
        ppo.Contender(
            name, TINY, lambda one, name=name, own=own: FakeTrainer(name, own, order, clock)
        )
        for name, own in {"operant": TINY, "sb3": replace(TINY, num_envs=4)}.items()
    ]
    return everyone, order, list(ppo.measure(everyone, repeats=3, seconds=1.2))


def test_rounds_are_interleaved_and_sized_in_whole_iterations(measured: Any) -> None:
    everyone, order, shown = measured
    warm_up = ["operant 1", "operant 1", "sb3 1", "sb3 1"]
    assert order == [*warm_up, *["operant 3", "sb3 1"] * 3, "close operant", "close sb3"]
    assert shown[:2] == ["starting operant CartPole-v1", "starting sb3 CartPole-v1"]
    assert shown[-1] == "round 3 of 3: sb3 CartPole-v1"
    assert [one.rounds for one in everyone] == [[64.0] * 3, [4.0] * 3]


def test_records_are_flat_and_complete(measured: Any) -> None:
    everyone, _, _ = measured
    everyone[0].rounds[:] = [90.0, 100.0, 400.0]
    ours, theirs = ppo.records(everyone)
    assert ours == {
        "system": "operant",
        "env": "CartPole-v1",
        "engine": "eager",
        "device": "cpu",
        "num_envs": 8,
        "num_steps": 4,
        "epochs": 1,
        "minibatches": 2,
        "hidden": [8],
        "activation": "tanh",
        "threads": 1,
        "precision": "auto",
        "compile": "max",
        "sps": 100,
        "sps_min": 90,
        "sps_max": 400,
        "repeats": 3,
        "collect_share": 0.25,
        "advantages_share": 0.05,
        "update_share": 0.7,
        "gflops": 2.0,
        "limit_gflops": None,
        "limit_share": None,
        "ratio_to": {"sb3": 25.0},
    }
    assert theirs["num_envs"] == 4  # what it really ran with
    assert theirs["collect_share"] is theirs["update_share"] is theirs["gflops"] is None
    assert theirs["ratio_to"] == {}
    everyone[0].limit_gflops = 8.0
    assert ppo.records(everyone)[0]["limit_share"] == 0.25


def test_our_other_engines_can_be_peers() -> None:
    setting = Setting(num_envs=8, num_steps=4, hidden=(8,), device="cpu", engine="fused")
    ours, other = ppo.contenders(setting, ["eager"])
    assert (ours.setting.engine, other.system, other.setting.engine) == ("fused", "eager", "eager")
    assert ours.ours
    assert other.ours
    assert ppo.usual_peers("cpu", "auto") == []


def test_on_a_gpu_they_are_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    from operant.ppo.engines import choose

    monkeypatch.setattr(choose, "choose_device", lambda name: torch.device("cuda", 0))
    assert ppo.usual_peers("auto", "fused") == ["graph", "eager"]
    assert ppo.usual_peers("auto", "graph") == ["eager"]


def test_ours_trains_whole_rollouts_with_the_setting() -> None:
    trainer = ppo.OurTrainer(replace(TINY, engine="auto"))
    assert trainer.setting.engine in ("eager", "graph", "fused")
    config = trainer._ppo.config
    assert (config.policy.hidden, config.ppo.epochs, config.ppo.minibatches) == ((8,), 1, 2)
    assert (config.ppo.entropy_coef, config.ppo.learning_rate) == (0.01, 2.5e-4)
    assert config.run.threads == 1
    trainer.train(1)
    trainer.train(3)
    assert trainer._ppo.steps == 4 * 8 * 4
    assert trainer.shares is not None
    assert list(trainer.shares) == ["collect", "advantages", "update"]
    assert min(trainer.shares.values()) > 0
    assert sum(trainer.shares.values()) == pytest.approx(1)
    # Two networks 4-8-(2, 1): 2 x 88 operations forward, twice that backward but for the first
    # layers' 2 x 64; in one epoch and once to act.
    assert trainer.flops_per_step == 176 + (176 + 2 * 176 - 128)
    trainer.close()


def test_every_figure_of_the_setting_reaches_ours() -> None:
    given = ppo._options(Setting())
    assert not given.pop("policy.normalize_obs")  # a peer's PPO does not, nor does ours then
    assert not given.pop("ppo.normalize_reward")
    assert given.pop("ppo.learning_rate_schedule") == "constant"
    for name, value in given.items():
        key = name.partition(".")[2]
        assert value == getattr(Setting(), key), name
    missing = set(Setting.__dataclass_fields__) - {n.partition(".")[2] for n in ppo._options(TINY)}
    assert missing == {"env"}  # is the environment itself


def test_contenders_resolve_the_device_and_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sb3_peer, "_import", lambda: None)
    everyone = ppo.contenders(replace(TINY, env="operant/CartPole-v1"), ["sb3"])
    assert [one.system for one in everyone] == ["operant", "sb3"]
    assert {one.setting.env for one in everyone} == {"CartPole-v1"}
    with pytest.raises(ValueError, match=r"unknown peer 'puffer'; known: sb3, rejax"):
        ppo.contenders(TINY, ["puffer"])
    with pytest.raises(ValueError, match="unknown environment 'Nope-v0'"):
        ppo.contenders(replace(TINY, env="Nope-v0"), [])


def test_minibatches_must_be_equal() -> None:
    with pytest.raises(ValueError, match="must divide a rollout of 8 x 4 = 32 steps, got 5"):
        replace(TINY, minibatches=5)


@pytest.mark.parametrize(("name", "package"), peers.PEERS.items())
def test_a_missing_peer_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package.replace("-", "_"), None)
    with pytest.raises(ValueError, match=f"{name} is not installed: pip install {package}$"):
        ppo.contenders(TINY, [name])


def test_a_peer_that_does_not_import_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "rejax.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "rejax", raising=False)
    with pytest.raises(ValueError, match=r"does not import \(No module named 'no_such_dep"):
        ppo.contenders(TINY, ["rejax"])


# The peers themselves ------------------------------------------------------------------------
class FakeJax(ModuleType):
    """As much of JAX as the peer touches; notes what is waited for."""

    def __init__(self) -> None:
        super().__init__("jax")
        self.waited: list[Any] = []
        self.lax = SimpleNamespace(fori_loop=self.fori_loop)
        self.random = SimpleNamespace(PRNGKey=lambda seed: seed)

    def jit(self, function: Any) -> Any:
        return function

    def fori_loop(self, first: int, end: int, step: Any, state: Any) -> Any:
        for k in range(first, end):
            state = step(k, state)
        return state

    def block_until_ready(self, state: Any) -> Any:
        self.waited.append(state)
        return state

    def devices(self, kind: str) -> list[str]:
        if kind == "gpu":
            raise RuntimeError("Unknown backend gpu")
        return ["cpu 0"]

    def default_device(self, device: str) -> Any:
        return nullcontext()


class FakeRejaxPPO:
    """Counts its iterations."""

    options: ClassVar[dict[str, Any]]

    def __init__(self, **options: Any) -> None:
        FakeRejaxPPO.options = options

    def init_state(self, key: int) -> int:
        return key

    def train_iteration(self, state: int) -> int:
        return state + 1


@pytest.fixture
def fake_jax(monkeypatch: pytest.MonkeyPatch) -> FakeJax:
    jax, rejax = FakeJax(), ModuleType("rejax")
    rejax.PPO = SimpleNamespace(create=FakeRejaxPPO)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setitem(sys.modules, "rejax", rejax)
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # so that it is restored
    return jax


def test_rejax_waits_for_its_iterations(fake_jax: FakeJax) -> None:
    rejax_peer.check(TINY)
    trainer = rejax_peer.open_trainer(TINY)
    trainer.train(3)
    trainer.train(2)
    assert fake_jax.waited == [3, 5]
    assert trainer.setting.engine == "jit"
    assert trainer.setting.threads >= 1
    options = FakeRejaxPPO.options
    assert (options["num_envs"], options["num_steps"]) == (8, 4)
    assert (options["num_epochs"], options["num_minibatches"]) == (1, 2)
    assert options["agent_kwargs"] == {"activation": "tanh", "hidden_layer_sizes": (8,)}
    trainer.close()


def test_rejax_without_the_device_asked_for(fake_jax: FakeJax) -> None:
    with pytest.raises(ValueError, match=r"run on cuda:0, but its JAX does not see it"):
        rejax_peer.check(replace(TINY, device="cuda:0"))


@pytest.mark.filterwarnings("ignore")  # of its dependencies
def test_rejax_itself_trains() -> None:
    pytest.importorskip("rejax")
    trainer = rejax_peer.open_trainer(TINY)
    trainer.train(2)
    assert int(trainer._state.global_step) == 2 * TINY.rollout


def test_sb3_itself_trains_with_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("stable_baselines3")
    import torch

    monkeypatch.setattr(sb3_peer, "NUM_ENVS", 4)
    before = torch.get_num_threads()
    sb3_peer.check(TINY)
    trainer = sb3_peer.open_trainer(TINY)
    model = trainer._model
    assert (trainer.setting.num_envs, trainer.setting.device) == (4, "cpu")
    assert (model.n_envs, model.n_steps, model.batch_size, model.n_epochs) == (4, 4, 8, 1)
    done = model.num_timesteps
    trainer.train(2)
    assert model.num_timesteps == done + 2 * 4 * 4
    assert torch.get_num_threads() == before
    shapes = [tuple(p.shape) for p in model.policy.parameters() if p.ndim == 2]
    assert shapes == [(8, 4), (8, 4), (2, 8), (1, 8)]  # two bodies, two heads
    trainer.close()
