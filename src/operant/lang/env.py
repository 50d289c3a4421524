"""What an environment's author writes: the rules of one environment, as plain functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple


class NoParams(NamedTuple):
    """The parameters of an environment that has none."""


class Env:
    """Base class of environments: subclass it and write the rules of *one* environment.

    The functions are static: they get values and return values, and keep nothing. They may use
    arithmetic, comparisons, ``&``, ``|`` and the words of `operant.lang`; a choice is
    ``where(condition, a, b)``. Seeding, batching, auto-reset, the time limit, episode statistics
    and compilation belong to the library. Each function takes the arguments it names:

    - ``reset(random, params) -> State``
    - ``step(state, action, random, params) -> (State, reward, terminated)``
    - ``observe(state, params)`` -> the observation's components
    - ``action_mask(state, params)`` -> a truth value for each action: whether it is allowed
      (optional; the actions of a MultiDiscrete space component by component)
    - ``render(state, canvas, params)`` draws a picture (optional; plain Python, never compiled)

    ``random`` is a tuple of `random_numbers` independent uniform numbers in ``[0, 1)``; ``action``
    is an int for a Discrete space and a tuple of numbers for Box and MultiDiscrete spaces.

    A definition that cannot be compiled raises `operant.lang.LanguageError` when the class
    statement runs, with file, line and what to write instead.
    """

    observation_space: ClassVar[Any]
    """A Gymnasium space, or a function of the parameters that returns one."""
    action_space: ClassVar[Any]
    """A Gymnasium space, or a function of the parameters that returns one."""
    max_episode_steps: ClassVar[int | None] = None
    """Steps after which an episode is truncated; None for no limit."""
    time_limit: ClassVar[Callable[..., int] | None] = None
    """A function of the parameters that returns `max_episode_steps`, where that depends on them: a
    larger maze takes longer. The attribute is what it returns for the defaults."""
    reward_threshold: ClassVar[float | None] = None
    """Mean return at which the task counts as solved."""
    env_id: ClassVar[str] = ""
    """The id of an environment that comes with the library, such as ``"CartPole-v1"``, read from
    its file in ``operant/envs``. For one of your own there is `operant.register`."""
    training: ClassVar[Mapping[str, Any]] = {}
    """Options of the training by dotted name, such as ``{"ppo.gamma": 0.98}``: what a run of this
    environment, named by its id, starts from. Not inherited."""
    random_numbers: ClassVar[int] = 4
    """How many uniform numbers ``random`` holds."""
    render_size: ClassVar[tuple[int, int]] = (600, 400)
    """Width and height in pixels of the picture that ``render`` draws on."""
    render_fps: ClassVar[int] = 30
    """Frames a second at which a recording runs in real time."""

    Params: ClassVar[type[Any]] = NoParams
    """A NamedTuple of parameters with defaults. Floats can change without compiling again; ints,
    bools and strings are constants of the compiled code, so ``if params.flag:`` is allowed."""
    State: ClassVar[type[Any]]
    """A NamedTuple of float, int and bool fields: everything the next step depends on."""

    reset: ClassVar[Callable[..., Any]]
    step: ClassVar[Callable[..., Any]]
    observe: ClassVar[Callable[..., Any]]
    action_mask: ClassVar[Callable[..., Any] | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse what cannot be compiled."""
        super().__init_subclass__(**kwargs)
        for check in definition_checks:
            check(cls)

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise TypeError(
            f"{type(self).__qualname__} holds rules and has no instances; "
            f"run it with operant.make({type(self).__qualname__}, num_envs=...)"
        )


definition_checks: list[Callable[[type[Env]], None]] = []
"""What looks at every class when its statement has run, and raises `LanguageError`: the compiler,
which this module does not import."""
