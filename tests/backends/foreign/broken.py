"""Broken environments by the hundred, and the sentence that each must be answered with.

A `Fault` says what goes wrong and where. `Broken` is sound until then: of a batch with the seed
`SEED` only environment 1 goes wrong in ``reset`` and ``step``, so that a wrong name shows.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from operant.backends.foreign.seeds import env_seed

SEED, BAD = 5, 1
ALL, OWN_PROCESS, ANOTHER_THREAD = (
    ("serial", "threads", "processes"),
    ("processes",),
    ("threads", "processes"),
)
"""Where a fault can be met at all: what ends or holds up its process needs one of its own."""


@dataclass(frozen=True)
class Fault:
    """Something that an environment does wrong."""

    where: str
    """``init``, ``reset``, ``step``, ``render`` or ``close``."""
    how: str
    sentence: str
    """Part of what must be said, a regular expression; ``""``: nothing, the batch goes on."""
    backends: tuple[str, ...] = ALL
    space: str = "box"
    index: int | None = BAD
    """Which environment must be named."""

    @property
    def name(self) -> str:
        return f"{self.where}: {self.how}" + ("" if self.space == "box" else f" ({self.space})")

    @property
    def hangs(self) -> bool:
        return "hang" in self.how or "busy" in self.how


class UnprintableError(Exception):
    """Neither its text nor its form for pickle can be had."""

    def __init__(self) -> None:
        super().__init__("x")
        self.lock = threading.Lock()

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def _busy() -> None:
    while True:
        pass


def _fork() -> None:
    if os.fork() == 0:
        time.sleep(1e6)


def _raise(error: BaseException) -> Any:
    raise error


def _recurse() -> Any:
    return _recurse()


RAISES: dict[str, tuple[Callable[[], Any], str]] = {
    "KeyError": (lambda: _raise(KeyError("lost")), "KeyError: 'lost'"),
    "no text": (lambda: _raise(AssertionError()), "AssertionError"),
    "unprintable": (lambda: _raise(UnprintableError()), "UnprintableError: .its text cannot be"),
    "SystemExit": (lambda: _raise(SystemExit("bye")), "SystemExit: bye"),
    "sys.exit": (lambda: sys.exit(0), "SystemExit: 0"),
    "GeneratorExit": (lambda: _raise(GeneratorExit()), "GeneratorExit"),
    "StopIteration": (lambda: _raise(StopIteration(3)), "StopIteration: 3"),
    "recursion": (_recurse, "RecursionError: maximum recursion depth"),
    "memory": (lambda: _raise(MemoryError("full")), "MemoryError: full"),
    "surrogate": (lambda: _raise(ValueError("\udcff")), "ValueError: "),
    "group": (lambda: _raise(ExceptionGroup("both", [KeyError(1)])), "ExceptionGroup: both"),
}
CTRL_C = {"KeyboardInterrupt": (lambda: _raise(KeyboardInterrupt()), "KeyboardInterrupt")}
ENDS: dict[str, tuple[Callable[[], Any], str]] = {
    "os._exit(0)": (lambda: os._exit(0), "ended with exit code 0"),
    "os._exit(3)": (lambda: os._exit(3), "ended with exit code 3"),
    "SIGKILL": (lambda: os.kill(os.getpid(), signal.SIGKILL), "was killed by SIGKILL"),
    "SIGTERM": (lambda: os.kill(os.getpid(), signal.SIGTERM), "was killed by SIGTERM"),
    "SIGSEGV": (lambda: os.kill(os.getpid(), signal.SIGSEGV), "was killed by SIGSEGV"),
    "SIGBUS": (lambda: os.kill(os.getpid(), signal.SIGBUS), "was killed by SIGBUS"),
}
HANGS: dict[str, Callable[[], Any]] = {"hang": lambda: time.sleep(1e6), "busy": _busy}
GOES_ON: dict[str, Callable[[], Any]] = {
    "prints": lambda: print("seen"),
    "forks": _fork,
    "starts a thread": lambda: threading.Thread(target=time.sleep, args=(1e-3,)).start(),
    "seeds the global generator": lambda: np.random.seed(0),
}
ALONE_GOES_ON: dict[str, Callable[[], Any]] = {
    "closes stdout": lambda: os.close(1),
    "changes the folder": lambda: os.chdir("/"),
    "ignores SIGTERM": lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "starts a lasting thread": lambda: threading.Thread(target=time.sleep, args=(1e6,)).start(),
}
SPACES: dict[str, Callable[[], spaces.Space[Any]]] = {
    "box": lambda: spaces.Box(-9, 9, (2,), np.float32),
    "image": lambda: spaces.Box(0, 7, (2, 2), np.uint8),
    "int8": lambda: spaces.Box(-128, 127, (2,), np.int8),
    "discrete": lambda: spaces.Discrete(4),
    "dict": lambda: spaces.Dict(
        {"a": spaces.Box(-9, 9, (2,), np.float64), "b": spaces.Discrete(3)}
    ),
    "tuple": lambda: spaces.Tuple((spaces.Discrete(3), spaces.MultiBinary(2))),
}
SOUND: dict[str, Any] = {
    "box": np.zeros(2, np.float32),
    "image": np.zeros((2, 2), np.uint8),
    "int8": np.zeros(2, np.int8),
    "discrete": 1,
    "dict": {"a": np.zeros(2), "b": 1},
    "tuple": (1, np.zeros(2, np.int8)),
}
OBS: dict[tuple[str, str], tuple[Any, str]] = {
    ("box", "three"): (np.zeros(3, np.float32), r"of shape \(3,\); its space has shape \(2,\)"),
    ("box", "a number"): (np.float32(1), r"of shape \(\); its space has shape \(2,\)"),
    ("box", "a row"): (np.zeros((1, 2), np.float32), r"of shape \(1, 2\); its space has"),
    ("box", "empty"): (np.zeros(0, np.float32), r"of shape \(0,\)"),
    ("box", "None"): (None, "an observation"),
    ("box", "text"): (np.array(["a", "b"]), "of dtype <U1; its space has float32"),
    ("box", "complex"): (np.zeros(2, complex), "of dtype complex128; its space has float32"),
    ("box", "objects"): (np.array([{}, {}]), "of dtype object; its space has float32"),
    ("box", "dict"): ({"a": 1}, "an observation"),
    ("box", "ragged"): ([[1], [1, 2]], "an observation that is no array: list"),
    ("box", "NaN"): (np.array([0, np.nan], np.float32), r"an observation that is NaN at \[1\]"),
    ("box", "all NaN"): (np.full(2, np.nan), r"an observation that is NaN at \[0\]"),
    ("image", "float"): (np.zeros((2, 2)), "of dtype float64; its space has uint8"),
    ("image", "flat"): (np.zeros(4, np.uint8), r"of shape \(4,\); its space has shape \(2, 2\)"),
    ("int8", "300"): (np.array([300, 0], np.int64), "with numbers that int8, which its space has"),
    ("image", "negative"): ([[-1, 0], [0, 0]], "of dtype int64; its space has uint8"),
    ("image", "above its bounds"): (
        np.array([[0, 0], [0, 9]], np.uint8),
        r"an observation that is 9 at \[1, 1\], which is not in its space Box\(0, 7",
    ),
    ("discrete", "4 of 4"): (4, r"an observation that is 4, which is not in its space Discrete"),
    ("discrete", "-1"): (np.int64(-1), "an observation that is -1, which is not in its space"),
    ("discrete", "1.5"): (1.5, "of dtype float64; its space has int64"),
    ("discrete", "text"): ("left", "of dtype <U4; its space has int64"),
    ("discrete", "None"): (None, "of dtype object; its space has int64"),
    ("discrete", "array"): (np.zeros(2, int), r"of shape \(2,\); its space has shape \(\)"),
    ("dict", "key missing"): ({"a": np.zeros(2)}, "without 'b', which is in its space: a dict"),
    ("dict", "no dict"): (np.zeros(2), "without 'a', which is in its space"),
    ("dict", "None"): (None, "without 'a', which is in its space: NoneType"),
    ("dict", "leaf None"): ({"a": None, "b": 1}, "'a' of an observation of shape"),
    ("dict", "leaf shape"): ({"a": np.zeros(5), "b": 1}, r"'a' of an observation of shape \(5,\)"),
    ("dict", "leaf NaN"): (
        {"a": np.array([np.nan, 0]), "b": 1},
        "'a' of an observation that is NaN",
    ),
    ("dict", "3 of 3"): ({"a": np.zeros(2), "b": 3}, "'b' of an observation that is 3, which is"),
    ("tuple", "two as a bit"): ((1, np.array([0, 2], np.int8)), r"'1' of .* that is 2 at \[1\], "),
    ("tuple", "short"): ((1,), "without '1', which is in its space: a tuple of 1"),
    ("tuple", "leaf shape"): ((1, np.zeros(3, np.int8)), r"'1' of an observation of shape \(3,\)"),
}
REWARDS: dict[str, tuple[Any, str]] = {
    "None": (None, "gave the reward None, which is no number"),
    "text": ("1.0", "gave the reward '1.0', which is no number"),
    "two": (np.ones(2), r"gave the reward array\(\[1., 1.\]\), which is no number"),
    "list": ([], r"gave the reward \[\], which is no number"),
    "complex": (1j, "gave the reward 1j, which is no number"),
    "unprintable": (Unprintable(), "gave the reward a Unprintable that cannot be printed"),
    "NaN": (float("nan"), "gave a reward that is NaN"),
    "NaN of NumPy's": (np.float32("nan"), "gave a reward that is NaN"),
    "infinite": (float("inf"), "gave a reward that is -?inf"),
    "minus infinite": (-np.inf, "gave a reward that is -?inf"),
}
FLAGS: dict[str, tuple[Any, str]] = {
    "array": (np.zeros(2, bool), r"gave array\(\[False, False\]\) for \w+, not True or False"),
    "None": (None, r"gave None for \w+, not True or False"),
    "text": ("False", r"gave 'False' for \w+, not True or False"),
    "empty": ([], r"gave \[\] for \w+, not True or False"),
    "unprintable": (Unprintable(), r"gave a Unprintable that cannot be printed for \w+"),
}
RESULTS = {"none": None, "a number": 3, "four": (0, 0, 0, 0), "six": (0,) * 6, "empty": ()}
RESETS = {"none": None, "obs alone": np.zeros(2), "three parts": (0, 0, 0), "info None": (0, None)}
MASKS: dict[str, tuple[Any, str]] = {
    "short": ([1], r"must give 2 truth values in info\[\"action_mask\"\] in every step"),
    "none": (None, r"must give 2 truth values .* got None"),
    "text": ("left", r"must give 2 truth values .* got 'left'"),
    "empty": ([0, 0], "allows no action at all"),
}


class Broken(gymnasium.Env[Any, Any]):
    """Sound until the place that `fault` names."""

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, where: str, how: str, space: str = "box") -> None:
        self.where, self.how, self.kind = where, how, space
        self.observation_space = SPACES[space]()
        self.action_space = spaces.Discrete(2)
        self.render_mode = "rgb_array"
        self.bad = False
        if where == "init":
            self._do()
            self._wrong_spaces()

    def _wrong_spaces(self) -> None:
        wrong: dict[str, Any] = {
            "text space": spaces.Text(4),
            "sequence space": spaces.Sequence(spaces.Discrete(2)),
            "space None": None,
            "space a number": 7,
            "other spaces": spaces.Box(-1, 1, (int.from_bytes(os.urandom(2), "big"),)),
        }
        if self.how in wrong:
            self.observation_space = wrong[self.how]
        if self.how == "no action space":
            del self.action_space

    def _do(self) -> None:
        """Raise, end, hang, or do something odd, if this is one of those."""
        for group in (RAISES, CTRL_C, ENDS):
            if self.how in group:
                group[self.how][0]()
        for odd in (HANGS, GOES_ON, ALONE_GOES_ON):
            if self.how in odd:
                odd[self.how]()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.count = 0
        self.bad = self.bad if seed is None else seed == env_seed(SEED, BAD)
        info = {"action_mask": np.ones(2, np.int8)} if self.where == "mask" else {}
        if self.bad and self.where == "reset":
            self._do()
            if self.how in RESETS:
                return RESETS[self.how]
            return self._obs(), info
        return SOUND[self.kind], info

    def _obs(self) -> Any:
        return OBS[self.kind, self.how][0] if (self.kind, self.how) in OBS else SOUND[self.kind]

    def step(self, action: Any) -> Any:
        self.count += 1
        now = self.bad and self.count == 2
        info: Any = {"action_mask": np.ones(2, np.int8)} if self.where == "mask" else {}
        if not now or self.where in ("reset", "render", "close", "init"):
            return SOUND[self.kind], 1.0, False, False, info
        if self.where == "step":
            self._do()
        if self.where == "result":
            return RESULTS[self.how]
        if self.where == "info":
            info = {"None": None, "list": [], "number": 3}[self.how]
        if self.where == "mask":
            info = {} if self.how == "missing" else {"action_mask": MASKS[self.how][0]}
        obs = self._obs() if self.where == "step" else SOUND[self.kind]
        if self.where == "final":
            return OBS[self.kind, self.how][0], 1.0, True, False, info
        reward = REWARDS[self.how][0] if self.where == "reward" else 1.0
        flags = [FLAGS[self.how][0] if self.where == w else False for w in _FLAG_NAMES]
        return obs, reward, *flags, info

    def render(self) -> Any:
        if self.where == "render" and self.bad:
            self._do()
        return np.zeros((2, 2, 3), np.uint8)

    def close(self) -> None:
        if self.where == "close" and self.bad:
            self._do()


_FLAG_NAMES = ("terminated", "truncated")


def faults() -> Iterator[Fault]:
    """All of them."""
    for how, (_, said) in RAISES.items():
        yield Fault("init", how, f"environment 0 could not be made: {said}", index=0)
        for where in ("reset", "step", "render"):
            yield Fault(where, how, rf"environment 1 \(Broken\) raised in {where}\(\): {said}")
        yield Fault("close", how, "")
    for where in ("reset", "step"):
        said = rf"environment 1 \(Broken\) raised in {where}\(\): KeyboardInterrupt"
        yield Fault(where, "KeyboardInterrupt", said, ANOTHER_THREAD)
    for how, (_, said) in ENDS.items():
        yield Fault("init", how, f"the process of environment 0 {said} while", OWN_PROCESS, index=0)
        for where, doing in (("reset", "was reset"), ("step", "stepped"), ("render", "was drawn")):
            yield Fault(
                where, how, f"process of environment 1 {said} while it {doing}", OWN_PROCESS
            )
        yield Fault("close", how, "", OWN_PROCESS)
    for how in HANGS:
        said = r"environment 0 did not answer within \S+ s while it was made"
        yield Fault("init", how, said, OWN_PROCESS, index=0)
        late = r"environment 1 did not answer within \S+ s"
        for where in ("reset", "step"):
            yield Fault(where, how, late, OWN_PROCESS if how == "busy" else ANOTHER_THREAD)
        yield Fault("close", how, "", OWN_PROCESS)
    for how in GOES_ON:
        for where in ("init", "reset", "step", "close"):
            yield Fault(where, how, "", ALL if how != "forks" else OWN_PROCESS)
    for how in ALONE_GOES_ON:
        for where in ("init", "step"):
            yield Fault(where, how, "", OWN_PROCESS)
    yield from _values()
    yield from _spaces()


def _values() -> Iterator[Fault]:
    named = r"environment 1 \(Broken\) "
    for (space, how), (_, said) in OBS.items():
        for where in ("reset", "step", "final"):
            yield Fault(where, how, named + "gave .*" + said, space=space)
    for how, (_, said) in REWARDS.items():
        yield Fault("reward", how, named + said)
    for where in _FLAG_NAMES:
        for how, (_, said) in FLAGS.items():
            yield Fault(where, how, named + said)
    for how in RESULTS:
        yield Fault("result", how, named + r"must return \(obs, reward, terminated, truncated, inf")
    for how in RESETS:
        yield Fault("reset", how, named + r"must return \(obs, dict\) from reset\(\), got")
    for how, shown in (("None", "None"), ("list", r"\[\]"), ("number", "3")):
        yield Fault("info", how, named + f"gave {shown} for info, not a dict")
    for how, (_, said) in MASKS.items():
        yield Fault("mask", how, named + said)
    yield Fault("mask", "missing", named + "must give 2 truth values .* got None")


def _spaces() -> Iterator[Fault]:
    yield Fault("init", "text space", "write a text as a MultiDiscrete", index=None)
    yield Fault("init", "sequence space", "write a sequence as a Box", index=None)
    for how in ("space None", "space a number"):
        yield Fault("init", how, "Broken has no observation_space; set it in __init__", index=None)
    yield Fault("init", "no action space", "Broken has no action_space; set it in", index=None)
    different = r"environment \d has the observation_space Box\(.*, the others have Box\("
    yield Fault("init", "other spaces", different, index=None)
