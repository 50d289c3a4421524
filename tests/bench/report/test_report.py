"""The page of results: what is read, what is drawn, and what a file may not do to it."""

from __future__ import annotations

import json
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operant.bench.report.charts import Bar, Line, bars, lines
from operant.bench.report.page import page
from operant.bench.report.sources import (
    curves,
    find_sources,
    histories,
    read_source,
    solved,
    speeds,
    suite_figures,
)
from operant.cli import main

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"


def write(path: Path, records: list[Any], **more: Any) -> Path:
    machine = {"cpu": "A fast processor", "cores": 4, "versions": {"torch": "2.0"}}
    date = "2026-01-02T00:00:00+00:00"
    frame = {"machine": machine, "commit": "0123456789abcdef", "date": date, "results": records}
    path.write_text(json.dumps(frame | more))
    return path


def speed(**more: Any) -> dict[str, Any]:
    record = {"system": "operant", "env": "X-v0", "backend": "cpu", "num_envs": 8, "workers": 1}
    return record | {"sps": 200.0, "sps_min": 100, "sps_max": 300} | more


class Tags(HTMLParser):
    """Counts what is open; fails if something is closed that is not."""

    VOID = ("meta", "rect", "line", "circle", "polyline", "polygon")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def parsed(text: str) -> Tags:
    found = Tags()
    found.feed(text)
    assert found.open == []
    return found


def test_the_published_results_make_a_page() -> None:
    found = find_sources([RESULTS])
    assert found.troubles == []
    text = page(found)
    tags = parsed(text)
    assert "script" not in tags.seen
    for name in ("Training", "Environments", "Learning", "Time to a solved task"):
        assert name in tags.words
    for source in found.sources:  # a figure without its file, machine, commit and date is none
        if speeds(source) or curves(source) or solved(source):
            assert f"{source.name}: {source.where()}" in tags.words
    assert "http" not in text  # it needs nothing else


def test_what_is_read(tmp_path: Path) -> None:
    records = [
        speed(),
        speed(system="fused", engine="fused", precision="bf16", threads=2, compile="max"),
        speed(system="rejax", engine="jit", hidden=[32]),
        speed(sps=0),
        speed(sps=float("nan")),
        speed(num_envs=True),
        speed(env=3),
        "no record",
        {"env": "X-v0", "what": "rnd", "curve": [[0, 1], [10, 2.5], ["a", 2], [1], [20, None]]},
        {"env": "X-v0", "what": "rnd", "curve": [[0, 1]]},
        {"env": "X-v0", "seconds": 2.5, "reached": True, "engine": "fused"},
        {"env": "X-v0", "seconds": 9, "reached": False, "engine": "fused"},
        {"name": "gae", "unit": "us", "median": 2.0, "low": 1.0, "high": 3.0, "rounds": []},
        {"name": "gae", "unit": "us", "median": 10**400, "low": 1.0, "high": 3.0},
    ]
    source = read_source(write(tmp_path / "a.json", records))
    assert (
        source.where() == "A fast processor, 4 cores · torch 2.0 · commit 0123456789ab · 2026-01-02"
    )
    found = speeds(source)
    assert [(one.system, one.trains, one.ours) for one in found] == [
        ("operant cpu", False, True),
        ("operant fused bf16 2 threads compile=max", True, True),
        ("rejax jit hidden [32]", True, False),
    ]
    (curve,) = curves(source)
    assert curve.curves == ([(0.0, 1.0), (10.0, 2.5)],)
    (time,) = solved(source)
    assert time.seconds == (2.5, None)
    (figure,) = suite_figures(source)
    assert (figure.name, figure.median) == ("gae", 2.0)


def test_history_is_of_one_machine(tmp_path: Path) -> None:
    def case(name: str, date: str, median: float, cpu: str = "A") -> Path:
        record = {"name": "gae", "unit": "s", "median": median, "low": median, "high": median}
        return write(tmp_path / name, [record], date=date, machine={"cpu": cpu})

    files = [case("b.json", "2026-02", 1.0), case("a.json", "2026-03", 0.5)]
    files.append(case("c.json", "2026-01", 4.0, "B"))
    found = find_sources(files)
    assert [one.name for one in found.sources] == ["c.json", "b.json", "a.json"]
    (points,) = histories(found.sources).values()
    assert [source.name for source, _ in points] == ["b.json", "a.json"]
    words = parsed(page(found)).words
    assert {"1.000", "2.000"} <= set(words)  # half the seconds are twice as good


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "has no results with a machine"),
        ('{"results": 3, "machine": {}}', "has no results with a machine"),
        ("[" * 100_000, "nested too deeply"),
        ("\udcff", "is not JSON"),
    ],
)
def test_what_is_no_result(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=words) as caught:
        read_source(file)
    assert "a.json" in str(caught.value)


