"""`operant check` compiles what it says compiles, and finds what only the reference notices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from operant.backends.cpu import kernels as numba
from operant.check.code import check_compiles, check_errors
from operant.check.env_check import check_env
from operant.check.finding import CheckFailed
from operant.check.plays import random_actions, repeated_actions
from operant.compiler.spec.rules import Rules
from operant.envs import get_env

from ..modules import load
from .conftest import TESTS


@pytest.fixture(scope="module")
def raising() -> ModuleType:
    return load(TESTS / "raising_envs.py")


def marked_line(module: ModuleType, name: str) -> int:
    """The line ``#!`` of a class, or of the function that it calls."""
    lines = Path(str(module.__file__)).read_text().splitlines()
    head = "def share(" if name == "HelperRaises" else f"class {name}("
    start = next(k for k, line in enumerate(lines) if line.startswith(head))
    return next(k for k, line in enumerate(lines, 1) if k > start and line.endswith("#!"))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Outside", "step() raised IndexError: index 4 of state.n is outside 0..3"),
        ("Negative", "step() raised IndexError: index -1 of state.n is outside 0..3"),
        ("ByZero", "step() raised ZeroDivisionError: "),
        ("NoChoice", "step() raised ValueError: integers() chooses among 1 to 2**24 numbers"),
        (
            "TooLarge",
            "step() raised OverflowError: 260 does not fit into state.small, which is uint8: 0",
        ),
        ("ShiftedBack", "step() raised ValueError: a shift is by 0 to 63 bits, got -1"),
        ("NotANumber", "step() raised ValueError: cannot convert float NaN to integer"),
        ("HelperRaises", "share() raised ZeroDivisionError: "),
    ],
)
def test_what_a_function_raises_is_a_finding(
    raising: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    # Nothing is compared here, so nothing is compiled.
    monkeypatch.setattr("operant.check.code.available_backends", lambda env: ["reference"])
    env = getattr(raising, name)
    with pytest.raises(CheckFailed) as found:
        check_errors(env)
    message = str(found.value)
    assert message.startswith(f"{raising.__file__}:{marked_line(raising, name)}: {said}")
    assert " on reference; compiled code " in message
    raised_too = "IndexError" in said or "OverflowError" in said
    assert message.endswith("raises it too)" if raised_too else "goes on with another number)")


def test_what_a_function_raises_is_said_once(raising: ModuleType) -> None:
    *others, last = check_env(raising.TooLarge)
    assert [finding.name for finding in others] == ["compiles"]
    assert (last.name, last.passed) == ("errors", False)
    place = f"{raising.__file__}:{marked_line(raising, 'TooLarge')}"
    assert last.detail == (
        f"{place}: step() raised OverflowError: 260 does not fit into state.small, which is uint8: "
        "0 to 255; declare it int32, or write clip(x, 0, 255) (at step 13 on reference; compiled "
        "code raises it too)"
    )


def test_an_index_outside_at_once_is_no_mistake_of_the_compiler(
    raising: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    class AtOnce(raising.Sound):  # type: ignore[name-defined, misc]
        def step(state, action):  # type: ignore[no-untyped-def]
            state.n[state.n[1] + 4] += 1
            return 1.0, False

    monkeypatch.setattr("operant.toolchain.host_kernels.host_compiler", lambda: None)
    compiles, errors = check_env(AtOnce)
    assert (compiles.name, compiles.passed) == ("compiles", True)
    assert compiles.detail.startswith("cpu: compiled; cuda: ")
    assert (errors.name, errors.passed) == ("errors", False)
    assert "index 4 of state.n is outside 0..3; ask before with `if`, or write" in errors.detail


def test_a_loop_that_does_not_end_is_said_once(raising: ModuleType) -> None:
    (finding,) = check_env(raising.Endless)
    assert (finding.name, finding.passed) == ("compiles", False)
    place = f"{raising.__file__}:{marked_line(raising, 'Endless')}"
    assert finding.detail.startswith(
        f"{place}: `while state.n[1] < 10` did not end within 16777216 passes; let the loop change "
    )


def test_no_finding_is_a_traceback(raising: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever check meets it, also the ones on compiled code, and the note at the end."""
    monkeypatch.setattr("operant.check.env_check.check_errors", lambda env: "not looked for")
    found = {finding.name: finding for finding in check_env(raising.Outside)}
    failed = {name: finding.detail for name, finding in found.items() if not finding.passed}
    assert {"finite", "parity", "autoreset", "episodes"} <= set(failed)
    place = f"{raising.__file__}:{marked_line(raising, 'Outside')}: "
    assert {detail.startswith(place) for detail in failed.values()} == {True}


def test_a_sound_environment_has_no_errors(raising: ModuleType) -> None:
    assert check_errors(raising.Sound) == "no function raised in 240 steps of 8 environments"
    assert check_errors(get_env("CartPole-v1")).startswith("no function raised in 510 steps of 128")


def test_some_environments_repeat_their_actions() -> None:
    layout = Rules.of(get_env("Pendulum-v1")).action
    first = actions = random_actions(layout, 64, 0)
    changes = [0] * 4
    for step in range(100):
        before, actions = actions, repeated_actions(layout, actions, 1 + step)
        for k in range(4):
            changes[k] += int((before[k::4] != actions[k::4]).sum())
    assert actions.dtype == first.dtype
    assert changes[0] == 1600
    assert changes[0] > changes[1] > changes[2] > 0
    assert changes[3] == 0


def test_states_are_compared_with_repeated_actions(
    raising: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    class TwoFaced(raising.Sound):  # type: ignore[name-defined, misc]
        def step(state, action):  # type: ignore[no-untyped-def]
            state.n[1] += action
            if state.n[1] > 18:  # never met by actions that change at random
                state.n[2] = 77
            return 1.0, False

    real = numba.array_kernels_source

    def other(*given: Any) -> Any:
        source, places = real(*given)
        return source.replace("77", "78"), places

    monkeypatch.setattr(numba, "array_kernels_source", other)
    with pytest.raises(CheckFailed, match=r"state\.n differs between reference and cpu at step 19"):
        check_errors(TwoFaced)


# Compiling ----------------------------------------------------------------------------------------
def test_what_compiles_is_said(raising: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operant.toolchain.host_kernels.host_compiler", lambda: None)
    cpu, cuda = "cpu: compiled, and it runs", "cuda: its C++ was printed; not compiled"
    assert check_compiles(raising.Sound) == f"{cpu}; {cuda}, no GPU and no C++ compiler here"
    text = check_compiles(get_env("CartPole-v1"))
    assert text == f"{cpu}; cuda: its Triton source was printed; not compiled, no GPU here"


def broken(real: Callable[..., Any]) -> Callable[..., Any]:
    """A printer whose text is no program."""

    def printed(*given: Any) -> Any:
        found = real(*given)
        bad = "this is no program\n"
        return (bad, found[1]) if isinstance(found, tuple) else bad

    return printed


@pytest.mark.parametrize(
    ("env", "printer", "backend"),
    [
        ("arrays", "operant.backends.cpu.kernels.array_kernels_source", "cpu"),
        ("numbers", "operant.backends.cpu.kernels.kernels_source", "cpu"),
        ("arrays", "operant.compiler.emit.cuda_array_kernels.array_cuda_source", "cuda"),
        ("numbers", "operant.compiler.emit.triton_kernels.kernels_source", "cuda"),
    ],
)
def test_what_does_not_compile_is_the_only_finding(
    raising: ModuleType, monkeypatch: pytest.MonkeyPatch, env: str, printer: str, backend: str
) -> None:
    from operant.toolchain.host_kernels import host_compiler

    if env == "arrays" and backend == "cuda" and host_compiler() is None:
        pytest.skip("there is no C++ compiler")
    module, _, name = printer.rpartition(".")
    real = getattr(__import__(module, fromlist=[name]), name)
    monkeypatch.setattr(printer, broken(real))
    target = raising.Sound if env == "arrays" else get_env("CartPole-v1")
    (finding,) = check_env(target)
    assert (finding.name, finding.passed) == ("compiles", False)
    said = f"{target.__qualname__} cannot be compiled for backend {backend!r}: "
    assert finding.detail.startswith(said)
    assert "\n" not in finding.detail
