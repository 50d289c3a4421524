"""Finding the environment a user names on the command line."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import re
import shlex
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from operant.cli.screen import UserError, printable
from operant.compiler.spec.parts import check_complete
from operant.lang.env import Env
from operant.vector.foreign_env import ForeignEnv, as_foreign, untrusted_wrappers
from operant.vector.registry import env_ids
from operant.vector.targets import LIBRARIES, find_env, is_id, parsed_target


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
    """Whether an environment is known by its id, here or to Gymnasium, so that no code need be
    named."""
    try:
        find_env(env_id, import_modules=False)
    except ValueError:
        return False
    return True


def code_to_name(env_id: str) -> str:
    """How the environment that a run recorded is named on a command line, to be shown.

    The record may come from anyone: nothing of it is loaded here. ``file.py:Class`` where it does
    not say which code it was.
    """
    file, _, cls = env_id.rpartition(":")
    module = file.replace(".", "").isidentifier()
    is_code = cls.isidentifier() and (module or file.endswith(".py"))
    if is_code or (module and is_id(cls)) or env_id.endswith(LIBRARIES):
        return shlex.quote(printable(env_id))
    return "file.py:Class"


def load_env(target: str) -> type[Env] | ForeignEnv:
    """What a target names, see `operant.vector.targets`: a class that operant compiles, or an
    environment of Gymnasium's or PettingZoo's API by what makes one.

    An id may lack its version, see `env_name`. The name may be left out where the module defines
    one environment only.

    Raises:
        UserError: nothing of that name.
        LanguageError: the environment's definition was refused.
        NativeError: the library was refused.
    """
    text = env_name(target)
    found = parsed_target(text)
    if found.kind == "library":
        return _load_library(found.place)
    if found.kind == "code":
        if not found.place:
            raise UserError(f"{target!r} names no file and no module; write path/to/file.py:name")
        return _from_code(text, found.place, found.name)
    if ":" not in text and _looks_like_module(text):
        return _from_code(text, text, "")
    try:
        with _on_path(len(sys.path)):
            return find_env(text)
    except ValueError as error:
        yours = " Your own: module:name, path/to/file.py:name or path/to/libgame.so"
        raise UserError(f"{error}{yours if str(error).endswith('?') else ''}") from None


def load_wrappers(wrappers: Sequence[str]) -> None:
    """Import the modules of wrappers that the user names, from the working directory too.

    Raises:
        UserError: there is no such module, or it cannot be imported.
        ValueError: that is no wrapper.
    """
    for name in untrusted_wrappers(wrappers):
        _load_module(name.partition(":")[0])


def load_compiled(target: str, verb: str) -> type[Env]:
    """As `load_env`, for a command that can only do with what operant compiles.

    Raises:
        UserError: as there, or it is another environment.
    """
    found = load_env(target)
    if isinstance(found, ForeignEnv):
        raise UserError(
            f"operant {verb} is for environments that operant compiles, and {found.name} is "
            "another library's"
        )
    return found


def _from_code(target: str, place: str, name: str) -> type[Env] | ForeignEnv:
    module = _load_module(place)
    if name:
        value = getattr(module, name, None)
        if value is None:
            names = ", ".join(_environments(module)) or "none"
            raise UserError(f"{place} has no environment {name!r}; it has: {names}")
        return _usable(target, place, name, value)
    found = _environments(module)
    if len(found) != 1:
        raise UserError(
            f"{place} defines {len(found)} environments ({', '.join(found) or 'none'}); "
            f"name one: {place}:Class"
        )
    ((name, value),) = found.items()
    return _usable(f"{target}:{name}", place, name, value)


def _environments(module: ModuleType) -> dict[str, object]:
    """The classes of environments that a module defines."""
    import gymnasium

    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, Env | gymnasium.Env)
        and value.__module__ == module.__name__
        and hasattr(value, "step")
    }


def _usable(target: str, place: str, name: str, value: object) -> type[Env] | ForeignEnv:
    """A value that code has under a name, as an environment."""
    import gymnasium

    if isinstance(value, type) and issubclass(value, Env):
        check_complete(value)
        return value
    plain = isinstance(value, type) and not issubclass(value, gymnasium.Env)
    if plain and not all(hasattr(value, one) for one in ("reset", "step")):
        raise UserError(
            f"{name} in {place} is no environment: write class {name}(operant.Env), or "
            f"class {name}(gymnasium.Env)"
        )
    found = as_foreign(value, target)
    if found is None:
        what = "one environment" if isinstance(value, gymnasium.Env) else f"{value!r:.80}"
        raise UserError(
            f"{name} in {place} is {what}; name a class, or a function that makes an environment"
        )
    return found


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
        return parsed_target(name).kind == "code"
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
    from operant.compiler.own_code import is_library
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
        if isinstance(error, ImportError) and error.name == "operant.lang":
            text = f"{own[-1]}{_unknown_word(error)}"
        raise UserError(f"{name} cannot be imported: {text}") from error


def _unknown_word(error: ImportError) -> str:
    """What to say of ``from operant.lang import fabs``."""
    from operant.lang.advice import word_for

    name = next(iter(re.findall(r"cannot import name '(\w+)'", str(error))), "")
    return f"operant.lang has no {name!r}; {word_for(name)}"


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
