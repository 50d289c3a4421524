"""Films are read back: number of frames, times, sizes and colours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageSequence

from operant.render import film
from operant.render.film import write_film

FAKE_FFMPEG = """#!{python}
import json, sys
with open(sys.argv[-1], "wb") as file:
    file.write(json.dumps(sys.argv[1:]).encode() + b"\\n" + sys.stdin.buffer.read())
"""


def moving_square(count: int, height: int = 40, width: int = 60) -> list[np.ndarray]:
    frames = [np.full((height, width, 3), (247, 248, 251), np.uint8) for _ in range(count)]
    for index, frame in enumerate(frames):
        left = index * 7 % (width - 10)
        frame[10:20, left : left + 10] = (228, 88, 84)
    return frames


def read_gif(path: Path) -> tuple[list[np.ndarray], list[int]]:
    """Frames [H, W, 3] and their durations in ms."""
    with Image.open(path) as image:
        pairs = [
            (np.array(frame.convert("RGB")), frame.info["duration"])
            for frame in ImageSequence.Iterator(image)
        ]
    return [frame for frame, _ in pairs], [duration for _, duration in pairs]


def fake_ffmpeg(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str = FAKE_FFMPEG) -> None:
    folder.mkdir()
    program = folder / "ffmpeg"
    program.write_text(script.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def failing(frames: list[np.ndarray]) -> Iterator[np.ndarray]:
    yield from frames
    raise RuntimeError("the environment broke")


# --- GIF ---------------------------------------------------------------------------------------


def test_gif_keeps_every_frame_and_colour(tmp_path: Path) -> None:
    frames = moving_square(9)
    frames[4] = frames[3].copy()  # Nothing moves: the frame keeps its place and its time.
    assert write_film(tmp_path / "a.gif", iter(frames), 25) == 9
    read, durations = read_gif(tmp_path / "a.gif")
    assert durations == [40] * 9
    for ours, theirs in zip(read, frames, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with Image.open(tmp_path / "a.gif") as image:
        assert image.info["loop"] == 0
    assert os.listdir(tmp_path) == ["a.gif"]


def test_gif_is_small_because_it_stores_changes(tmp_path: Path) -> None:
    still = np.random.default_rng(0).integers(0, 200, (60, 80, 1), np.uint8).repeat(3, 2)
    frames = [still.copy() for _ in range(20)]
    for index, frame in enumerate(frames):
        frame[index, index] = frame[59 - index, 79 - index] = 255  # In a large rectangle.
    write_film(tmp_path / "1.gif", frames[:1], 25)
    write_film(tmp_path / "20.gif", frames, 25)
    assert (tmp_path / "20.gif").stat().st_size < 1.4 * (tmp_path / "1.gif").stat().st_size
    for ours, theirs in zip(read_gif(tmp_path / "20.gif")[0], frames, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_gif_times_add_up(tmp_path: Path) -> None:
    write_film(tmp_path / "a.gif", moving_square(30), 30)
    durations = read_gif(tmp_path / "a.gif")[1]
    assert set(durations) == {30, 40}
    assert sum(durations) == 1000


@pytest.mark.parametrize(("fps", "count"), [(50, 60), (60, 50), (75, 40), (100, 30), (120, 25)])
def test_gif_drops_frames_above_50_per_second(tmp_path: Path, fps: float, count: int) -> None:
    frames = moving_square(60)
    assert write_film(tmp_path / "a.gif", frames, fps) == count
    read, durations = read_gif(tmp_path / "a.gif")
    assert durations == [20] * count
    assert sum(durations) == 60 * 1000 / fps
    # Each frame is the first of its 20 ms.
    for place in range(count):
        shown = [index for index, frame in enumerate(frames) if np.array_equal(frame, read[place])]
        assert any(-1e-9 < index / fps - place * 0.02 < 0.02 for index in shown)


def test_gif_of_many_colours_has_one_good_palette(tmp_path: Path) -> None:
    y, x = np.mgrid[0:90, 0:120]
    gradient = np.stack([x * 2, y * 2, 255 - x - y], axis=-1).astype(np.uint8)
    frames = [gradient.copy() for _ in range(4)]
    for index, frame in enumerate(frames):
        frame[30:60, 30:90] = (12, 34, 56)  # A plain area is exact, whatever surrounds it.
        frame[0:3, 10 * index : 10 * index + 3] = (255, 0, 255)
    write_film(tmp_path / "a.gif", frames, 10)
    read = read_gif(tmp_path / "a.gif")[0]
    for index, (ours, theirs) in enumerate(zip(read, frames, strict=True)):
        error = np.abs(ours.astype(int) - theirs)
        assert error.mean() < 4
        assert error.max() < 32
        assert (ours[30:60, 30:90] == (12, 34, 56)).all()
        assert np.abs(ours[1, 10 * index + 1] - np.array([255, 0, 255])).max() < 20
        # No flicker: what did not change does not change.
        np.testing.assert_array_equal(ours[10:], read[0][10:])


def test_palette_takes_what_is_common_as_it_is() -> None:
    # 125 clusters of seven colours: one has 9 of 15 pixels, but only 3 of 9 in square roots.
    corner = np.stack(np.meshgrid(*[np.arange(5) * 50] * 3), axis=-1).reshape(-1, 1, 3)
    offset = np.array([[0, 0, 0], *[[2 + k // 3, 2 + k % 3, 3] for k in range(6)]])
    red, green, blue = (corner + offset).reshape(-1, 3).T
    pixels = np.tile([9, 1, 1, 1, 1, 1, 1], 125)
    colors = red << 16 | green << 8 | blue
    palette = film._palette(colors, pixels)
    rows = {tuple(row) for row in palette.tolist()}
    assert {tuple(row) for row in corner.reshape(-1, 3).tolist()} <= rows


def test_palette_has_room_for_small_things() -> None:
    gray = np.arange(250) * 0x010101
    rare = np.arange(64) * 0x040000 + 0x33
    colors = np.concatenate([gray, rare])
    pixels = np.array([1000] * 250 + [30] * 64)
    palette = film._palette(colors, pixels)
    error = film._unpacked(colors).astype(int) - palette[film._nearest(colors, palette)]
    assert np.abs(error[250:]).max() <= 24  # 30 if every pixel counted.


def test_palette_of_too_many_colours_is_made_from_the_commonest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(film, "_MOST_COLORS", 300)
    colors = np.arange(2000) * 7
    pixels = np.ones(2000, np.int64)
    pixels[100:110] = 1000
    palette = film._palette(colors, pixels)
    assert palette.shape == (255, 3)
    rows = {tuple(row) for row in palette.tolist()}
    assert {tuple(row) for row in film._unpacked(colors[100:110]).tolist()} <= rows


def test_frames_may_share_a_buffer(tmp_path: Path) -> None:
    frames = moving_square(12)

    def reused() -> Iterator[np.ndarray]:
        buffer = np.empty_like(frames[0])
        for frame in frames:
            buffer[:] = frame
            yield buffer

    write_film(tmp_path / "a.gif", reused(), 25)
    for ours, theirs in zip(read_gif(tmp_path / "a.gif")[0], frames, strict=True):
        np.testing.assert_array_equal(ours, theirs)


# --- PNG ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "chosen"), [(1, [0]), (3, [0, 1, 2]), (29, [0, 4, 8, 12, 16, 20, 24, 28])]
)
def test_png_is_a_strip(tmp_path: Path, count: int, chosen: list[int]) -> None:
    frames = moving_square(count)
    for index, frame in enumerate(frames):
        frame[0, 0] = index
    assert write_film(tmp_path / "a.PNG", frames, 50) == len(chosen)
    with Image.open(tmp_path / "a.PNG") as image:
        assert image.format == "PNG"
        strip = np.array(image)
    assert strip.shape == (40, 64 * len(chosen) - 4, 3)
    for place, index in enumerate(chosen):
        np.testing.assert_array_equal(strip[:, 64 * place : 64 * place + 60], frames[index])
        assert (strip[:, 64 * place + 60 : 64 * place + 64] == (221, 226, 234)).all()


# --- MP4 ---------------------------------------------------------------------------------------


def test_mp4_pipes_raw_frames_of_even_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_ffmpeg(tmp_path / "bin", monkeypatch)
    frames = moving_square(5, 41, 63)
    target = tmp_path / "new" / "a.mp4"
    assert write_film(target, iter(frames), 29.97) == 5
    arguments, _, raw = target.read_bytes().partition(b"\n")
    options = json.loads(arguments)
    for name, value in {
        "-video_size": "64x42",
        "-framerate": "29.97",
        "-i": "-",
        "-c:v": "libx264",
        "-f": "rawvideo",
    }.items():
        assert options[options.index(name) + 1] == value
    output = options[options.index("-i") :]
    assert output[output.index("-pix_fmt") + 1] == "yuv420p"
    assert output[output.index("-f") + 1] == "mp4"
    sent = np.frombuffer(raw, np.uint8).reshape(5, 42, 64, 3)
    np.testing.assert_array_equal(sent[:, :41, :63], frames)
    np.testing.assert_array_equal(sent[:, 41], sent[:, 40])
    np.testing.assert_array_equal(sent[:, :, 63], sent[:, :, 62])
    assert os.listdir(tmp_path / "new") == ["a.mp4"]


def test_mp4_of_even_size_is_not_padded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_ffmpeg(tmp_path / "bin", monkeypatch)
    frames = moving_square(2)
    write_film(tmp_path / "a.mp4", frames, 30)
    raw = (tmp_path / "a.mp4").read_bytes().partition(b"\n")[2]
    assert raw == b"".join(frame.tobytes() for frame in frames)


def test_mp4_takes_one_frame_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_ffmpeg(tmp_path / "bin", monkeypatch)
    alive = set()

    def watched() -> Iterator[np.ndarray]:
        for index, frame in enumerate(moving_square(9)):
            alive.add(index)
            yield frame
            alive.discard(index)
            assert not alive

    assert write_film(tmp_path / "a.mp4", watched(), 30) == 9


def test_mp4_without_ffmpeg_asks_for_no_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"needs ffmpeg on the PATH; write \.gif instead"):
        write_film(tmp_path / "a.mp4", failing([]), 30)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "#!/bin/sh\necho first >&2; echo 'Unknown encoder libx264' >&2; echo >&2; exit 8\n",
            r"ffmpeg failed \(exit status 8\): Unknown encoder libx264$",
        ),
        ("#!/bin/sh\nexit 1\n", r"exit status 1\): no message$"),
    ],
)
def test_mp4_tells_what_ffmpeg_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    fake_ffmpeg(tmp_path / "bin", monkeypatch, script)
    frames = moving_square(40, 200, 200)  # More than a pipe holds: writing fails too.
    with pytest.raises(ValueError, match=message):
        write_film(tmp_path / "a.mp4", frames, 30)
    assert os.listdir(tmp_path) == ["bin"]


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs ffmpeg")
def test_mp4_by_the_real_ffmpeg(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    frames = moving_square(20, 99, 121)
    assert write_film(path, frames, 25) == 20
    command = ["ffmpeg", "-loglevel", "error", "-i", str(path), "-f", "rawvideo"]
    raw = subprocess.run([*command, "-pix_fmt", "rgb24", "-"], capture_output=True, check=True)
    read = np.frombuffer(raw.stdout, np.uint8).reshape(20, 100, 122, 3)
    assert np.abs(read[:, :99, :121].astype(int) - frames).mean() < 4


# --- What is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".gif", ".png", ".mp4"])
def test_a_failure_leaves_the_old_film(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    fake_ffmpeg(tmp_path / "bin", monkeypatch)
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="the environment broke"):
        write_film(path, failing(moving_square(3)), 30)
    assert path.read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == [path.name, "bin"]


@pytest.mark.parametrize("name", ["a.avi", "film"])
def test_unknown_suffix(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=rf"must end in \.gif, \.mp4 or \.png, got '{name}'"):
        write_film(tmp_path / name, moving_square(1), 30)


@pytest.mark.parametrize("fps", [0, -1.0, float("nan"), float("inf"), 0.001])
def test_impossible_frame_rate(tmp_path: Path, fps: float) -> None:
    with pytest.raises(ValueError, match=f"frame rate of at least 0.01 per second, got {fps}"):
        write_film(tmp_path / "a.gif", moving_square(1), fps)


def test_no_frames(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"at least one frame, got none for 'a\.gif'"):
        write_film(tmp_path / "a.gif", iter([]), 30)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (np.zeros((4, 4, 3), np.float32), r"got float32 \[4, 4, 3\] as frame 1"),
        (np.zeros((4, 4), np.uint8), r"got uint8 \[4, 4\] as frame 1"),
        (np.zeros((4, 4, 4), np.uint8), r"got uint8 \[4, 4, 4\] as frame 1"),
        (np.zeros((0, 4, 3), np.uint8), r"got uint8 \[0, 4, 3\] as frame 1"),
        (np.zeros((5, 4, 3), np.uint8), r"the first, \[4, 4, 3\], got \[5, 4, 3\] as frame 1"),
    ],
)
def test_wrong_frames(tmp_path: Path, frame: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        write_film(tmp_path / "a.gif", [np.zeros((4, 4, 3), np.uint8), frame], 30)
    assert os.listdir(tmp_path) == []


def test_unwritable_places(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"cannot write .*a\.gif.*writable folder"):
        write_film(tmp_path / "file" / "a.gif", failing([]), 30)
    with pytest.raises(ValueError, match=r"cannot write .*x\.gif.*writable folder"):
        write_film(tmp_path / ("x" * 300 + ".gif"), failing([]), 30)
    (tmp_path / "folder.gif").mkdir()
    with pytest.raises(ValueError, match=r"cannot write .*folder\.gif: it is a folder"):
        write_film(tmp_path / "folder.gif", failing([]), 30)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="a folder nobody can write to")
def test_a_folder_that_cannot_be_written_is_refused_before_the_first_frame() -> None:
    with pytest.raises(ValueError, match=r"cannot write /proc/a\.gif: .*writable folder"):
        write_film(Path("/proc/a.gif"), failing([]), 30)


def test_a_long_name_is_fine(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 251 + ".gif")
    assert write_film(path, moving_square(2), 30) == 2
    assert path.is_file()


def test_without_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(film, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"a \.gif film needs Pillow: pip install pillow"):
        write_film(tmp_path / "a.gif", failing([]), 30)
