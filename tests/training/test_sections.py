"""Sections beside those of the algorithm: short names, lists, tables, and names that clash."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

import operant
from operant import PPO
from operant.training.config import AgentConfig, BaseConfig
from operant.training.config_file import parsed_config, parsed_settings, resolved, to_toml
from operant.training.section import Section, option


@dataclass(frozen=True)
class CuriosityConfig(Section, table="curiosity"):
    elsewhere = {"beta": "weight", "rnd_lr": "learning_rate: of the predictor alone"}

    weight: float = option(0.1, "of the intrinsic reward", least=0.0)
    learning_rate: float = option(1e-4, "of the predictor", above=0.0)
    sizes: tuple[int, ...] = option((8,), "sizes of its layers", least=1)
    decays: tuple[float, ...] = option((), "one for each", least=0.0)
    names: tuple[str, ...] = option((), "of rooms")
    rooms: Mapping[str, Any] = option({}, "weights of rooms")


@dataclass(frozen=True)
class Config(operant.Config):
    curiosity: CuriosityConfig = field(default_factory=CuriosityConfig)


def test_short_names_across_sections() -> None:
    assert Config.dotted_name("weight") == "curiosity.weight"
    assert Config.dotted_name("clip") == "ppo.clip"
    assert Config.dotted_name("curiosity.learning_rate") == "curiosity.learning_rate"
    assert operant.Config.dotted_name("learning_rate") == "ppo.learning_rate"  # as without it


def test_an_ambiguous_name_is_an_error_that_names_both() -> None:
    text = "'learning_rate' could be ppo.learning_rate or curiosity.learning_rate; name its section"
    with pytest.raises(ValueError, match=text):
        Config.dotted_name("learning_rate")
    with pytest.raises(ValueError, match=text):
        parsed_settings(Config, ["learning_rate=1e-3"])
    with pytest.raises(ValueError, match=text):
        Config().replaced({"learning_rate": 1e-3})
    with pytest.raises(ValueError, match=text):
        PPO("CartPole-v1", Config(), learning_rate=1e-3)
    with pytest.raises(ValueError, match=text):
        Config.from_dict({"learning_rate": 1e-3})


def test_unknown_names_bring_the_nearest_of_all_sections() -> None:
    with pytest.raises(ValueError, match=r"did you mean curiosity\.weight\?"):
        Config.dotted_name("curiosity.wieght")
    with pytest.raises(ValueError, match=r"here it is weight \(curiosity\.weight\)"):
        Config.dotted_name("beta")
    with pytest.raises(ValueError, match=r"\(curiosity\.learning_rate\): of the predictor alone"):
        Config.dotted_name("rnd_lr")
    with pytest.raises(ValueError, match=r"here it is learning_rate \(ppo\.learning_rate\)"):
        Config.dotted_name("lr")
    with pytest.raises(ValueError, match=r"did you mean \[curiosity\]\?"):
        Config.from_dict({"curiositi": {}})


def test_lists_and_tables_as_values() -> None:
    settings = ["sizes=[4, 5]", "decays=[1, 0.5]", 'names=["a", "b"]', "rooms={a = 1, b = 2.5}"]
    config = resolved(Config, "X", parsed_settings(Config, [*settings, "curiosity.rooms.c=true"]))
    found = config.curiosity
    assert found.sizes == (4, 5)
    assert found.decays == (1.0, 0.5)
    assert found.names == ("a", "b")
    assert found.rooms == {"a": 1, "b": 2.5, "c": True}
    assert Config().replaced(parsed_config(Config, to_toml(config).encode(), "text")) == config
    ppo = PPO("CartPole-v1", Config(), num_envs=4, backend="reference", sizes=[3], rooms={"d": 1})
    assert ppo.config.curiosity.sizes == (3,)
    assert ppo.config.curiosity.rooms == {"d": 1}
    for name, value in {"sizes": [1.5], "decays": ["x"], "names": [1], "sizes ": 3}.items():
        with pytest.raises(ValueError, match=rf"curiosity\.{name.strip()} must be"):
            Config().replaced({f"curiosity.{name.strip()}": value})


def test_a_checkpoint_is_read_with_its_own_sections(tmp_path: Any) -> None:
    class Curious(PPO):
        config_type = Config

    options = {"num_envs": 4, "num_steps": 4, "backend": "reference", "hidden": (4,)}
    ppo = Curious("CartPole-v1", Config(), weight=0.25, **options)
    ppo.save(tmp_path)
    assert Curious.load(tmp_path).config.curiosity.weight == 0.25
    with pytest.raises(ValueError, match=r"there is no section \[curiosity\]"):
        PPO.load(tmp_path)
    plain = PPO("CartPole-v1", Config(), weight=0.5, **options)
    assert copy.deepcopy(plain).config.curiosity.weight == 0.5


def test_what_acts_needs_no_section_of_an_algorithm() -> None:
    tables = {"env": {"id": "X"}, "other": {"a": 1}}
    assert AgentConfig.from_dict(tables).env.id == "X"
    with pytest.raises(ValueError, match=r"no option 'env\.idd'"):
        AgentConfig.from_dict({"env": {"idd": "X"}})


def test_a_field_must_be_a_section_of_its_name() -> None:
    @dataclass(frozen=True)
    class Wrong(operant.Config):
        other: CuriosityConfig = field(default_factory=CuriosityConfig)

    with pytest.raises(TypeError, match=r"Wrong\.other must be .* table='other'"):
        Wrong.sections()
    assert issubclass(Wrong, BaseConfig)
