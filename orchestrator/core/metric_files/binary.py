"""Parse event files of TensorBoard and W&B's logs of offline runs, without either package.

A user's program may run in another Python than this one, which may have neither, and their readers take
seconds to import. Both files are frames around Protocol Buffers messages, of which a few fields count.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import suppress

from orchestrator.core.metric_files.points import Point, numbers

# Field numbers of TensorBoard's Event, Summary, Summary.Value and TensorProto.
_WALL_TIME, _STEP, _SUMMARY, _VALUE = 1, 2, 5, 1
_TAG, _SIMPLE_VALUE, _TENSOR = 1, 2, 8
_DTYPE, _CONTENT, _FLOATS, _DOUBLES, _INTS, _TEXTS, _LONGS = 1, 4, 5, 6, 7, 8, 10
_FORMS = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}  # by dtype
# Those of W&B's Record, HistoryRecord and HistoryItem, and the frames of its log.
_HISTORY, _ITEM, _KEY, _NESTED_KEY, _JSON = 2, 1, 1, 2, 16
_BLOCK, _FILE_HEADER, _HEADER = 32768, 7, 7
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_DAMAGED = (IndexError, KeyError, ValueError, TypeError, struct.error, UnicodeDecodeError, RecursionError)


class EventFile:
    """Parse scalars of an event file; neighbours with the same step are one point."""

    def feed(self, data: bytes, at: int) -> tuple[list[Point], int]:  # noqa: ARG002
        points: list[Point] = []
        used = 0
        for event in _events(data):
            with suppress(*_DAMAGED):
                point = _event(event)
                if points and point.values and points[-1].step == point.step:
                    point = Point({**points.pop().values, **point.values}, point.step, point.time)
                points += [point] if point.values else []
            used += len(event) + 16
        return points, used


def logged_text(data: bytes, tag: str) -> str:
    """Return the first text under a tag in the beginning of an event file; empty without one."""
    for event in _events(data):
        with suppress(*_DAMAGED):
            for value in _all(_bytes(dict(_fields(event)).get(_SUMMARY, b"")), _VALUE):
                parts = dict(_fields(value))
                if parts.get(_TAG) == tag.encode():
                    return _bytes(dict(_fields(_bytes(parts[_TENSOR])))[_TEXTS]).decode()
    return ""


def _events(data: bytes) -> Iterator[bytes]:
    """Yield the whole events at the beginning of a piece of an event file."""
    used = 0
    while len(data) - used >= 12:
        end = used + 16 + int(struct.unpack_from("<Q", data, used)[0])
        if end > len(data):
            break
        yield data[used + 12 : end - 4]
        used = end


class WandbFile:
    """Parse the history in W&B's log of a run."""

    def __init__(self) -> None:
        self._begun = b""

    def feed(self, data: bytes, at: int) -> tuple[list[Point], int]:
        points: list[Point] = []
        used = _FILE_HEADER if at == 0 else 0
        while True:
            left = _BLOCK - (at + used) % _BLOCK
            if len(data) - used < min(left, _HEADER):
                break
            size, kind = struct.unpack_from("<HB", data, used + 4) if left >= _HEADER else (0, 0)
            if not _WHOLE <= kind <= _LAST:  # the end of a block is filled with zeros
                used += min(left, len(data) - used)
                continue
            end = used + _HEADER + size
            if end > len(data):
                break
            part = data[used + _HEADER : end]
            self._begun = self._begun + part if kind in (_MIDDLE, _LAST) else part
            used = end
            if kind in (_WHOLE, _LAST):
                with suppress(*_DAMAGED):
                    points += filter(None, map(_history, _all(self._begun, _HISTORY)))
        return points, min(used, len(data))


def _event(data: bytes) -> Point:
    found = dict(_fields(data))
    values = {}
    for value in _all(_bytes(found.get(_SUMMARY, b"")), _VALUE):
        parts = dict(_fields(value))
        number = _scalar(parts)
        if number is not None:
            values[_bytes(parts[_TAG]).decode()] = number
    step = int(found.get(_STEP, 0))
    return Point(values, step - (step >> 63 << 64), struct.unpack("<d", _bytes(found[_WALL_TIME]))[0])


def _scalar(value: dict[int, int | bytes]) -> float | None:
    if _SIMPLE_VALUE in value:
        return float(struct.unpack("<f", _bytes(value[_SIMPLE_VALUE]))[0])
    tensor = dict(_fields(_bytes(value.get(_TENSOR, b""))))
    form = _FORMS.get(int(tensor.get(_DTYPE, 0)))
    for number, of in ((_CONTENT, form), (_FLOATS, "<f"), (_DOUBLES, "<d")):
        content = tensor.get(number)
        if form and of and isinstance(content, bytes) and len(content) == struct.calcsize(of):
            return float(struct.unpack(of, content)[0])
    whole = tensor.get(_INTS, tensor.get(_LONGS))
    if form is None or whole is None:
        return None
    number, end = (whole, 0) if isinstance(whole, int) else _varint(whole, 0)
    return (
        float(number - (number >> 63 << 64))
        if end == (len(whole) if isinstance(whole, bytes) else 0)
        else None
    )


def _history(data: bytes) -> Point | None:
    values: dict[str, float] = {}
    for item in _all(data, _ITEM):
        names, text = [], b"null"
        for number, value in _fields(item):
            if number in (_KEY, _NESTED_KEY):
                names.append(_bytes(value).decode())
            elif number == _JSON:
                text = _bytes(value)
        values |= numbers(json.loads(text), ".".join(names), ".")
    own = {name: values.pop(name, None) for name in ("_step", "_timestamp", "_runtime")}
    return Point(values, own["_step"], own["_timestamp"]) if values else None


def _all(data: bytes, wanted: int) -> Iterator[bytes]:
    """Yield the messages of a repeated field."""
    return (value for number, value in _fields(data) if number == wanted and isinstance(value, bytes))


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the numbers and values of a message's fields. Raises one of ``_DAMAGED``."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            number, at = _varint(data, at)
            yield key >> 3, number
            continue
        size, at = _varint(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("found a number, expected bytes")
    return value
