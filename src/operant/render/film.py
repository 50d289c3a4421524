"""Frames to a film: an animated GIF, an H.264 video, or a strip of stills in one PNG."""

from __future__ import annotations

import math
import shutil
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from operant.toolchain.files import exporting

Frame = NDArray[np.uint8]
"""A picture [H, W, 3] in red, green and blue."""

STRIP_FRAMES = 8
_GAP = 4  # Pixels between the stills of a strip.
_GAP_COLOR = (221, 226, 234)  # To be seen on white and on black.
_GIF_FPS = 50.0  # Browsers play delays below 20 ms as 100 ms.
_MOST_COLORS = 1 << 16  # Median cut with k-means takes 0.7 s for so many, 3 s for 300 000.
_CLEAR = 255  # The palette entry that means "as in the frame before".


def write_film(path: Path, frames: Iterable[np.ndarray], fps: float) -> int:
    """Write `frames` to `path` and return how many of them are in the file.

    The suffix chooses the format: ``.gif`` loops, in one palette for the whole film, and above 50
    frames a second leaves frames out so that the speed stays true; ``.mp4`` needs the program
    ffmpeg; ``.png`` puts up to 8 evenly spaced frames side by side. Missing folders are made. The
    file appears when it is complete: a failure leaves what was at `path` before.

    Args:
        path: where to.
        frames: uint8 [H, W, 3], all of one size; taken one at a time, never all in memory. A frame
            may be overwritten once the next one is asked for.
        fps: frames per second of the film as it came, from 0.01.

    Raises:
        ValueError: an unknown suffix, an unusable `fps`, no frames or wrong ones, a place that
            cannot be written, no ffmpeg, or one that fails.
    """
    path = Path(path)
    writers = {".gif": _write_gif, ".mp4": _write_mp4, ".png": _write_strip}
    if path.suffix.lower() not in writers:
        raise ValueError(f"a film's name must end in .gif, .mp4 or .png, got {path.name!r}")
    if not 0.01 <= fps < math.inf:
        raise ValueError(f"a film needs a frame rate of at least 0.01 per second, got {fps}")
    _find_tool(path.suffix.lower())
    with exporting(path) as part:
        checked = _checked(frames)
        first = next(checked, None)
        if first is None:
            raise ValueError(f"a film needs at least one frame, got none for {path.name!r}")
        return writers[path.suffix.lower()](part, chain([first], checked), float(fps))


def _find_tool(suffix: str) -> None:
    """Refuse a format that this machine cannot write, before the first frame is asked for."""
    if suffix == ".mp4":
        if shutil.which("ffmpeg") is None:
            raise ValueError("an .mp4 film needs ffmpeg on the PATH; write .gif instead")
    elif find_spec("PIL") is None:
        raise ValueError(f"a {suffix} film needs Pillow: pip install pillow")


def _checked(frames: Iterable[np.ndarray]) -> Iterator[Frame]:
    shape: tuple[int, ...] | None = None
    for index, frame in enumerate(frames):
        if not isinstance(frame, np.ndarray):
            raise ValueError(f"render() gave {frame!r:.60}, not a picture uint8 [H, W, 3]")
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or not frame.size:
            raise ValueError(
                f"a frame must be uint8 [H, W, 3], got {frame.dtype} {list(frame.shape)} "
                f"as frame {index}"
            )
        shape = shape or frame.shape
        if frame.shape != shape:
            raise ValueError(
                f"all frames must be as large as the first, {list(shape)}, "
                f"got {list(frame.shape)} as frame {index}"
            )
        yield frame


