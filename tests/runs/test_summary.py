"""A run at a glance: whatever its files hold, in a moment."""

from __future__ import annotations

import json
import time

import pytest

from operant.runs import summary as module
from operant.runs.directory import Run
from operant.runs.metrics_file import MetricsWriter, Status
from operant.runs.summary import summary


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))
    return Run.create("one", '[env]\nid = "CartPole-v1"\n[run]\nseed = 3\ntotal_steps = 512\n')


def write_live(run, rows):
    with MetricsWriter(run.mmap_file, ("steps", "mean_return"), run_id=run.id) as writer:
        for row in rows:
            writer.append(row)
        writer.say(Status.FINISHED)


def test_the_last_row_is_that_of_the_live_metrics(run, monkeypatch):
    write_live(run, [(256.0, 20.5), (512.0, 31.25)])
    monkeypatch.setattr(module, "read_csv", None)  # the long way
    found = summary(run)
    assert (found.env, found.seed, found.total_steps) == ("CartPole-v1", 3, 512)
    assert (found.state, found.steps, found.mean_return) == ("finished", 512, 31.25)
    assert found.reward_threshold == 475


@pytest.mark.parametrize("live", ["missing", "empty", "damaged"])
def test_without_live_metrics_the_csv_is_read(run, live):
    if live == "empty":
        write_live(run, [])
    elif live == "damaged":
        run.mmap_file.write_bytes(b"what")
    run.csv_file.write_text("steps,mean_return,seconds\n256,20.5,1\n512,,2\n")
    found = summary(run)
    assert (found.steps, found.mean_return, found.seconds) == (512, None, 2)
    assert found.state == ("finished" if live == "empty" else None)


@pytest.mark.parametrize("seed", ["0x" + "f" * 5000, str(2**63), "true", "'3'", "nan"])
def test_a_seed_that_is_none(run, seed):
    run.config_file.write_text(f"[run]\nseed = {seed}\ntotal_steps = {2**63 - 1}")
    found = summary(run)
    assert (found.seed, found.total_steps) == (None, 2**63 - 1)
    json.dumps(found.to_dict())


def test_steps_beyond_64_bits(run):
    write_live(run, [(1e300, 1.0)])
    assert summary(run).steps is None


DEEP = "\n".join(f"k{i}{'.a' * 900} = 1" for i in range(34))
HEADER = "[a" + ".a" * 900 + "]\n" + "\n".join(f"{i}.b.c = 1" for i in range(4000))


@pytest.mark.parametrize("text", ["a" + ".a" * 15_000 + " = 1", DEEP, HEADER, "#" * 70_000])
def test_a_configuration_that_takes_long_to_parse_is_left(run, text):
    run.config_file.write_text('env.id = "CartPole-v1"\n' + text)
    began = time.process_time()
    assert summary(run).env is None
    assert time.process_time() - began < 0.2
