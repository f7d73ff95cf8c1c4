"""Films of episodes: write frames into an mp4 or a gif that appears when it is complete."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from orchestrator.rundir.files.atomic import storage_errors, temporary_name

Frame = NDArray[np.uint8]

# As BenchMARL shows its own videos.
FRAMES_PER_SECOND = 20
# A gif holds every pixel of every frame: larger than this, across or down, it is made smaller.
_GIF_PIXELS = 480


class Film:
    """A film under way. Frames are (height, width, 3), all of one size. An exception leaves no file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.frames = 0
        self._temporary = temporary_name(path).with_suffix(path.suffix)
        self._writer: _Mp4 | _Gif | None = None

    def add(self, frame: Frame) -> None:
        """Append a frame."""
        with storage_errors(self.path):
            if self._writer is None:
                self._writer = _WRITERS[self.path.suffix.lower()](self._temporary, frame)
            self._writer.add(frame)
        self.frames += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            if self._writer is not None:
                with storage_errors(self.path):
                    self._writer.close()
                    if error is None:
                        self._temporary.replace(self.path)
        finally:
            self._temporary.unlink(missing_ok=True)


class _Mp4:
    """H.264, which every browser plays, written frame by frame."""

    def __init__(self, path: Path, first: Frame) -> None:
        import av

        self._av = av
        self._container = av.open(str(path), "w", format="mp4")
        codec = "libx264" if "libx264" in av.codec.codecs_available else "mpeg4"
        stream: Any = self._container.add_stream(codec, rate=FRAMES_PER_SECOND)
        self._stream = stream
        # Colours are stored for four pixels at once: a last odd row or column is left out.
        stream.height, stream.width = (size - size % 2 for size in first.shape[:2])
        stream.pix_fmt = "yuv420p"

    def add(self, frame: Frame) -> None:
        cut = np.ascontiguousarray(frame[: self._stream.height, : self._stream.width])
        self._container.mux(self._stream.encode(self._av.VideoFrame.from_ndarray(cut, format="rgb24")))

    def close(self) -> None:
        self._container.mux(self._stream.encode())
        self._container.close()


class _Gif:
    """Shrunk frames in memory until the end: a gif is written in one go."""

    def __init__(self, path: Path, first: Frame) -> None:
        self._path, self._images = path, []  # type: tuple[Path, list[Any]]
        height, width = first.shape[:2]
        shrink = min(1.0, _GIF_PIXELS / max(height, width))
        self._size = (max(1, round(width * shrink)), max(1, round(height * shrink)))

    def add(self, frame: Frame) -> None:
        from PIL import Image

        image = Image.fromarray(frame)
        if image.size != self._size:
            image = image.resize(self._size, Image.Resampling.LANCZOS)
        self._images.append(image.quantize(256, dither=Image.Dither.NONE))

    def close(self) -> None:
        first, *others = self._images
        how = {"save_all": True, "duration": 1000 // FRAMES_PER_SECOND, "loop": 0, "optimize": False}
        first.save(self._path, "GIF", append_images=others, **how)


_WRITERS: dict[str, Callable[[Path, Frame], _Mp4 | _Gif]] = {".mp4": _Mp4, ".gif": _Gif}
