"""Watch a program for `orchestrate audit`: kill it after a checkpoint, note its state before and after.

sitecustomize imports this where ORCHESTRATE_AUDIT names the folder of an audit. ``plan.json`` in it says
what to do: ``save`` (frames at which `run.save` writes; null: when it would), ``kill`` (frames of
checkpoints to be killed after), ``places`` (lines that follow a checkpoint: at the first ones that a restored
program reaches its state is noted) and ``at`` (such lines by frames of checkpoints, to note the
state after these). Answers are files beside it: ``steps`` (frames at which the program can save), ``places``,
``state-FRAMES-0.json``, … (the state at these lines) and ``-begin`` (right after the checkpoint).

Draws no random numbers and changes nothing. Standard library alone, Python 3.8 or later.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from typing import Any

_CHECKPOINT = re.compile(r"(\d{1,12})(\.[A-Za-z0-9]+)?")
_KEPT_CHECKPOINT = re.compile(r"(\d{1,12})-.*")
_MOST_PLACES, _MOST_STATES, _MOST_LINES, _MOST_CALLS = 40, 12, 3000, 500_000
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LIBRARY = os.path.dirname(os.__file__) + os.sep

_folder = os.environ["ORCHESTRATE_AUDIT"]
_start = os.getcwd() + os.sep
_inbox = os.path.realpath(os.environ.get("ORCHESTRATE_CHECKPOINT_DIR", _folder))
_resume = os.environ.get("ORCHESTRATE_RESUME", "")


def _load_plan() -> dict[str, Any]:
    with open(os.path.join(_folder, "plan.json"), encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


_plan = _load_plan()


def due(step: int, usual: bool) -> bool:
    """Note that `run.save` could write now, and return whether it is to."""
    if _plan["save"] is None:
        _note_step(step)
        _follow(step)
        return usual
    return step in _plan["save"]


def _note(name: str, line: Any) -> None:
    with open(os.path.join(_folder, name), "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


_steps: list[int] = []


def _note_step(step: int) -> None:
    if step not in _steps[-1:]:
        _steps.append(step)
        _note("steps", step)


def is_own(name: str) -> bool:
    """Whether a file of code is the program's: no library's, no part of Python."""
    installed = "site-packages" in name or "dist-packages" in name
    return not (installed or name.startswith((_HERE, _LIBRARY, "<frozen", "<__array")))


def _place(frame: Any) -> tuple[str, int]:
    name = frame.f_code.co_filename
    return (name[len(_start) :] if name.startswith(_start) else name, frame.f_lineno)


def _loop(frame: Any) -> list[Any]:
    """The program's innermost frame and those around it."""
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    own = next((place for place, one in enumerate(frames) if is_own(one.f_code.co_filename)), None)
    return frames[-1:] if own is None else frames[own:]


class _Lines:
    """Calls a function with each line that is executed in frames, and in new ones of the functions ``names``.

    ``line(frame)`` returns whether that is enough. A frame that returns counts only for ``ended``.
    """

    def __init__(
        self,
        frames: list[Any],
        line: Callable[[Any], bool],
        names: set[str] | None = None,
        ended: Callable[[], bool] | None = None,
    ) -> None:
        self._line, self._names, self._ended = line, names or set(), ended
        self._frames, self._count = frames, 0
        for frame in frames:
            frame.f_trace = self._local
        sys.settrace(self._called)

    def _called(self, frame: Any, *_: Any) -> Any:
        self._count += 1
        if self._count > _MOST_CALLS:
            self._stop()
        return self._local if frame.f_code.co_name in self._names else None

    def _local(self, frame: Any, event: str, _: Any) -> Any:
        enough = False
        if event == "line":
            self._count += 1
            enough = self._line(frame) or (not self._names and self._count > _MOST_LINES)
        elif event == "return" and self._ended is not None and frame is self._frames[0]:
            enough = self._ended()
        if enough:
            self._stop()
            return None
        return self._local

    def _stop(self) -> None:
        sys.settrace(None)
        for frame in self._frames:
            frame.f_trace = None
        self._frames = []


def _follow(frames: int) -> None:
    """Note the lines that follow a checkpoint, or the state at those of the plan."""
    wanted = {tuple(one) for one in _plan["at"].get(str(frames), ())}
    number = len(_steps)
    if not wanted and (_plan["save"] is not None or number & (number - 1)):
        return  # places of the first, second, fourth, eighth, … are enough
    found: list[tuple[str, int]] = []
    begun: list[bool] = []

    def line(frame: Any) -> bool:
        place = _place(frame)
        if wanted and not begun:
            begun.append(_note_state(frames, "begin", frame))
        if place in found or (wanted and place not in wanted):
            return False
        if wanted:
            _note_state(frames, len(found), frame)
        else:
            _note("places", [place, frame.f_code.co_name])
        found.append(place)
        return len(found) == (len(wanted) or _MOST_PLACES)

    _Lines(_loop(sys._getframe(2)), line)


def _restored() -> None:
    """Note the state at the first lines that also follow a checkpoint: one of them is the same place."""
    match = _KEPT_CHECKPOINT.fullmatch(os.path.basename(_resume))
    if match is None or not _plan["places"]:
        return
    places = {tuple(place) for place, _ in _plan["places"]}
    found: list[tuple[str, int]] = []

    def line(frame: Any) -> bool:
        place = _place(frame)
        if place in places and place not in found:
            _note_state(int(match[1]), len(found), frame)
            found.append(place)
        return len(found) == _MOST_STATES

    _Lines(_loop(sys._getframe(2)), line, {name for _, name in _plan["places"]})


def _note_state(frames: int, name: object, frame: Any) -> bool:
    import orchestrate_state  # type: ignore[import-not-found]

    path = os.path.join(_folder, f"state-{frames}-{name}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"place": _place(frame), "parts": orchestrate_state.parts(frame, is_own)}, file)
    return True


def _kill(frames: int, frame: Any) -> bool:
    """Note what the program knew, and kill it."""
    _note_state(frames, "begin", frame)
    os.kill(os.getpid(), signal.SIGKILL)
    return True


def _written(frames: int) -> None:
    mark = os.path.join(_folder, f"killed-{frames}")
    if frames in _plan["kill"] and not os.path.exists(mark):
        os.close(os.open(mark, os.O_CREAT | os.O_WRONLY))
        loop = _loop(sys._getframe(2))
        _Lines(loop, lambda frame: _kill(frames, frame), ended=lambda: _kill(frames, loop[0]))
        return
    _note_step(frames)
    _follow(frames)


_open_resume = [True]


def _watch(event: str, about: Any) -> None:
    """Called for each audit event, a file's name or opening among them."""
    if event not in ("os.rename", "open"):
        return
    try:
        if event == "os.rename":
            path, writes = about[1], True
        else:
            path, writes = about[0], bool(about[2] & 3 if about[1] is None else set(about[1]) & set("wxa+"))
        if isinstance(path, int):
            return
        path = os.fsdecode(path)
        if writes:
            match = _CHECKPOINT.fullmatch(os.path.basename(path))
            if match and os.path.realpath(os.path.dirname(path)) == _inbox:
                _written(int(match[1]))
        elif _open_resume and os.path.basename(path) == os.path.basename(_resume):
            _open_resume.clear()
            _restored()
    except Exception as error:
        sys.stderr.write(f"orchestrate audit: {type(error).__name__}: {error}\n")


sys.addaudithook(_watch)
