"""Libraries that lie are refused, with the reason, and take nobody down with them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from operant.backends.native.child import run_trial
from operant.backends.native.trial import Trial
from operant.compiler.spec.native_abi import Library
from operant.vector.native import NativeError, load

WALK = "tests/vector/native/walk.c"
ROOT = Path(__file__).parents[3]
Build = Callable[..., Path]

DESCRIPTIONS = {
    "VERSION": "made for version 7 of operant_env.h, and this is version 1: compile it again",
    "STRUCT_SIZE": "its operant_spec has 744 bytes (struct_size), expected 736",
    "LONG_STRUCT": "operant_describe wrote beyond the operant_spec",
    "NO_NAME": "its name must be a C identifier",
    "NO_STATE": "state_bytes must be 1 to 67108864 (64 MiB), got 0",
    "NEGATIVE_STATE": "state_bytes must be 1 to 67108864 (64 MiB), got -8",
    "HUGE_STATE": "(64 MiB), got 4611686018427387904",
    "NO_KIND": "action.kind must be OPERANT_BOX, OPERANT_DISCRETE or OPERANT_MULTI_DISCRETE, got 0",
    "NO_SHAPE": "observation.shape must have at least 1 in each dimension",
    "NEGATIVE_SHAPE": "4194304 numbers in all, got (-2,)",
    "HUGE_SHAPE": "4194304 numbers in all, got (1099511627776,",
    "NO_CHOICES": "action.choices[0] must be 1 to 16777216, got 0",
    "TWO_DIMS": "action.num_dims must be 0 for Discrete, got 2",
    "ODD_MASK": "mask_size must be 0 or 2, one for each action; got 3",
    "BAD_BOUNDS": "observation: number 0 has the bounds 2 to 1",
    "HALF_BOUNDS": "observation.lows and observation.highs go together",
    "NEGATIVE_LIMIT": "max_episode_steps must be 0 (no limit) or more, got -1",
    "ENDLESS_THRESHOLD": "reward_threshold must be finite",
}
PLAYS = {
    "GROWING_STATE": "operant_describe says another state_bytes each time: 48, then 56",
    "NAN_OBS": "operant_step_many, step 3: an observation is nan",
    "UNSET_OBS": "operant_reset_many: an observation is nan, or not set",
    "FAR_OBS": "step 3: number 0 of an observation is 9, outside its bounds 0 to 8",
    "NAN_REWARD": "operant_step_many, step 2: a reward is nan",
    "INFINITE_REWARD": "operant_step_many, step 2: a reward is inf",
    "ODD_FLAG": "terminated must be 0 or 1, got 2",
    "UNSET_FLAG": "terminated must be 0 or 1, got 255",
    "NO_ACTION": "step 2: a mask allows no action; allow one in every state",
    "ODD_MASK_VALUE": "operant_reset_many: a mask holds 3; it must be 0 or 1",
    "WRITES_AFTER": "writes outside its memory: bytes after the rewards of its environments",
    "WRITES_BEFORE": "writes outside its memory: bytes before the observations of its environments",
    "WRITES_STATE_AFTER": "writes outside its memory: bytes after the states of its environments",
    "WRITES_INPUT": "operant_step_many writes outside its memory: actions changed",
    "RESETS_OTHERS": "operant_reset_many writes outside its memory: states of other environments",
    "DRAWS": "played twice, gave other rewards, step 1: it depends on something outside its state",
    "COUNTS": "played twice, gave other rewards, step 1: it depends on something outside its state",
    "KNOWS_ITS_PLACE": "played in another part of a batch, gave other rewards, step 1",
    "KNOWS_ITS_ADDRESS": "played twice, gave other rewards, step 1",
    "RESETS_BY_GLOBAL": "played in another part of a batch, gave other observations",
    "OTHER_VIEW": "operant_observe_many gives other observations than operant_step_many",
    "VIEW_CHANGES": "operant_observe_many writes outside its memory: states changed",
}
MASKED = ("NO_ACTION", "ODD_MASK_VALUE")


@pytest.mark.parametrize("lie", DESCRIPTIONS)
def test_what_it_says_of_itself_is_checked(lie: str, build_library: Build) -> None:
    with pytest.raises(NativeError) as refused:
        Library(build_library(WALK, f"-DLIE={lie}"))
    assert DESCRIPTIONS[lie] in str(refused.value)


@pytest.mark.parametrize("lie", PLAYS)
def test_what_it_does_is_checked(lie: str, build_library: Build) -> None:
    flags = ["-DMULTI"] * (lie in MASKED)
    library = Library(build_library(WALK, f"-DLIE={lie}", *flags))
    with pytest.raises(NativeError) as refused:
        Trial(library, lambda stage: None).play()
    assert PLAYS[lie] in str(refused.value)


@pytest.mark.parametrize("flags", [[], ["-DMULTI"], ["-DCONTINUOUS"]])
def test_an_honest_one_passes(
    flags: list[str], build_library: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operant.backends.native.trial._SECONDS", 600.0)  # the machine may be busy
    called = []
    assert Trial(Library(build_library(WALK, *flags)), called.append).play() == 256
    assert called[0] == "operant_reset_many"
    assert called[-1] == "operant_describe"


@pytest.mark.parametrize(
    ("lie", "sentence"),
    [
        ("CRASHES", "it crashed with SIGSEGV in operant_step_many, step 1"),
        ("ABORTS", "it crashed with SIGABRT in operant_step_many, step 1"),
        ("CRASHES_AT_ONCE", "it crashed with SIGABRT in its initialisation or operant_describe"),
        ("LOOPS", "operant_step_many, step 1 did not return within 0.5 s"),
        ("EXITS", "it ended the process with exit code 0 in operant_step_many, step 1"),
        ("NAN_REWARD", "operant_step_many, step 2: a reward is nan"),
    ],
)
def test_a_library_is_tried_where_it_can_do_no_harm(
    lie: str, sentence: str, build_library: Build
) -> None:
    library = build_library(WALK, f"-DLIE={lie}")
    with pytest.raises(NativeError) as refused:
        load(library, timeout_s=0.5 if lie == "LOOPS" else 20.0)
    assert (
        str(refused.value)
        == f"{library.name} was refused: {refused.value.args[0].split(': ', 1)[1]}"
    )
    assert sentence in str(refused.value)


def test_what_is_no_library_is_refused(build_library: Build, tmp_path: Path) -> None:
    text = tmp_path / "libtext.so"
    text.write_text("not a library")
    with pytest.raises(NativeError, match=r"libtext\.so was refused: it cannot be loaded: "):
        load(text)
    bare = build_library(WALK, "-DWITHOUT_OBSERVE")
    with pytest.raises(NativeError, match="it lacks operant_observe_many; a library exports all"):
        load(bare, trial=False)
    with pytest.raises(FileNotFoundError, match=r"there is no library 'nowhere\.so'"):
        load("nowhere.so")
    with pytest.raises(ValueError, match="timeout_s must be positive"):
        run_trial(bare, 0.0)


def test_the_trial_is_left_out_on_request(build_library: Build) -> None:
    liar = build_library(WALK, "-DLIE=COUNTS")
    assert load(liar, trial=False).__name__ == "Walk"
    with pytest.raises(NativeError, match="was refused: the same environment, played twice"):
        load(liar)


def test_sanitizers_find_nothing_in_the_example(build_library: Build, tmp_path: Path) -> None:
    build_library("examples/native/snake.c")  # skips where there is no compiler
    program = tmp_path / "driver"
    sources = [ROOT / "tests/vector/native/driver.c", ROOT / "examples/native/snake.c"]
    flags = ["-std=c11", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    flags += [f"-I{ROOT / 'src/operant/vector'}", "-o", str(program)]
    compiler = shutil.which("cc") or shutil.which("gcc") or "clang"
    built = subprocess.run(
        [compiler, *flags, *map(str, sources), "-lm"], capture_output=True, text=True
    )
    if built.returncode and "san" in built.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert built.returncode == 0, built.stderr
    done = subprocess.run([str(program), "33", "2000"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout.split()[0]) > 1000
