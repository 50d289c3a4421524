"""`examples/gymnasium_env.py`, `examples/pixels.py` and `examples/atari.py`, with fewer steps."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from gymnasium.utils.env_checker import check_env

from .modules import load

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.usefixtures("unseen_test")
def test_an_environment_of_ones_own_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = importlib.import_module("gymnasium_env")
    ppo = example.main(total_steps=30_000)
    # Doing nothing gives -48, random actions -56, a rule of thumb -6.4 (40 episodes).
    assert ppo.evaluated().greedy.mean_return > -12


def test_a_game_of_pictures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = importlib.import_module("pixels")
    check_env(example.Catch(render_mode="rgb_array"), skip_render_check=True)
    reached = example.main(total_steps=512, num_envs=4, num_steps=32, eval_episodes=8, device="cpu")
    assert -5 <= reached <= 5
    assert f"catches {reached:.2f} more than it misses, of 5" in capsys.readouterr().out


def test_a_ball_that_is_followed_is_caught() -> None:
    env = load(EXAMPLES / "pixels.py").Catch()
    for seed in range(20):
        env.reset(seed=seed)
        total, ended = 0.0, False
        while not ended:  # go where the ball will be
            x, drift = env.x, env.drift
            for _ in range(8 - env.y):
                drift = drift if 0 <= x + drift < 9 else -drift
                x += drift
            _, reward, ended, *_ = env.step(1 + (x > env.paddle) - (x < env.paddle))
            total += reward
        assert total == 5


def test_atari_from_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = importlib.import_module("atari")
    options = {"num_envs": 2, "num_steps": 8, "minibatches": 2, "epochs": 1, "backend": "serial"}
    ppo = example.main(total_steps=16, device="cpu", **options)
    assert ppo.env.single_observation_space.shape == (4, 84, 84)
    assert ppo.steps == 16
