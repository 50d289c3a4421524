"""`env.impl`: plain Python or compiled, said in a configuration."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

import operant
from operant.envs import CartPole
from operant.ppo import batch
from operant.ppo.config import Config, EnvConfig
from operant.ppo.config_file import parsed_settings, resolved
from operant.training.evaluate import evaluation_env

CPU, GPU = torch.device("cpu"), torch.device("cuda", 1)


@pytest.mark.parametrize(
    ("wanted", "device", "backend"),
    [
        ({}, CPU, "cpu"),
        ({"impl": "native"}, CPU, "cpu"),
        ({"impl": "reference"}, CPU, "reference"),
        ({"impl": "reference", "backend": "reference"}, CPU, "reference"),
        ({"impl": "native", "backend": "cpu"}, GPU, "cpu"),
        ({"impl": "native"}, GPU, "cuda:1"),
        ({"impl": "native", "backend": "cuda"}, GPU, "cuda:1"),
        ({"impl": "reference"}, GPU, "reference"),
    ],
)
def test_the_backend_that_a_configuration_means(
    wanted: dict[str, Any], device: torch.device, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "why_not_cuda", lambda: None)
    assert batch.backend_for(EnvConfig(**wanted), device, CartPole) == backend


def test_compiled_code_never_becomes_plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Numba ``"auto"`` is plain Python; ``"native"`` says what is missing."""
    monkeypatch.setattr("operant.vector.choose_backend._has_numba", lambda: False)
    assert batch.backend_for(EnvConfig(), CPU, CartPole) == "reference"
    with pytest.raises(ValueError, match="backend 'cpu' needs numba, which is not installed"):
        operant.PPO("CartPole-v1", impl="native", device="cpu")


def test_a_run_in_plain_python() -> None:
    ppo = operant.PPO("CartPole-v1", num_envs=4, num_steps=8, impl="reference", device="cpu")
    assert (ppo.env.backend, ppo.config.env.impl, ppo.config.env.backend) == (
        "reference",
        "reference",
        "auto",
    )
    assert evaluation_env("CartPole-v1", ppo.config.env, 2).backend == "reference"
    ppo.learn(64)


@pytest.mark.parametrize(("impl", "backend"), [("native", "reference"), ("reference", "cpu")])
def test_an_implementation_that_the_backend_contradicts(impl: str, backend: str) -> None:
    text = f"env.impl is '{impl}', but env.backend is '{backend}': leave one of them 'auto'"
    with pytest.raises(ValueError, match=text):
        Config().replaced({"env.impl": impl, "env.backend": backend})
    made = operant.make("CartPole-v1", 4, backend=backend, autoreset_mode="SameStep")
    with pytest.raises(ValueError, match=text):
        operant.PPO(made, impl=impl)
    assert operant.PPO(made, Config(env=EnvConfig(impl=impl))).env is made, "the batch decides"


def test_other_names_and_values() -> None:
    with pytest.raises(ValueError, match=r"env\.impl must be one of auto, reference, native, got"):
        EnvConfig(impl="cpu")
    with pytest.raises(ValueError, match=r"here it is impl \(env\.impl\)"):
        parsed_settings(["env_impl=native"])
    with pytest.warns(UserWarning, match=r"^ppo_env_impl is called env\.impl here$"):
        values = parsed_settings(["ppo_env_impl=reference"])
    assert resolved("CartPole-v1", values).env.impl == "reference"
    with pytest.raises(ValueError, match=r"belongs in a section: \[env\]"), pytest.warns():
        Config.from_dict({"ppo_env_impl": "native"})


def test_the_command_line() -> None:
    command = ["-m", "operant", "config", "CartPole-v1", "--set", "ppo_env_impl=native"]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True)
    assert 'impl = "native"' in done.stdout
    assert "ppo_env_impl is called env.impl here" in done.stderr