class _Spool:
    """Frames, compressed in a temporary file: whoever needs them twice has them in no memory."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._ends = [0]
        self._shape: tuple[int, ...] = ()

    def __enter__(self) -> _Spool:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._ends) - 1

    def append(self, frame: Frame) -> None:
        self._shape = frame.shape
        data = zlib.compress(frame.tobytes(), 1)
        self._ends.append(self._ends[-1] + self._file.write(data))

    def __getitem__(self, index: int) -> Frame:
        start, end = self._ends[index : index + 2]
        self._file.seek(start)
        data = zlib.decompress(self._file.read(end - start))
        return np.frombuffer(data, np.uint8).reshape(self._shape)


# --- PNG ---------------------------------------------------------------------------------------


def _write_strip(part: Path, frames: Iterable[Frame], fps: float) -> int:
    from PIL import Image

    with _Spool() as spool:
        for frame in frames:
            spool.append(frame)
        count = min(len(spool), STRIP_FRAMES)
        chosen = np.linspace(0, len(spool) - 1, count).round().astype(int)
        height, width, _ = spool[0].shape
        strip = np.empty((height, count * (width + _GAP) - _GAP, 3), np.uint8)
        strip[:] = _GAP_COLOR
        for place, index in enumerate(chosen):
            left = place * (width + _GAP)
            strip[:, left : left + width] = spool[int(index)]
    Image.fromarray(strip).save(part, format="PNG", optimize=True)
    return count


# --- MP4 ---------------------------------------------------------------------------------------


def _write_mp4(part: Path, frames: Iterable[Frame], fps: float) -> int:
    frames = iter(frames)
    first = _even(next(frames))
    height, width, _ = first.shape
    command = ["ffmpeg", "-y", "-loglevel", "error"]
    command += ["-f", "rawvideo", "-pix_fmt", "rgb24", "-video_size", f"{width}x{height}"]
    command += ["-framerate", str(fps), "-i", "-"]
    # Players take an untagged video for BT.709 or BT.601 by its size: convert to one, and say so.
    command += ["-vf", "scale=out_color_matrix=bt709:out_range=tv", "-pix_fmt", "yuv420p"]
    command += ["-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709"]
    command += ["-c:v", "libx264", "-crf", "18", "-movflags", "+faststart", "-f", "mp4", str(part)]
    # What ffmpeg says goes to a file: a pipe that nobody reads would fill up and stop it.
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said
        )
        try:
            count = _feed(process, chain([first], map(_even, frames)))
            status = process.wait()
        finally:
            process.kill()  # Does nothing to one that has ended.
            process.wait()
        if status != 0:
            said.seek(0)
            lines = said.read().decode(errors="replace").split("\n")
            last = next((line.strip() for line in reversed(lines) if line.strip()), "no message")
            raise ValueError(f"ffmpeg failed (exit status {status}): {last}")
    return count


def _feed(process: subprocess.Popen[bytes], frames: Iterable[Frame]) -> int:
    """Send the frames and close; stops early when the process has ended."""
    assert process.stdin is not None
    count = 0
    try:
        with process.stdin as pipe:
            for frame in frames:
                pipe.write(frame.tobytes())
                count += 1
    except BrokenPipeError:  # The exit status tells why.
        pass
    return count


def _even(frame: Frame) -> Frame:
    """`frame` with its last row and column doubled where yuv420p needs an even number."""
    height, width, _ = frame.shape
    if height % 2 == width % 2 == 0:
        return frame
    return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")


# --- GIF ---------------------------------------------------------------------------------------


def _write_gif(part: Path, frames: Iterable[Frame], fps: float) -> int:
    counts = np.zeros(1 << 24, np.int64)  # Pixels per colour; untouched pages take no memory.
    with _Spool() as spool:
        for frame in _thinned(frames, fps):
            spool.append(frame)
            new, pixels = np.unique(_packed(frame), return_counts=True)
            counts[new] += pixels
        colors = np.flatnonzero(counts)
        palette = _palette(colors, counts[colors])
        del counts
        index_of = np.zeros(1 << 24, np.uint8)
        index_of[colors] = _nearest(colors, palette)

        with part.open("wb") as file:
            height, width, _ = spool[0].shape
            file.write(_gif_header(width, height, palette))
            before: Frame | None = None
            for place in range(len(spool)):
                indices = index_of[_packed(spool[place])]
                file.write(_gif_frame(indices, before, _delay_ms(place, min(fps, _GIF_FPS))))
                before = indices
            file.write(b";")
        return len(spool)


def _thinned(frames: Iterable[Frame], fps: float) -> Iterator[Frame]:
    """The frames that are on the screen first in each 20 ms; all of them up to 50 a second."""
    slot = -1
    for index, frame in enumerate(frames):
        if (now := math.floor(index * _GIF_FPS / fps)) > slot:
            slot = now
            yield frame


def _delay_ms(index: int, fps: float) -> int:
    """How long frame `index` stays, in steps of 10 ms that add up to the film's true length."""
    return 10 * (round((index + 1) * 100 / fps) - round(index * 100 / fps))


