"""Finding the environment a user names on the command line."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import re
import shlex
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from operant.cli.screen import UserError, printable
from operant.compiler.spec.parts import check_complete
from operant.lang.env import Env
from operant.vector.gymnasium_ids import instead_of_gymnasiums
from operant.vector.registry import env_ids, get_env

_LIBRARIES = (".so", ".dylib", ".dll")
_ID = re.compile(r"(?:[\w-]+/)?[\w.-]+-v\d+")
"""What Gymnasium's ids look like, those of namespaces such as ``ALE/Pong-v5`` included."""


def env_name(target: str) -> str:
    """The id meant by a name without its version, ``CartPole``, or in another case, ``pendulum``.

    Of several versions the one registered last. What is no such name stays as it is.
    """
    bare = target.removeprefix("operant:").removeprefix("operant/")
    for env_id in reversed(env_ids()):
        if bare in (env_id, env_id.rpartition("-v")[0]):
            return env_id
    for env_id in reversed(env_ids()):
        if bare.lower() in (env_id.lower(), env_id.rpartition("-v")[0].lower()):
            return target if _looks_like_module(target) else env_id
    return target


def is_registered(env_id: str) -> bool:
    """Whether an environment is known by its id, so that no code need be named."""
    try:
        get_env(env_id)
    except ValueError:
        return False
    return True


def code_to_name(env_id: str) -> str:
    """How the environment that a run recorded is named on a command line, to be shown.

    The record may come from anyone: nothing of it is loaded here. ``file.py:Class`` where it does
    not say which code it was.
    """
    file, _, cls = env_id.rpartition(":")
    is_code = cls.isidentifier() and (file.endswith(".py") or file.replace(".", "").isidentifier())
    if is_code or env_id.endswith(_LIBRARIES):
        return shlex.quote(printable(env_id))
    return "file.py:Class"


def load_env(target: str) -> type[Env]:
    """The class named by an id, ``module:Class``, ``path/to/file.py:Class`` or a shared library.

    An id may lack its version, see `env_name`. The class may be left out where the module defines
    one environment only.

    Raises:
        UserError: nothing of that name.
        LanguageError: the environment's definition was refused.
        NativeError: the library was refused.
    """
    target = env_name(target)
    if target.endswith(_LIBRARIES):
        return _load_library(target)
    name, _, cls_name = target.partition(":")
    if target.startswith("operant:") or (not cls_name and not _looks_like_module(name)):
        try:
            return get_env(target)
        except ValueError as error:
            yours = " Your own: module:Class, path/to/file.py:Class or path/to/libgame.so"
            near = str(error).endswith("?")  # else the sentence says what can be trained
            raise UserError(f"{error}{yours if near else ''}") from None
    module = _load_module(name)
    found = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, Env)
        and value.__module__ == module.__name__
        and hasattr(value, "step")
    }
    if cls_name:
        env = getattr(module, cls_name, None)
        if not (isinstance(env, type) and issubclass(env, Env)):
            names = ", ".join(found) or "none"
            raise UserError(
                _not_ours(name, env)
                or f"{name} has no environment class {cls_name!r}; it has: {names}"
            )
        check_complete(env)
        return env
    if len(found) != 1:
        own = [value for value in vars(module).values() if _is_gymnasiums(value, module)]
        raise UserError(
            _not_ours(name, own[0])
            if own and not found
            else f"{name} defines {len(found)} environments ({', '.join(found) or 'none'}); "
            f"name one: {name}:Class"
        )
    return next(iter(found.values()))


def _is_gymnasiums(value: object, module: ModuleType) -> bool:
    """Whether a module defines this class for Gymnasium."""
    import gymnasium

    is_env = isinstance(value, type) and issubclass(value, gymnasium.Env)
    return is_env and value.__module__ == module.__name__


def _not_ours(name: str, value: object) -> str:
    """What to do with a class that is not one of operant.Env; empty for anything else."""
    import gymnasium

    if not isinstance(value, type):
        return ""
    if not issubclass(value, gymnasium.Env):
        cls = value.__name__
        return f"{cls} in {name} is no environment: write class {cls}(operant.Env)"
    return instead_of_gymnasiums(value, f" in {name}")


def _load_library(name: str) -> type[Env]:
    from operant.vector.native import load

    try:
        return load(name)
    except FileNotFoundError:
        raise UserError(f"there is no file {name!r}") from None


def _looks_like_module(name: str) -> bool:
    if name.endswith(".py"):
        return True
    if "/" in name.removeprefix("operant/"):
        return not _ID.fullmatch(name)
    with _on_path(0):
        return name.isidentifier() and importlib.util.find_spec(name) is not None


def _load_module(name: str) -> ModuleType:
    if not name.endswith(".py"):
        try:
            with _on_path(len(sys.path)), _imported(name):  # after what is installed
                _load_from_here(name.partition(".")[0])
                return importlib.import_module(name)
        except UserError as mistake:
            error = mistake.__cause__
            missing = isinstance(error, ModuleNotFoundError) and error.name
            if missing and name.startswith(missing):
                raise UserError(f"there is no module {name!r} here or on the path") from None
            raise
    path = Path(name)
    if not path.is_file():
        raise UserError(f"there is no file {name!r}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    with _on_path(len(sys.path)), _imported(name):
        spec.loader.exec_module(module)
    return module


def _load_from_here(name: str) -> None:
    """Load a module that lies in the working directory, though one of its name is installed too.

    Only the one that the user names: with the folder first on the path, a ``numba.py`` in it would
    be what every library imports meanwhile.
    """
    spec = importlib.machinery.PathFinder.find_spec(name, [str(Path.cwd())])
    if name in sys.modules or spec is None or spec.loader is None or spec.origin is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


@contextmanager
def _imported(name: str) -> Iterator[None]:
    """What a module raises when it is imported, but for a refused environment, as `UserError`."""
    from operant.backends.author_mistake import is_library
    from operant.lang import LanguageError

    try:
        yield
    except (LanguageError, UserError):
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [f"{frame.filename}:{frame.lineno}: " for frame in frames if not is_library(frame[0])]
        text = f"{own[-1] if own else ''}{type(error).__name__}: {error}".removesuffix(": ")
        if isinstance(error, SyntaxError):
            text = f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}"
        raise UserError(f"{name} cannot be imported: {text}") from error


@contextmanager
def _on_path(position: int) -> Iterator[None]:
    """Let modules be imported from the working directory, for code that the user names."""
    here = str(Path.cwd())
    sys.path.insert(position, here)
    try:
        yield
    finally:
        # By identity: the user may have it on the path as well.
        sys.path[:] = [place for place in sys.path if place is not here]
