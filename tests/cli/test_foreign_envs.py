"""Environments of other libraries on the command line: train, resume, eval, record, export."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from operant.cli import main
from operant.ppo.session import Session
from operant.runs.checkpoint import latest_checkpoint, load_checkpoint
from operant.runs.directory import find_run
from operant.training.callbacks import Callback

SMALL = ["--num-envs", "4", "--set", "ppo.num_steps=16", "--set", "ppo.minibatches=2"]
SMALL += ["--set", "env.backend=serial", "--set", "run.eval_episodes=4", "--engine", "eager"]
SMALL += ["--set", "policy.hidden=[8]", "--threads", "1", "--device", "cpu"]
WALK = """
import pathlib
import gymnasium
import numpy as np

pathlib.Path("imported").write_text("yes")


class Walk(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, size=4, render_mode=None):
        self.size, self.render_mode = size, render_mode
        self.observation_space = gymnasium.spaces.Box(0, 99, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.x += int(action)
        return np.full(1, self.x, np.float32), -0.1, self.x >= self.size, False, {}

    def render(self):
        return np.full((8, 8, 3), 10 * self.x, np.uint8)


class Same(gymnasium.Wrapper):
    pass


def make_env(**params):
    return gymnasium.wrappers.TimeLimit(Walk(**params), 30)
"""


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory):
    home, here = tmp_path_factory.mktemp("home"), Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPERANT_HOME", str(home))
        patch.setenv("COLUMNS", "200")
        os.chdir(home)
        (home / "walk.py").write_text(WALK)
        yield home
        os.chdir(here)


@pytest.fixture
def cli(monkeypatch, capsys):
    def run(*arguments: str, code: int = 0) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["operant", *arguments])
        found = 0
        try:
            main()
        except SystemExit as end:
            found = end.code or 0
        out, err = capsys.readouterr()
        assert found == code, err
        assert "Traceback" not in err
        return out, err

    return run


def test_code_is_run_only_where_the_user_names_it(cli, folder: Path) -> None:
    options = ["--total-steps", "64", "--set", "env.params.size=3"]
    _, err = cli("train", "walk.py:make_env", *SMALL, *options, "--run-id", "walk")
    assert "Walk has no get_state() and set_state(): when this is resumed, the environ" in err
    assert "environments serial: asked for" in err
    (folder / "imported").unlink()
    for verb in ("eval", "record", "export"):
        _, err = cli(verb, "walk", code=2)
        assert "its code is not run unless you name it; if you trust it, add --env walk.py" in err
    _, err = cli("train", "--resume", "walk", "--total-steps", "128", code=2)
    assert "if you trust it: operant train walk.py:make_env --resume walk" in err
    assert not (folder / "imported").exists()
    named = ["--env", "walk.py:make_env"]
    out, _ = cli("eval", "walk", *named, "--episodes", "3", "--json")
    assert json.loads(out)["env"] == "walk.py:make_env"
    cli("record", "walk", *named, "--out", "walk.gif")
    assert (folder / "walk.gif").read_bytes()[:3] == b"GIF"
    assert (folder / "imported").exists()
    cli("train", "walk.py:make_env", "--resume", "walk", "--total-steps", "128")
    assert load_checkpoint(latest_checkpoint(find_run("walk").checkpoints)).step == 128


def test_wrappers_that_a_run_names_are_not_imported(cli, folder: Path) -> None:
    both = ["walk:Same", "gymnasium.wrappers:ClipReward(min_reward=-0.05)"]
    wrappers = f"env.wrappers={json.dumps(both)}"
    options = ["--total-steps", "64", "--set", wrappers, "--set", "env.max_episode_steps=20"]
    sys.modules.pop("walk", None)  # found in the working directory, as code of environments is
    cli("train", "FrozenLake-v1", *SMALL, *options, "--run-id", "wrapped")
    sys.modules.pop("walk", None)
    (folder / "imported").unlink(missing_ok=True)
    _, err = cli("eval", "wrapped", code=2)
    assert "not imported unless you name it too; if you trust it, add --wrapper walk:Same" in err
    _, err = cli("train", "--resume", "wrapped", "--total-steps", "128", code=2)
    assert f"if you trust it, add --set '{wrappers}'" in err
    assert not (folder / "imported").exists()
    cli("eval", "wrapped", "--wrapper", "walk:Same", "--episodes", "2")
    cli("train", "--resume", "wrapped", "--total-steps", "128", "--set", wrappers)
    _, err = cli("train", "FrozenLake-v1", "--set", 'env.wrappers=["walk_no:Same"]', code=2)
    assert "there is no module 'walk_no' here or on the path" in err


def test_wrappers_in_the_working_directory_reach_worker_processes(cli) -> None:
    sys.modules.pop("walk", None)
    options = ["--total-steps", "64", "--set", 'env.wrappers=["walk:Same"]']
    options += ["--set", "env.backend=processes", "--set", "env.workers=2"]
    cli("train", "FrozenLake-v1", *SMALL, *options, "--run-id", "workers")


def test_an_id_of_a_package_is_named_again(cli, folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "envs.py").write_text(WALK)
    text = (
        'import gymnasium\ngymnasium.register("Mine-v0", "mine.envs:Walk", max_episode_steps=9)\n'
    )
    (folder / "mine" / "__init__.py").write_text(text)
    options = ["--total-steps", "64", "--set", "env.backend=processes", "--set", "env.workers=2"]
    cli("train", "mine:Mine-v0", *SMALL, *options, "--run-id", "mine")
    _, err = cli("eval", "mine", code=2)
    assert "if you trust it, add --env mine:Mine-v0" in err
    cli("eval", "mine", "--env", "mine:Mine-v0", "--episodes", "2")
    gymnasium.registry.pop("Mine-v0")


def test_the_configuration_of_an_id_without_its_version(cli) -> None:
    found = [cli("config", name)[0] for name in ("LunarLander", "LunarLander-v3")]
    assert found[0] == found[1]
    assert 'id = "LunarLander-v3"' in found[0]
    assert "gamma = 0.999" in found[0]


@pytest.mark.parametrize("name", ["FrozenLake-v1", "walk.py:make_env"])
def test_profile(cli, folder: Path, name: str) -> None:
    options = ["--seconds", "0.01", "--repeats", "1", "--out", str(folder / "artifacts")]
    options += ["--mode", "env_only", "--mode", "trainer"]
    wanted = [word for word in SMALL if not word.startswith("--thread") and word != "1"]
    out, _ = cli("profile", name, *wanted, *options, "--json")
    modes = json.loads(out)["modes"]
    assert [mode["mode"] for mode in modes] == ["env_only", "trainer"]


BLIND = """
from walk import Walk

class Unseen(Walk):
    def __init__(self):
        super().__init__()

class Dark(Walk):
    def render(self):
        return None
"""


def test_what_cannot_be_filmed_is_said(cli, folder: Path) -> None:
    (folder / "blind.py").write_text(BLIND)
    options = [*SMALL, "--total-steps", "64", "--set", "env.max_episode_steps=9"]
    for name, sentence in (
        ("Unseen", 'cannot be filmed, for which it is made with render_mode="rgb_array": '),
        ("Dark", "render() gave None"),
    ):
        cli("train", f"blind.py:{name}", *options, "--run-id", name)
        _, err = cli("record", name, "--env", f"blind.py:{name}", code=2)
        assert sentence in err


def test_a_target_without_a_place(cli) -> None:
    for name in (":", ":Walk"):
        _, err = cli("config", name, code=2)
        assert "names no file and no module; write path/to/file.py:name" in err


class _StopAfter(Callback):
    def __init__(self, iterations: int) -> None:
        self._left = iterations

    def on_update(self, ppo, metrics) -> None:
        self._left -= 1
        if self._left == 0:
            ppo.stop()


@pytest.mark.parametrize("env", ["FrozenLake-v1", "gymnasium:CartPole-v1"])
def test_resumed_to_the_bit(cli, folder: Path, env: str) -> None:
    from operant.cli.target import load_env
    from operant.ppo.config_file import parsed_settings, resolved

    values = parsed_settings([word for word in SMALL if "=" in word])
    values |= {"env.num_envs": 4, "run.total_steps": 384, "run.engine": "eager"}
    values |= {"run.device": "cpu", "run.threads": 1, "run.seed": 5}
    config = resolved(env, values, {"env.id": env})
    ends = []
    for stop in (99, 3):
        name = f"{env.rpartition(':')[2].lower()}-{stop}"
        session = Session.start(config, load_env(env), name)
        session.train([_StopAfter(stop)])
        if stop == 3:
            resumed = Session.resume(find_run(name))
            assert resumed.resumed == 192
            resumed.train()
        ends.append(load_checkpoint(latest_checkpoint(find_run(name).checkpoints)))
        shutil.rmtree(find_run(name).path)
    one, other = ends
    assert one.step == other.step == 384
    for group, arrays in one.arrays.items():
        for key, array in arrays.items():
            np.testing.assert_array_equal(array, other.arrays[group][key], err_msg=f"{group}/{key}")