def _packed(frame: Frame) -> NDArray[np.uint32]:
    """Each pixel as one number [H, W], 0xRRGGBB."""
    red, green, blue = np.moveaxis(frame, 2, 0).astype(np.uint32)
    packed: NDArray[np.uint32] = red << 16 | green << 8 | blue
    return packed


def _unpacked(colors: NDArray[Any]) -> NDArray[np.uint8]:
    """Numbers 0xRRGGBB [n] as [n, 3]."""
    return np.stack([colors >> 16, colors >> 8 & 255, colors & 255], axis=-1).astype(np.uint8)


def _palette(colors: NDArray[Any], pixels: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The up to 255 colours [n, 3] that serve best for `colors` ([n], so many `pixels` of each).

    All of them if they are that few. Otherwise by median cut, with one twist: a box that is mostly
    one colour becomes that colour, so that large plain areas come out exact.
    """
    from PIL import Image

    rgb = _unpacked(colors)
    if len(rgb) <= _CLEAR:
        return rgb
    if len(rgb) > _MOST_COLORS:
        common = np.argpartition(pixels, -_MOST_COLORS)[-_MOST_COLORS:]
        return _palette(colors[common], pixels[common])
    # With the square root small things get their colours too, next to a large background.
    weight = np.sqrt(pixels)
    weight *= min(1.0, 1e6 / weight.sum())
    samples = np.repeat(rgb, np.ceil(weight).astype(np.int64), axis=0)
    cut = Image.Quantize.MEDIANCUT
    boxes = Image.fromarray(samples[None]).quantize(_CLEAR, method=cut, kmeans=1)
    palette = np.array(boxes.getpalette(), np.uint8).reshape(-1, 3)[:_CLEAR]

    box = _nearest(colors, palette)
    in_box = np.bincount(box, pixels, _CLEAR)
    plain = pixels > in_box[box] / 2
    palette[box[plain]] = rgb[plain]
    return palette


def _nearest(colors: NDArray[Any], palette: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The index [n] of the palette's colour nearest to each of `colors` [n]."""
    points = palette.astype(np.float32)
    square = (points**2).sum(axis=1)  # All numbers below 2^24: float32 is exact.
    nearest = np.empty(len(colors), np.uint8)
    for start in range(0, len(colors), 1 << 14):
        part = slice(start, start + (1 << 14))
        rgb = _unpacked(colors[part]).astype(np.float32)
        nearest[part] = (square - 2 * rgb @ points.T).argmin(axis=1)
    return nearest


def _gif_header(width: int, height: int, palette: NDArray[np.uint8]) -> bytes:
    """The start of a film that loops for ever, with one table of 256 colours for all frames."""
    table = palette.tobytes().ljust(768, b"\0")
    screen = struct.pack("<6s2H3B", b"GIF89a", width, height, 0xF7, 0, 0)
    return screen + table + b"!\xff\x0bNETSCAPE2.0\x03\x01\0\0\0"


def _gif_frame(indices: Frame, before: Frame | None, duration_ms: int) -> bytes:
    """One frame of palette indices [H, W]: the rectangle that changed, clear where it did not.

    A frame that changed nowhere becomes one clear pixel: it keeps its time.
    """
    from PIL import GifImagePlugin, Image

    left = top = 0
    options = {"duration": duration_ms, "disposal": 1}  # 1: leave this frame for the next.
    if before is not None:
        changed = indices != before
        rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
        top, bottom = (rows[0], rows[-1] + 1) if len(rows) else (0, 1)
        left, right = (columns[0], columns[-1] + 1) if len(columns) else (0, 1)
        area = slice(top, bottom), slice(left, right)
        indices = np.where(changed[area], indices[area], np.uint8(_CLEAR))
        options["transparency"] = _CLEAR
    image = Image.fromarray(indices)
    return b"".join(GifImagePlugin.getdata(image, (int(left), int(top)), **options))
