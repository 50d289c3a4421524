"""What every batch of environments is, wherever it runs: spaces, options, and pictures."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from gymnasium import logger, spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from operant.compiler.spec.rules import Rules, call
from operant.lang.env import Env
from operant.vector.arguments import checked_count, checked_mode
from operant.vector.batch import Description, Ends, StepMemory, reported_ends
from operant.vector.copies import description, env_key, made_again
from operant.vector.not_an_env import not_an_env
from operant.vector.parameters import is_parameter, refuse_foreign_options, with_parameter
from operant.vector.registry import id_of
from operant.vector.seeding import checked_seed

if TYPE_CHECKING:
    import torch

    from operant.vector.env import VecEnv

NO_LIMIT = 2**31 - 1
"""Steps of an episode without a time limit."""
_MAX_ENVS = 2**30
P = ParamSpec("P")
T = TypeVar("T")
B = TypeVar("B", bound="BaseVecEnv")


def one_at_a_time(
    method: Callable[Concatenate[B, P], T],
) -> Callable[Concatenate[B, P], T]:
    """Mark a method that works on the memory of the batch; see `BaseVecEnv.in_use`."""

    @wraps(method)
    def guarded(self: B, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self.in_use():
            return method(self, *args, **kwargs)

    return guarded


class BaseVecEnv(VectorEnv[Any, Any, Any]):
    """A batch of `num_envs` environments that step together; see `VecEnv` and `CudaVecEnv`.

    The environment's parameters are attributes, as those of Gymnasium's environments are:
    ``env.gravity``. To set one holds from the next step on, for all environments. Those that are
    whole numbers, flags or words are constants of the compiled code and cannot be set.

    `pickle` and `copy` make a batch like this one with the same state, random streams included.
    """

    metadata: dict[str, Any] = {
        "render_modes": ["rgb_array"],
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }
    backend: str
    """Where it runs."""
    backend_reason: str
    """Why there."""
    workers: int
    """Threads that share a step."""
    copy: bool
    """Whether results are the caller's to keep."""
    device: torch.device
    """Where results are."""
    _OPTIONS: tuple[str, ...]
    """Arguments of ``__init__`` that only this class has; they are attributes."""
    _built: frozenset[str]
    """Names of the attributes that ``__init__`` makes."""

    def __init__(
        self,
        env: type[Env],
        num_envs: int,
        seed: int | None,
        autoreset_mode: AutoresetMode | str,
        render_mode: str | None,
        max_episode_steps: int | None,
        params: Mapping[str, Any],
    ) -> None:
        self.closed = True  # until everything has worked
        if not (isinstance(env, type) and issubclass(env, Env)):
            raise TypeError(not_an_env(env))
        self.num_envs = checked_count("num_envs", num_envs, _MAX_ENVS)
        self.autoreset_mode = checked_mode(autoreset_mode)
        limit = max_episode_steps
        if limit is not None:
            limit = checked_count("max_episode_steps", limit, NO_LIMIT)
        if render_mode not in (None, "rgb_array"):
            raise ValueError(
                f"render_mode must be 'rgb_array' or None, got {render_mode!r}; to watch: "
                "`operant record RUN` films a policy, `operant play ENV` lets you play"
            )
        self._first_seed = None if seed is None else checked_seed(seed)
        refuse_foreign_options(env, params)
        self.rules = Rules.of(env, params)
        if limit is None and self.rules.max_episode_steps is not None:
            limit = checked_count("time_limit(params)", self.rules.max_episode_steps, NO_LIMIT)
        self.max_episode_steps = limit
        self.render_mode = render_mode
        self.metadata = {
            **self.metadata,
            "autoreset_mode": self.autoreset_mode,
            "render_fps": env.render_fps,
        }
        self.single_observation_space = self.rules.observation.space
        self.single_action_space = self.rules.action.space
        self._was_reset = False
        self._reports_episodes = True
        self._using = threading.Lock()
        self._fixed = ""

    @cached_property
    def observation_space(self) -> spaces.Space[Any]:  # type: ignore[override]
        """Of the whole batch. Made when it is asked for: it has arrays as large as the batch."""
        return batch_space(self.single_observation_space, self.num_envs)

    @cached_property
    def action_space(self) -> spaces.Space[Any]:  # type: ignore[override]
        """Of the whole batch."""
        return batch_space(self.single_action_space, self.num_envs)

    @abstractmethod
    def get_state(self) -> dict[str, np.ndarray]:
        """Everything the future depends on, as copies: ``state.<field>``, ``steps``,
        ``episode_return``, ``done``, the random stream (``seed``, ``index``, ``episode``) and the
        last results (``obs``, ``reward``, ``terminated``, ``truncated``), each ``[num_envs, ...]``.

        NumPy arrays, the same on every backend: a batch can go on elsewhere.
        """

    @abstractmethod
    def set_state(self, state: Mapping[str, Any]) -> Any:
        """Continue from `state`, as `get_state` gave it or a part of it; the observations.

        Missing entries keep their values; ``obs`` is computed when it is missing. A batch that was
        never reset needs all entries.

        Raises:
            ValueError: an unknown entry, a wrong shape or dtype; nothing was changed.
        """

    @abstractmethod
    def action_masks(self) -> Any:
        """Which actions are allowed now, bool ``[num_envs, mask_size]``; None without a mask.

        A row has a value for each action of a Discrete space; for the others those of the first
        component, then of the second. With ``copy=False`` a view, as other results are.

        Raises:
            ValueError: closed, or never reset.
        """

    def reset_many(self, mask: Any = None, seeds: Any = None) -> Any:
        """Begin new episodes in the environments of `mask`, or in all; the observations of all.

        Args:
            mask: bool ``[num_envs]``.
            seeds: as ``seed`` of ``reset``: one int, or one for each environment (None: as it is).

        Raises:
            ValueError, TypeError: a bad mask or seed; the batch is unchanged.
        """
        options = None if mask is None else {"reset_mask": mask}
        return self.reset(seed=seeds, options=options)[0]

    # What training needs: `operant.vector.batch.Batch` ---------------------------------------
    why_not_saved = None

    @property
    def mask_size(self) -> int:
        """Entries of a row's action mask; 0 without masks."""
        return self.rules.mask_size

    def live_rows(self) -> None:
        """See `Batch`: always all of them."""

    @abstractmethod
    def write_obs(self, out: Any) -> None:
        """See `Batch`.

        Raises:
            ValueError: closed, or never reset.
        """

    def write_step(self, actions: Any, out: StepMemory) -> Ends | None:
        """See `Batch`."""
        obs, reward, terminated, truncated, info = self.step(actions)
        out.obs[...] = obs
        out.reward[...] = reward
        out.terminated[...] = terminated
        out.truncated[...] = truncated
        return reported_ends(terminated, truncated, info) if info else None

    def describe(self) -> Description:
        """See `Batch`."""
        rules = self.rules
        return Description(
            name=id_of(rules.env) or rules.env.__qualname__,
            backend=self.backend,
            workers=self.workers,
            params=rules.params._asdict() if rules.params else {},
            max_episode_steps=self.max_episode_steps,
            own_limit=rules.max_episode_steps,
            reward_threshold=rules.env.reward_threshold,
        )

    def for_evaluation(self, num_envs: int, max_episode_steps: int | None = None) -> VecEnv:
        """See `Batch`. Finished environments show their last state once: NEXT_STEP mode."""
        from operant.vector.choose_backend import host_backend
        from operant.vector.env import VecEnv

        found = self.describe()
        return VecEnv(
            self.rules.env,
            num_envs,
            backend=host_backend(self.rules.env) if self.backend == "cuda" else self.backend,
            autoreset_mode=AutoresetMode.NEXT_STEP,
            copy=False,
            max_episode_steps=max_episode_steps or found.evaluation_limit,
            **found.params,
        )

    @abstractmethod
    def _fields(self, index: int) -> list[Any]:
        """The state of one environment, as Python numbers."""

    @abstractmethod
    def _use(self, rules: Rules) -> None:
        """Work with other values of the float parameters from now on."""

    # Parameters as attributes, and Gymnasium's functions for them ---------------------------
    if not TYPE_CHECKING:  # else every attribute would be known to it
        # No __getattr__: it would make every attribute slower, 7 % of a step of 4096 CartPoles.
        def __setattr__(self, name: str, value: Any) -> None:
            if not is_parameter(self, name):
                super().__setattr__(name, value)
                return
            rules = with_parameter(self.rules, name, value, self._fixed)
            with self.in_use():
                self._use(rules)
            self.rules = rules
            vars(self)[name] = getattr(rules.params, name)

    def _built_up(self) -> None:
        """Offer the parameters as attributes where nothing else has their name, and note what
        there is by now: what comes later is its user's. The last thing that a constructor does."""
        own, params = vars(self), self.rules.params._asdict()
        free = {name for name in params if name not in own and not hasattr(type(self), name)}
        own.update({name: params[name] for name in free}, _parameters=frozenset(free))
        self._built = frozenset(own)

    def fix_parameters(self, reason: str) -> None:
        """Refuse to have a parameter set from now on, because of `reason`."""
        self._fixed = reason

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """A parameter, or another attribute that all environments share, once for each of them.

        Raises:
            AttributeError: there is none of that name.
        """
        single = f"single_{name}" if name in ("observation_space", "action_space") else name
        return (getattr(self, single),) * self.num_envs

    def set_attr(self, name: str, values: Any) -> None:
        """Set a parameter, from the next step on.

        Args:
            name: of the parameter.
            values: one for all, or the same for each environment.

        Raises:
            AttributeError: there is no such parameter.
            ValueError, TypeError: it cannot be set, or not to this value.
        """
        given = list(values) if isinstance(values, list | tuple | np.ndarray) else [values]
        if isinstance(values, list | tuple | np.ndarray) and len(given) != self.num_envs:
            raise ValueError(f"values must be one or {self.num_envs}, got {len(given)}")
        if not is_parameter(self, name):
            known = ", ".join(self.rules.params._fields) or "none"
            raise AttributeError(
                f"{self.rules.env.__qualname__} has no parameter {name!r} (it has: {known})"
            )
        for other in given[1:]:
            if other != given[0]:
                raise ValueError(
                    f"all environments of a batch have the same {name}, got {given[0]!r} and "
                    f"{other!r}; make a batch for each value"
                )
        setattr(self, name, given[0])

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """``render`` of each environment, or what `get_attr` has.

        Raises:
            AttributeError: there is none of that name, or it is a function of the whole batch.
        """
        if name == "render":
            return self.render() or (None,) * self.num_envs
        values = self.get_attr(name)
        if callable(values[0]):
            raise AttributeError(
                f"the environments of a batch have no {name}() of their own; "
                f"call env.{name}() for all of them"
            )
        return values

    def __reduce__(self) -> tuple[Any, ...]:
        return made_again, description(self, env_key(self.rules.env))

    def __deepcopy__(self, memo: dict[int, Any]) -> BaseVecEnv:
        return made_again(*deepcopy(description(self, self.rules.env), memo))

    def __copy__(self) -> BaseVecEnv:
        return deepcopy(self)  # a batch shares nothing, random generators of spaces neither

    def render(self) -> tuple[np.ndarray, ...] | None:
        """A picture of each, uint8 ``[height, width, 3]``; None without a render mode, and a
        warning."""
        if self.render_mode is None:
            logger.warn(
                "render() gives no picture without a render mode; write "
                'operant.make(..., render_mode="rgb_array")',
                stacklevel=2,  # the caller's line
            )
            return None
        return tuple(self.render_one(i) for i in range(self.num_envs))

    def render_one(self, index: int) -> np.ndarray:
        """A picture of one environment, uint8 ``[height, width, 3]``; needs no render mode."""
        from operant.render.canvas import Canvas

        self._check_open()
        if not self._was_reset:
            raise ValueError("nothing to render yet: call reset() first")
        if not 0 <= index < self.num_envs:
            raise ValueError(f"index must be 0 to {self.num_envs - 1}, got {index}")
        env = self.rules.env
        if not hasattr(env, "render"):
            raise ValueError(f"{env.__qualname__} has no render function")
        canvas = Canvas(*env.render_size)
        state = env.State(*self._fields(index))
        call(env.render, state=state, canvas=canvas, params=self.rules.params)
        return canvas.to_array()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """While something works on the memory of the batch: nobody else may. For engines that step
        environments themselves; ``step``, ``reset`` and what concerns the state do it already.

        Raises:
            RuntimeError: it is in use, by another thread or by a caller of the caller.
        """
        if not self._using.acquire(False):
            self._refuse_use()
        try:
            yield
        finally:
            self._using.release()

    def _refuse_use(self) -> None:
        raise RuntimeError(
            f"this {type(self).__name__} is being stepped by another thread, or by the caller of "
            "what steps it now; make one per thread"
        )

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("this environment is closed; make a new one")

    def _check_was_reset(self, wanted: str) -> None:
        self._check_open()
        if not self._was_reset:
            raise ValueError(f"no {wanted} yet: call reset() first")
