"""Mistakes that do not stand where the object is named: changes to what outlives the call."""

from __future__ import annotations

from .mistakes import CHANGED, HEAD, LINE, SPOKEN, Change, step


def calling(helper: str, call: str) -> list[Change]:
    """A helper above the class, with its wrong line marked, and a line that calls it."""
    return [(HEAD, f"{helper}\n\n\n{HEAD}"), (LINE, f"x = {call} + v")]


NOTE = "def note(x, log{}):\n    {}  #!\n    return x"
COUNTER = """\
class Counter:
    count = 0

    {}
        self.count += 1  #!
        return 0.5


COUNTER = Counter()"""
QUEUE = "import queue\n\nQUEUE = queue.Queue()"
HIDDEN_MISTAKES: dict[str, tuple[Change | list[Change], str]] = {
    "a list that is an argument": (
        calling(NOTE.format("", "log.append(x)"), "note(state.x, LOG)"),
        f"`log.append(){CHANGED}",
    ),
    "a list that is a named argument": (
        calling(NOTE.format("", "log.append(x)"), "note(state.x, log=LOG)"),
        f"`log.append(){CHANGED}",
    ),
    "an argument of an argument": (
        calling(
            f"{NOTE.format('', 'log[0] = x')}\n\n\ndef noted(x, kept):\n    return note(x, kept)",
            "noted(state.x, LOG)",
        ),
        f"`log[0]{CHANGED}",
    ),
    "a list that is a default": (
        calling(NOTE.format("=[]", "log.append(x)"), "note(state.x)"),
        f"`log.append(){CHANGED}",
    ),
    "a list after a star": (
        calling(NOTE.format("=None, *, kept=[]", "kept.append(x)"), "note(state.x)"),
        f"`kept.append(){CHANGED}",
    ),
    "+= of a list that is an argument": (
        calling(NOTE.format("", "log += [x]"), "note(state.x, LOG)"),
        f"`log += [x]{CHANGED}",
    ),
    "+= of another name": (step("log = LOG\nlog += [v]  #!"), f"`log += [v]{CHANGED}"),
    "a queue": (
        [*calling(QUEUE, "state.x")[:1], step("QUEUE.put(1)")],
        f"`QUEUE.put(){CHANGED}",
    ),
    "a queue of one's own": (
        [
            *calling("import queue\n\nclass Own(queue.Queue): pass\nQUEUE = Own()", "state.x")[:1],
            step("QUEUE.put(1)"),
        ],
        f"`QUEUE.put(){CHANGED}",
    ),
    "a property": (
        calling(COUNTER.format("@property\n    def next(self):"), "COUNTER.next"),
        f"`self.count{CHANGED}",
    ),
    "an object that is called": (
        calling(COUNTER.format("def __call__(self):"), "COUNTER()"),
        f"`self.count{CHANGED}",
    ),
    "a warning": (
        step("import warnings\nwarnings.warn('far')"),
        f"warnings.warn{SPOKEN}",
    ),
    "a member of an Enum": (
        [
            *calling("import enum\n\nclass Way(enum.Enum):\n    LEFT = 0", "state.x")[:1],
            step("v = where(action == Way.LEFT, -v, v)"),
        ],
        "expected a number, got a Way; write Way.LEFT.value, or make it class Way(enum.IntEnum)",
    ),
}
