"""The configuration: names, types, limits, and errors that say which value and what instead."""

from __future__ import annotations

import dataclasses
import enum
import math
from typing import Any

import numpy as np
import pytest

from operant.ppo.config import Config, PPOConfig, dotted_name
from operant.training.config import EnvConfig, PolicyConfig, RunConfig

SECTIONS = Config.sections()
option_names, flattened = Config.option_names, Config.flattened

FIELDS = {
    f"{section}.{one.name}": one
    for section, cls in SECTIONS.items()
    for one in dataclasses.fields(cls)
}
KINDS = {name: one.type for name, one in FIELDS.items()}


def replaced(**values: Any) -> Config:
    return Config().replaced({dotted_name(name): value for name, value in values.items()})


def value_of(config: Config, name: str) -> Any:
    section, key = name.split(".")
    return getattr(getattr(config, section), key)


def refused(name: str, value: Any) -> str:
    with pytest.raises(ValueError, match=rf"^{name.replace('.', chr(92) + '.')}\b") as error:
        Config().replaced({name: value})
    return str(error.value)


# Names --------------------------------------------------------------------------------------
def test_names_are_unique_across_sections() -> None:
    """`dotted_name` finds an option by its last part alone, but those of bonuses."""
    names = [name for name in option_names() if not name.startswith("intrinsic.")]
    last = [name.partition(".")[2] for name in names]
    assert len(set(last)) == len(last)
    assert not set(last) & set(SECTIONS)
    for name in names:
        assert dotted_name(name) == dotted_name(name.partition(".")[2]) == name
    assert dotted_name("hidden") == "policy.hidden"
    assert dotted_name("intrinsic.hidden") == "intrinsic.hidden"
    with pytest.raises(ValueError, match="learning_rate"):
        dotted_name("lr")


def test_every_option_has_one_line_of_help() -> None:
    assert option_names().keys() == FIELDS.keys()
    for name, text in option_names().items():
        assert 5 < len(text) < 70, name
        assert text.isprintable()


def test_defaults_are_within_their_own_limits() -> None:
    for cls in SECTIONS.values():
        cls()
    assert Config() == Config(EnvConfig(), PolicyConfig(), PPOConfig(), RunConfig())


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("ppo.clipp", "did you mean ppo.clip"),
        ("pop.clip", "did you mean ppo.clip"),
        ("learning_rte", "did you mean ppo.learning_rate?"),
        ("env.seed", "did you mean run.seed?"),
        ("xyzzy", "`operant config ENV` lists them all"),
        ("", "there is no option ''"),
        ("env.params.", "there is no option 'env.params.'"),
        ("ppo.clip.x", "did you mean ppo.clip"),
    ],
)
def test_unknown_names_bring_the_nearest(name: str, nearest: str) -> None:
    for use in (dotted_name, lambda name: Config().replaced({name: 1})):
        with pytest.raises(ValueError, match="there is no option") as error:
            use(name)
        assert nearest in str(error.value)
        assert repr(name) in str(error.value)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("ppo.lr", "here it is ppo.learning_rate"),
        ("lr", "here it is learning_rate (ppo.learning_rate)"),
        ("ppo.n_steps", "here it is ppo.num_steps"),
        ("n_envs", "here it is num_envs (env.num_envs)"),
        ("run.total_timesteps", "here it is run.total_steps"),
        ("run.timesteps", "here it is run.total_steps"),
        ("ppo.n_epochs", "here it is ppo.epochs"),
        ("ppo.ent_coef", "here it is ppo.entropy_coef"),
        ("ppo.vf-coef", "here it is ppo.value_coef"),
        ("ppo.clip_range", "here it is ppo.clip"),
        ("ppo.batch_size", "here it is ppo.minibatches: how many there are, not their size"),
        ("verbose", "learn(progress=False) is silent"),
    ],
)
def test_names_from_other_libraries_bring_ours(name: str, answer: str) -> None:
    for use in (dotted_name, lambda name: Config().replaced({name: 1})):
        with pytest.raises(ValueError) as error:
            use(name)
        assert str(error.value) == f"there is no option {name!r}; {answer}"


def test_every_name_from_elsewhere_leads_to_an_option() -> None:
    names = option_names()
    short = {name.partition(".")[2] for name in names if not name.startswith("intrinsic.")}
    for theirs, ours in Config.elsewhere().items():
        assert ours.partition(":")[0] in names
        assert theirs not in short, "our own name would be refused"


def test_replaced_wants_whole_names() -> None:
    with pytest.raises(ValueError, match=r"no option 'clip'; did you mean ppo\.clip\?"):
        Config().replaced({"clip": 0.1})