texts = st.text(max_size=30) | st.sampled_from(
    ["<script>x</script>", '"onload="', "&lt;", "\x1b[2J"]
)
values = st.none() | st.booleans() | st.integers() | st.floats() | texts
names = st.sampled_from(
    [
        "system",
        "env",
        "backend",
        "num_envs",
        "sps",
        "sps_min",
        "sps_max",
        "engine",
        "hidden",
        "what",
        "curve",
        "seconds",
        "reached",
        "name",
        "unit",
        "median",
        "low",
        "high",
    ]
)
pairs = st.lists(st.lists(values, max_size=3), max_size=5)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(names, values | pairs, max_size=12), max_size=6), texts)
def test_anything_in_a_file_is_text_on_the_page(records: list[Any], cpu: str) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.json"
        text = "<b>bold</b>"
        write(path, [speed(env=text, system=text), *records], machine={"cpu": cpu, "cores": 1})
        found = find_sources([path])
    tags = parsed(page(found))
    assert text in tags.words
    assert not {"b", "script"} & set(tags.seen)


def test_bars_to_scale() -> None:
    found = bars([Bar("a<b", 2.0, 1.0, 4.0, "2/s"), Bar("c", 4.0, 4.0, 4.0, "4/s")])
    assert "logarithmic" not in found
    assert 'width="50.00"' in found
    assert 'x1="25.00" x2="100.00"' in found
    assert "a&lt;b" in found
    assert "logarithmic" in bars([Bar("a", 1.0, 1.0, 1.0, ""), Bar("c", 100.0, 100.0, 100.0, "")])
    for wrong in (0.0, -1.0, float("inf")):
        with pytest.raises(ValueError, match="positive"):
            bars([Bar("a", wrong, 1.0, 1.0, "")])
    with pytest.raises(ValueError, match="positive"):
        bars([])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(1e-3, 1e9), st.floats(-1e9, 1e9)), min_size=1, max_size=9),
    st.booleans(),
    st.booleans(),
)
def test_points_lie_in_the_picture(points: Any, log_x: bool, from_zero: bool) -> None:
    drawn = lines([Line("a", points)], "x", "y", log_x, from_zero)
    svg = ElementTree.fromstring(drawn[: drawn.index("</svg>") + 6])
    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    (line,) = svg.iter("polyline")
    for place in line.attrib["points"].split():
        x, y = map(float, place.split(","))
        assert 0 <= x <= width
        assert 0 <= y <= height
    ticks = [float(text.attrib["y"]) for text in svg.iter("text") if "text-anchor" in text.attrib]
    assert 2 <= len(ticks) <= 24


def test_higher_is_further_up() -> None:
    svg = lines([Line("a", [(0, 0.0), (1, 10.0), (2, 5.0)])], "x", "y")
    places = svg.split('points="')[1].split('"')[0].split()
    xs, ys = zip(*(map(float, place.split(",")) for place in places), strict=True)
    assert xs[0] < xs[1] < xs[2]
    assert ys[1] < ys[2] < ys[0]
    assert ys[2] == pytest.approx((ys[0] + ys[1]) / 2, abs=0.1)
    with pytest.raises(ValueError, match="logarithmic"):
        lines([Line("a", [(0, 1.0)])], "x", "y", log_x=True)


def test_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def report(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["operant", "bench", "report", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        return int(left.value.code or 0), *capsys.readouterr()

    write(tmp_path / "a.json", [speed()])
    (tmp_path / "b.json").write_text("{")
    out = tmp_path / "new" / "report.html"
    code, said, err = report(str(tmp_path), "--out", str(out), "--title", "Mine & yours")
    assert code == 0, err
    assert "1 files" in said
    assert "b.json is not JSON" in err
    assert "<title>Mine &amp; yours</title>" in out.read_text()
    for arguments, words in (
        ([str(tmp_path / "none")], "there is no file or folder"),
        ([str(tmp_path / "b.json")], "nothing that the report knows how to show"),
        ([str(tmp_path / "a.json"), "--out", str(tmp_path)], "it is a folder"),
    ):
        code, said, err = report(*arguments)
        assert (code, said) == (2, "")
        assert words in " ".join(err.split())
