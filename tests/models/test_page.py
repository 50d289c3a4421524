"""The page on policies: its code runs, and what it says of the options is true."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import operant.models
from operant.models.names import CHANNEL_NAMES, IMAGE_NAMES
from operant.training.config import PolicyConfig

PAGE = (Path(__file__).parents[2] / "docs" / "policies.md").read_text()


def test_python_blocks_of_the_page_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)


def test_the_page_names_what_there_is() -> None:
    for name in (*IMAGE_NAMES, *CHANNEL_NAMES):
        assert f'`"{name}"`' in PAGE
    options = {one.name for one in fields(PolicyConfig)}
    table = PAGE.partition("## Options")[2].partition("| network |")[0]
    named = {name for row in re.findall(r"^\| (`.*?`) \|", table, re.M) for name in row.split(", ")}
    assert {name.strip("`") for name in named} - {"[policy]"} <= options
    for kind in re.findall(r"`(\w*(?:CNN|Encoder|Normalizer))`", PAGE):
        assert hasattr(operant.models, kind)
