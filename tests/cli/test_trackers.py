"""W&B and what it could be made to do by files that are not the user's."""

from __future__ import annotations

import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from operant.ppo.config_file import resolved
from operant.ppo.session import Session
from operant.runs.directory import Run
from operant.toolchain.child import python_command, python_environment

KEY = "0123456789" * 4


class _Recorder(http.server.BaseHTTPRequestHandler):
    """Writes down every request, and refuses it."""

    requests: list[str]

    def _any(self) -> None:
        self.requests.append(f"{self.command} {self.path} {self.headers}")
        self.send_error(403)

    do_GET = do_POST = do_PUT = do_HEAD = do_CONNECT = _any

    def log_message(self, *arguments: object) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """A server on this machine: its address, and the requests that came."""
    handler = type("Handler", (_Recorder,), {"requests": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_port}", handler.requests
        finally:
            running.shutdown()
            thread.join()


@pytest.fixture
def variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The variables of a user without an account, with a home of their own."""
    pytest.importorskip("wandb")
    kernels = Path(os.environ["OPERANT_HOME"]) / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "kernels").symlink_to(kernels)
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path / "home"))
    plain = {k: v for k, v in python_environment().items() if not k.startswith("WANDB_")}
    folders = {f"WANDB_{k}_DIR": str(tmp_path / k) for k in ("CACHE", "CONFIG", "DATA")}
    return plain | folders | {"NETRC": str(tmp_path / "netrc"), "HOME": str(tmp_path)}


def train(words: list[str], folder: Path, variables: dict[str, str]) -> tuple[int, str]:
    command = python_command("-m", "operant", "train", *words, "--set=run.eval_episodes=0")
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, " ".join(done.stderr.split())


NEW = ["CartPole-v1", "--total-steps=2000", "--set=run.wandb=true"]


def test_settings_in_the_working_directory_do_not_get_the_key(
    server: tuple[str, list[str]], variables: dict[str, str], tmp_path: Path
) -> None:
    address, requests = server
    (tmp_path / "here" / "wandb").mkdir(parents=True)
    (tmp_path / "here" / "wandb" / "settings").write_text(f"[default]\nbase_url = {address}\n")
    code, said = train(NEW, tmp_path / "here", variables | {"WANDB_API_KEY": KEY})
    assert code == 2
    assert "operant: W&B would obey " in said  # kernels may have been compiled before it
    assert requests == []
    assert not list((tmp_path / "home" / "runs").glob("*"))


@pytest.mark.parametrize("checkpoints", [True, False])
def test_a_run_does_not_switch_it_on(
    checkpoints: bool, server: tuple[str, list[str]], variables: dict[str, str]
) -> None:
    address, requests = server
    config = resolved("CartPole-v1", {"run.total_steps": 2000})
    session = Session.start(config, "CartPole-v1", "strange")
    session.train()
    run = session.run
    if checkpoints:
        forge_config(run)
    else:
        (run.path / "checkpoints").rename(run.path / "away")
        for name in ("metrics.csv", "metrics.jsonl"):
            (run.path / name).unlink()
        text = run.config_file.read_text().replace("wandb = false", "wandb = true")
        run.config_file.write_text(text)
    (run.path / "wandb").mkdir()
    (run.path / "wandb" / "settings").write_text(f"[default]\nbase_url = {address}\n")
    words = ["--resume", "strange", "--total-steps=6000"]
    code, said = train(words, run.path, variables | {"WANDB_API_KEY": KEY})
    assert code == 0
    assert said.count("the run's own configuration asks for W&B") == 1
    assert "--set run.wandb=true" in said
    assert "asks for W&B" in run.log_file.read_text()
    assert requests == []


def forge_config(run: Run) -> None:
    """Switch W&B on in the newest checkpoint, with a manifest that agrees."""
    import hashlib
    import json

    from operant.runs.checkpoint import latest_checkpoint

    folder = latest_checkpoint(run.checkpoints)
    facts = json.loads((folder / "facts.json").read_text())
    facts["config"] = facts["config"].replace("wandb = false", "wandb = true")
    data = json.dumps(facts).encode()
    (folder / "facts.json").write_bytes(data)
    manifest = json.loads((folder / "manifest.json").read_text())
    digest = hashlib.sha256(data).hexdigest()
    manifest["files"]["facts.json"] = {"size": len(data), "sha256": digest}
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_offline_connects_to_nothing_and_runs_no_git(
    server: tuple[str, list[str]], variables: dict[str, str], tmp_path: Path
) -> None:
    address, requests = server
    here = tmp_path / "here"
    here.mkdir()
    subprocess.run(["git", "init", "-q", str(here)], check=True)
    trap = f"touch {tmp_path / 'RAN'}; false"
    subprocess.run(["git", "-C", str(here), "config", "core.fsmonitor", trap], check=True)
    proxies = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"), address)
    reporting = {"WANDB_ERROR_REPORTING": "true", "NO_PROXY": "", "no_proxy": ""}
    code, said = train(NEW, here, variables | proxies | reporting)
    assert code == 0, said
    assert list((tmp_path / "home" / "runs").glob("*/wandb/offline-run-*"))
    assert requests == []
    assert not (tmp_path / "RAN").exists()
