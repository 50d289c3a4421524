"""Configurations as TOML: there and back, layer by layer, and damaged in every way."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from operant.envs import env_ids, get_env
from operant.envs.classic.cartpole import CartPole
from operant.models.names import BONUS_NAMES
from operant.ppo.config import Config
from operant.ppo.config_file import (
    parsed_settings,
    read_config,
    resolved,
    shipped_config,
    to_toml,
)
from operant.training import config_file
from operant.vector import registry


def parsed_config(data: bytes, name: str) -> dict[str, Any]:
    return config_file.parsed_config(Config, data, name)


SECTIONS, option_names = Config.sections(), Config.option_names

FIELDS = {
    f"{section}.{one.name}": one
    for section, cls in SECTIONS.items()
    for one in dataclasses.fields(cls)
}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PARAMETER = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    TEXT,
)


def values_for(name: str) -> st.SearchStrategy[Any]:
    if name == "intrinsic.kind":
        return st.permutations(BONUS_NAMES).map(lambda names: tuple(names[:2]))
    limits, kind = FIELDS[name].metadata, FIELDS[name].type
    if limits["choices"]:
        return st.sampled_from(limits["choices"])
    if kind == "bool":
        return st.booleans()
    if kind == "str":
        return TEXT
    if kind == "float":
        least = limits["least"] if limits["above"] is None else limits["above"]
        above = limits["above"] is not None
        most = sys.float_info.max if limits["most"] is None else limits["most"]
        return st.floats(least, most, exclude_min=above)
    whole = st.integers(int(limits["least"] or 0), int(limits["most"] or 2**63 - 1))
    if kind == "int":
        return whole
    if kind == "tuple[int, ...]":
        return st.lists(whole, max_size=4).map(tuple)
    if kind == "tuple[str, ...]":
        return st.lists(TEXT, max_size=3).map(tuple)
    return st.dictionaries(TEXT.filter(bool), PARAMETER, max_size=4)


def configs() -> st.SearchStrategy[Config]:
    """Any configuration that is accepted."""
    names = st.fixed_dictionaries({name: values_for(name) for name in FIELDS})
    return names.map(_with_a_possible_rollout).map(Config().replaced)


def _with_a_possible_rollout(values: dict[str, Any]) -> dict[str, Any]:
    envs = min(values["env.num_envs"], 2**31)
    steps = min(values["ppo.num_steps"], 2**31 // envs)
    minibatches = min(values["ppo.minibatches"], envs * steps)
    changes: dict[str, Any] = {
        "env.num_envs": envs,
        "ppo.num_steps": steps,
        "ppo.minibatches": minibatches,
    }
    if values["env.impl"] != "auto":
        changes["env.backend"] = "auto"  # the two must agree
    return values | changes


ODD = Config().replaced(
    {
        "env.id": "a\"b'c\\d\n\t\r\0\x1f\x7f\x85\u2028é漢🎲 # [x] = {y}",
        "env.params": {"#": math.inf, 'quo"te': -math.inf, "a.b": "]", "é": True, "n": -12345},
        "ppo.learning_rate": 5e-324,
        "run.seed": 2**63 - 1,
        "policy.hidden": [],
    }
)


# There and back -----------------------------------------------------------------------------
@settings(deadline=None, max_examples=50)
@given(config=configs())
@example(config=ODD)
@example(config=Config())
def test_toml_and_back(config: Config) -> None:
    assert Config().replaced(parsed_config(to_toml(config).encode(), "it")) == config
    assert Config.from_dict(tomllib.loads(to_toml(config, comments=False))) == config


@settings(deadline=None, max_examples=50)
@given(config=configs())
def test_tables_and_back(config: Config) -> None:
    tables = config.to_dict()
    assert Config.from_dict(tables) == config
    assert Config.from_dict(json.loads(json.dumps(tables))) == config


def test_every_option_is_written_once_with_its_help() -> None:
    lines = to_toml(Config()).splitlines()
    for name, text in option_names().items():
        section, _, key = name.partition(".")
        begin = lines.index(f"[{section}]")
        end = next((k for k in range(begin, len(lines)) if not lines[k]), len(lines))
        (at,) = [k for k in range(begin, end) if lines[k].startswith(f"{key} = ")]
        comments = [lines[at].partition("# ")[2]]
        for line in lines[at + 1 :]:
            if not line.strip().startswith("#"):
                break
            comments.append(line.strip().removeprefix("# "))
        assert " ".join(comments) == text
    assert [line for line in lines if line.startswith("[")] == [
        "[env]",
        "[policy]",
        "[ppo]",
        "[run]",
        "[intrinsic]",
    ]
    assert "#" not in to_toml(Config(), comments=False)
    assert "total_steps = 1_000_000" in to_toml(Config(), comments=False)


def test_a_file_and_back(tmp_path: Path) -> None:
    file = tmp_path / "ppo.toml"
    file.write_bytes(to_toml(ODD).encode())
    assert Config().replaced(read_config(file)) == ODD


def test_a_file_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "ppo.toml"
    text = '# mine\r\n[ppo]\r\nclip = 0.1\r\n[env]\r\nid = "X"\r\nparams.gravity = 1.6\r\n'
    for data in (text.encode(), b"\xef\xbb\xbf" + text.encode()):  # as Windows' editors write it
        file.write_bytes(data)
        assert read_config(file) == {
            "ppo.clip": 0.1,
            "env.id": "X",
            "env.params": {"gravity": 1.6},
        }
    file.write_text("")
    assert read_config(file) == {}


def test_values_in_a_file_need_not_agree_with_the_defaults() -> None:
    """512 minibatches are too many for the default number of environments, not for another."""
    values = parsed_config(b"[ppo]\nnum_steps = 4\nminibatches = 512", "it")
    assert resolved("X", values, {"env.num_envs": 4096}).ppo.minibatches == 512
    with pytest.raises(ValueError, match="only 256 samples"):
        resolved("X", values)


# Damage -------------------------------------------------------------------------------------
WHOLE = to_toml(ODD, comments=False).encode()
DAMAGED = {
    "binary": (bytes(range(256)), "it is not UTF-8 text"),
    "utf-16": ("[ppo]".encode("utf-16"), "not UTF-8"),
    "not toml": (b"clip: 0.1\n", "is not a TOML file: "),
    "a key twice": (b"[ppo]\nclip = 1\nclip = 2", "is not a TOML file: Cannot overwrite"),
    "deep arrays": (b"[ppo]\nclip = " + b"[" * 50_000, "nested too deeply"),
    "deep tables": (b"ppo.clip" + b".a" * 30_000 + b" = 1", "nested too deeply"),
    "a deep header": (b"[ppo" + b".a" * 300 + b"]\na = 1", "nested too deeply"),
    "deep headers": (b"[ppo" + b".a" * 30_000 + b"]", "nested too deeply"),
    "deep inline": (b"[env]\nparams = {a" + b".a" * 30_000 + b" = 1}", "nested too deeply"),
    "tables in a value": (b"ppo.clip" + b".a" * 900 + b" = 1", "nested too deeply|finite number"),
    "deep brackets": (b"[" * 50_000, "is not a TOML file|nested too deeply"),
    "a long integer": (b"[run]\nseed = " + b"9" * 5000, "4300 digits"),
    "a longer integer": (b"[run]\nseed = 0x" + b"F" * 5000, "4300 digits"),
    "an unknown section": (b"[pppo]\nclip = 1", r"no section \[pppo\]; did you mean \[ppo\]"),
    "an unknown key": (b"[ppo]\nclipp = 1", r"no option 'ppo.clipp'; did you mean ppo\.clip"),
    "a bare key": (b"clip = 1", r"'clip' belongs in a section: \[ppo\]"),
    "no section": (b"ppo = 1", r"\[ppo\] must be a section, got 1"),
    "many sections": (b"[[ppo]]\nclip = 1", r"\[ppo\] must be a section"),
    "a bad value": (b"[ppo]\nclip = -1", r"ppo\.clip must be above 0, got -1"),
    "a bad type": (b"[ppo]\nclip = '1'", r"ppo\.clip must be a finite number, got '1'"),
    "a date": (b"[run]\nseed = 1979-05-27", r"run\.seed must be an integer, got datetime"),
    "nan": (b"[ppo]\nclip = nan", r"ppo\.clip must be a finite number, got nan"),
    "a nameless key": (b"[ppo]\n'' = 1", "no option 'ppo.'"),
    "a nameless parameter": (b"[env]\n'params.' = 1", "no option 'env.params.'"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files(name: str, tmp_path: Path) -> None:
    data, text = DAMAGED[name]
    file = tmp_path / "broken.toml"
    file.write_bytes(data)
    with pytest.raises(ValueError, match=rf"(?s)broken\.toml.*({text})") as error:
        read_config(file)
    assert error.value.__cause__ is None


def test_every_beginning_of_a_file() -> None:
    """Cut anywhere: a configuration that is as good as it goes, or an error that names the file."""
    errors = []
    for length in range(0, len(WHOLE), 3):
        try:
            parsed_config(WHOLE[:length], "cut.toml")
        except ValueError as error:
            errors.append(str(error))
    assert all("cut.toml" in error for error in errors)
    assert 50 < len(errors) < len(WHOLE) // 3


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot read .*none\.toml: No such file"):
        read_config(tmp_path / "none.toml")
    with pytest.raises(ValueError, match=rf"cannot read {tmp_path}: Is a directory"):
        read_config(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"cannot read .*/x: Not a directory"):
        read_config(tmp_path / "file" / "x")
    with pytest.raises(ValueError, match=r"cannot read .*null"):
        read_config(tmp_path / "a\0b")
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * (2 << 20))
    with pytest.raises(ValueError, match=r"large\.toml is too large .* more than 64 KiB"):
        read_config(large)
    large.write_bytes(b"#" * (1 << 16))
    assert read_config(large) == {}


# --set --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("setting", "name", "value"),
    [
        ("ppo.clip=0.1", "ppo.clip", 0.1),
        ("clip=0.1", "ppo.clip", 0.1),
        (" ppo.clip = 0.1 ", "ppo.clip", 0.1),
        ("policy.hidden=[32, 32]", "policy.hidden", [32, 32]),
        ("total_steps=1e6", "run.total_steps", 1e6),
        ("total_steps=1_000", "run.total_steps", 1000),
        ("policy.shared=true", "policy.shared", True),
        ("policy.activation=relu", "policy.activation", "relu"),
        ('policy.activation="relu"', "policy.activation", "relu"),
        ("policy.activation='relu'", "policy.activation", "relu"),
        ("env.id=a=b", "env.id", "a=b"),
        ("env.id=", "env.id", ""),
        ("env.id=x # y", "env.id", "x # y"),
        ("env.id=1\nb = 2", "env.id", "1\nb = 2"),
        ("env.id=1\n[x]", "env.id", "1\n[x]"),
        ("env.params.gravity=1.6", "env.params.gravity", 1.6),
        ("env.params.name=moon", "env.params.name", "moon"),
        ("env.params.limit=inf", "env.params.limit", math.inf),
        ("env.params={gravity = 1.6}", "env.params", {"gravity": 1.6}),
        ("run.seed=" + "9" * 5000, "run.seed", "9" * 5000),
        ("ppo.clip=" + "[" * 50_000, "ppo.clip", "[" * 50_000),
    ],
)
def test_settings(setting: str, name: str, value: Any) -> None:
    assert parsed_settings([setting]) == {name: value}
    assert type(parsed_settings([setting])[name]) is type(value)


def test_the_last_setting_wins() -> None:
    assert parsed_settings(["clip=0.1", "gamma=1", "ppo.clip=0.3"]) == {
        "ppo.clip": 0.3,
        "ppo.gamma": 1,
    }
    assert parsed_settings([]) == {}


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("ppo.clip", "--set takes name=value, such as ppo.clip=0.1, got 'ppo.clip'"),
        ("", "--set takes name=value"),
        ("=3", "no option ''"),
        ("ppo.clipp=3", r"did you mean ppo\.clip"),
        ("env.params.=3", "no option 'env.params.'"),
        ("intrinsic.kind=[rnd,icm]", r"words in quotes: --set 'intrinsic.kind=\[.rnd., .icm.\]', "),
    ],
)
def test_bad_settings(setting: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parsed_settings([setting])


@pytest.mark.parametrize(
    ("settings_", "text"),
    [
        (["ppo.clip=x"], r"ppo\.clip must be a finite number, got 'x'"),
        (["hidden=32,32"], r"policy\.hidden must be a list of integers, .*; write \[32,32\]"),
        (["hidden=32"], r"policy\.hidden must be a list of integers, got 32; write \[32\]"),
        (["hidden=wide"], r"policy\.hidden must be a list of integers, got 'wide'$"),
        (["env.params=3"], r"env\.params must be a table of parameters, got 3"),
        (["env.params=x", "env.params.a=1"], r"env\.params must be a table of parameters, got 'x'"),
        (["env.params.a=[1]"], r"env\.params\.a must be a number, a string or a flag, got \[1\]"),
        (["shared=True"], r"policy\.shared must be true or false, got 'True'"),
    ],
)
def test_settings_with_bad_values(settings_: list[str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        resolved("X", parsed_settings(settings_))


# Layers -------------------------------------------------------------------------------------
def test_layers_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = {"ppo.clip": 0.3, "ppo.gamma": 0.5, "env.params": {"a": 1, "b": 1, "c": 1}}
    monkeypatch.setattr(config_file, "shipped_config", lambda kind, env_id: shipped)
    first = {"ppo.gamma": 0.6, "ppo.epochs": 7, "env.params": {"b": 2}}
    second = {"ppo.epochs": 8, "env.params.c": 3}
    config = resolved("X", first, second)
    assert config.env.id == "X"
    assert (config.ppo.clip, config.ppo.gamma, config.ppo.epochs) == (0.3, 0.6, 8)
    assert config.ppo.gae_lambda == Config().ppo.gae_lambda
    assert config.env.params == {"a": 1, "b": 2, "c": 3}
    assert resolved("X", second, first).ppo.epochs == 7
    both = {"env.params.b": 9, "env.params": {"b": 2, "d": 4}}
    for layer in (both, dict(reversed(both.items()))):
        assert resolved("X", layer).env.params == {"a": 1, "b": 9, "c": 1, "d": 4}
    assert shipped["env.params"] == {"a": 1, "b": 1, "c": 1}, "not mutated"
    assert first["env.params"] == {"b": 2}


def test_layers_with_mistakes() -> None:
    with pytest.raises(ValueError, match=r"did you mean ppo\.clip"):
        resolved("X", {"ppo.clipp": 1})
    with pytest.raises(ValueError, match=r"env\.params must be a table"):
        resolved("X", {"env.params": 3})
    with pytest.raises(ValueError, match=r"env\.id must be Unicode text"):
        resolved("\udcff")


# Shipped ------------------------------------------------------------------------------------
SHIPPED = [env_id for env_id in env_ids() if "training" in vars(get_env(env_id))]


@pytest.mark.parametrize("env_id", SHIPPED)
def test_shipped_configurations(env_id: str) -> None:
    values = dict(get_env(env_id).training)
    assert values
    assert shipped_config(env_id) == values
    assert shipped_config(f"operant/{env_id}") == shipped_config(f"operant:{env_id}") == values
    config = resolved(env_id)
    assert config.env.id == env_id
    assert config == Config().replaced({**values, "env.id": env_id})
    assert resolved(env_id, {"ppo.gamma": 0.123}).ppo.gamma == 0.123


def test_every_environment_of_the_library_has_a_configuration() -> None:
    assert set(SHIPPED) >= set(registry._DECLARED)


@pytest.mark.parametrize(
    "env_id", ["Nothing-v0", "", ".", "..", "../config", "configs/../x", "a\\b", "x" * 5000, "a\0b"]
)
def test_nothing_is_shipped_for_other_names(env_id: str) -> None:
    assert shipped_config(env_id) == {}


@pytest.mark.parametrize(
    ("training", "text"),
    [
        ({"ppo.clip": "x"}, r"ppo\.clip must be a finite number, got 'x'"),
        ({"ppo.clipp": 0.1}, r"there is no option 'ppo\.clipp'; did you mean ppo\.clip\?"),
        ([3], r"training must be a dict such as {'ppo\.gamma': 0\.98}, got \[3\]"),
    ],
)
def test_a_damaged_shipped_configuration_is_named(
    training: Any, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cart(CartPole):
        pass

    Cart.training = training
    monkeypatch.setitem(registry._REGISTERED, "X-v0", Cart)
    with pytest.raises(ValueError, match=rf"^the shipped configuration of operant/X-v0: {text}$"):
        shipped_config("operant/X-v0")


def test_the_values_of_a_class_that_was_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    class Heir(CartPole):
        pass

    class Tuned(CartPole):
        training = {"ppo.gamma": 0.5}

    monkeypatch.setitem(registry._REGISTERED, "Heir-v0", Heir)
    monkeypatch.setitem(registry._REGISTERED, "Tuned-v0", Tuned)
    assert shipped_config("Heir-v0") == {}, "CartPole's were not chosen for it"
    assert resolved("Tuned-v0").ppo.gamma == 0.5
    shipped_config("Tuned-v0")["ppo.gamma"] = 0.1
    assert resolved("Tuned-v0").ppo.gamma == 0.5, "a copy was given out"