@pytest.mark.parametrize(
    ("tables", "text"),
    [
        ({"pppo": {}}, r"there is no section \[pppo\]; did you mean \[ppo\]\?"),
        ({"zzzzzz": {}}, "known: env, policy, ppo, run, intrinsic"),
        ({"clip": 0.1}, r"'clip' belongs in a section: \[ppo\]"),
        ({"ppo.clip": 0.1}, r"'ppo.clip' belongs in a section: \[ppo\]"),
        ({"clipp": 0.1}, r"no option 'clipp'; did you mean ppo\.clip"),
        ({"ppo": 3}, r"\[ppo\] must be a section, got 3"),
        ({"ppo": [{"clip": 1}]}, r"\[ppo\] must be a section"),
        ({"ppo": {"clipp": 1}}, r"no option 'ppo.clipp'; did you mean ppo\.clip"),
        ({"env": {"params": {"a": {"b": 1}}}}, r"env\.params\.a must be a number"),
    ],
)
def test_tables_with_mistakes(tables: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Config.from_dict(tables)


def test_flattened() -> None:
    tables = {"ppo": {"clip": 0.1}, "env": {"params": {"gravity": 1}}, "run": {}}
    assert flattened(tables) == {"ppo.clip": 0.1, "env.params": {"gravity": 1}}


# Types --------------------------------------------------------------------------------------
WRONG = {
    "int": [True, 1.5, "3", None, [1], math.nan, math.inf, -math.inf, 2**63, 1e300, 10**400],
    "float": [True, "0.1", None, [0.1], {}, math.nan, math.inf, -math.inf, 10**400, 1j],
    "bool": [0, 1, "true", None, 1.0],
    "str": [0, True, None, ["a"], b"a", "\ud800"],
    "tuple[str, ...]": ["abc", 1, None, [1], ["a", 2], {"a": "b"}, ["\ud800"]],
    "tuple[int, ...]": [3, "64", None, {"a": 1}, [1.5], [True], ["8"], [[8]], [math.nan]],
    "Mapping[str, Any]": [
        3,
        "a",
        None,
        [1],
        {1: 2},
        {"a": None},
        {"a": [1]},
        {"": 1},
        {"\ud800": 1},
    ],
}


@pytest.mark.parametrize("name", FIELDS)
def test_wrong_types_are_refused_by_name(name: str) -> None:
    for value in WRONG[KINDS[name]]:
        refused(name, value)
        section, key = name.split(".")
        with pytest.raises(ValueError, match=name.replace(".", r"\.")):
            SECTIONS[section](**{key: value})


@pytest.mark.parametrize("name", [name for name in FIELDS if KINDS[name] == "int"])
def test_whole_floats_are_integers(name: str) -> None:
    value = value_of(Config().replaced({name: 16.0}), name)
    assert value == 16
    assert type(value) is int


def test_large_integers_written_as_floats() -> None:
    assert replaced(total_steps=1e6).run.total_steps == 1_000_000
    assert replaced(seed=2**63 - 1).run.seed == 2**63 - 1


def test_integers_are_floats_where_one_is_wanted() -> None:
    clip = replaced(clip=1).ppo.clip
    assert clip == 1.0
    assert type(clip) is float


def test_numbers_of_numpy_become_pythons() -> None:
    """Or they would be written as ``np.float64(0.1)``."""
    params = {"a": np.float64(1.5), "b": np.int32(3), "c": np.float32(0.25), "d": True}
    config = Config().replaced(
        {
            "ppo.clip": np.float32(0.5),
            "ppo.epochs": np.int64(7),
            "policy.hidden": (np.int32(8),),
            "env.params": params,
        }
    )
    found = [config.ppo.clip, config.ppo.epochs, config.policy.hidden[0]]
    found += config.env.params.values()
    assert found == [0.5, 7, 8, 1.5, 3, 0.25, True]
    assert [type(x) for x in found] == [float, int, int, float, int, float, bool]
    with pytest.raises(ValueError, match=r"policy\.shared"):
        replaced(shared=np.bool_(True))


def test_strings_become_plain() -> None:
    class Colour(enum.StrEnum):
        TANH = "tanh"

    activation = replaced(activation=Colour.TANH).policy.activation
    assert activation == "tanh"
    assert type(activation) is str


def test_sizes_of_layers() -> None:
    assert replaced(hidden=[32, 16.0]).policy.hidden == (32, 16)
    assert replaced(hidden=[]).policy.hidden == ()


def test_parameters_of_the_environment() -> None:
    params = {"a": 1, "b": math.inf, "c": -math.inf, "d": "x", "e": False, "f": 1.5}
    assert replaced(params=params).env.params == params
    message = refused("env.params", {"a": math.nan})
    assert message.startswith("env.params.a must be a number, a string or a flag, got nan")
    refused("env.params", {"a": 2**70})
    params["a"] = 2
    config = replaced(params=params)
    params["a"] = 3
    assert config.env.params["a"] == 2, "a copy"


# Limits -------------------------------------------------------------------------------------
def limited(limit: str) -> list[str]:
    return [name for name, one in FIELDS.items() if one.metadata[limit] is not None]


def test_limits_are_where_they_should_be() -> None:
    """Every number has a lower limit (a negative one never makes sense), and these an upper."""
    numbers = {name for name, kind in KINDS.items() if kind in ("int", "float", "tuple[int, ...]")}
    assert numbers == set(limited("least")) | set(limited("above"))
    assert set(limited("most")) == {
        "env.frame_stack",
        "intrinsic.count_capacity",
        "intrinsic.gamma",
        "intrinsic.icm_beta",
        "intrinsic.share",
        "policy.embedding",
        "policy.log_std",
        "ppo.epochs",
        "ppo.gamma",
        "ppo.gae_lambda",
        "run.max_lag",
        "run.seed",
        "run.threads",
    }


def as_field(name: str, number: float) -> Any:
    return [8, number] if KINDS[name].startswith("tuple") else number


@pytest.mark.parametrize("name", limited("least"))
def test_least(name: str) -> None:
    least = FIELDS[name].metadata["least"]
    Config().replaced({name: as_field(name, least)})
    step = 1 if KINDS[name] != "float" else 1e-9
    assert "must be at least" in refused(name, as_field(name, least - step))


@pytest.mark.parametrize("name", limited("most"))
def test_most(name: str) -> None:
    most = FIELDS[name].metadata["most"]
    Config().replaced({name: most})
    more = most + 1 if KINDS[name] == "int" else most + 1e-9
    assert any(text in refused(name, more) for text in ("must be at most", "64 bits"))


@pytest.mark.parametrize("name", limited("above"))
def test_above(name: str) -> None:
    above = FIELDS[name].metadata["above"]
    Config().replaced({name: above + 1e-12})
    assert "must be above 0, got 0.0" in refused(name, above)
    refused(name, -1)


@pytest.mark.parametrize("name", [n for n, one in FIELDS.items() if one.metadata["choices"]])
def test_choices(name: str) -> None:
    choices = FIELDS[name].metadata["choices"]
    for choice in choices:
        assert value_of(Config().replaced({name: choice}), name) == choice
    message = refused(name, choices[-1] + "x")
    assert all(choice in message for choice in choices)
    assert f"did you mean {choices[-1]!r}?" in message
    assert "did you mean" not in refused(name, "zzzzzzzz")


def test_a_minibatch_has_a_sample_at_least() -> None:
    assert replaced(num_envs=2, num_steps=4, minibatches=8).ppo.minibatches == 8
    text = r"ppo\.minibatches is 9, but a rollout has only 8 samples .*num_envs 2 x .*num_steps 4"
    with pytest.raises(ValueError, match=text):
        replaced(num_envs=2, num_steps=4, minibatches=9)


# Copies -------------------------------------------------------------------------------------
def test_replaced_is_a_copy_with_the_rest_as_it_was() -> None:
    config = replaced(gamma=0.5, num_envs=8)
    other = config.replaced({"ppo.gamma": 0.6, "run.seed": 3})
    assert (config.ppo.gamma, config.run.seed) == (0.5, 0)
    assert (other.ppo.gamma, other.run.seed, other.env.num_envs) == (0.6, 3, 8)
    assert config.replaced({}) == config
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.ppo.gamma = 0.9  # type: ignore[misc]


def test_all_parameters_of_the_environment_or_one() -> None:
    config = replaced(params={"a": 1, "b": 2})
    assert config.replaced({"env.params": {"c": 3}}).env.params == {"c": 3}
    assert config.replaced({"env.params.b": 5}).env.params == {"a": 1, "b": 5}
    both = {"env.params.b": 5, "env.params": {"c": 3}}
    for values in (both, dict(reversed(both.items()))):
        assert config.replaced(values).env.params == {"c": 3, "b": 5}
    assert config.env.params == {"a": 1, "b": 2}
    with pytest.raises(ValueError, match=r"env\.params must be a table of parameters, got 3"):
        config.replaced({"env.params": 3, "env.params.b": 1})
    with pytest.raises(ValueError, match=r"env\.params\.b must be a number"):
        config.replaced({"env.params.b": None})
