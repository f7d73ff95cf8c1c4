"""Save the state of a VMAS environment without a reset.

A VMAS environment keeps its state in plain attributes all over its world, agents and scenario. Built twice
from the same configuration it is the same graph of objects. So the objects are numbered in the order of a
walk right after the build, in the run that saves and in the run that loads. A snapshot gives the content of
each numbered object: numbers and text as they are, tensors (stored by the checkpoint with their aliasing),
further objects by number. Lists and dicts made later get numbers of their own.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from jobs.trainers.benchmarl.engine.random_states import GENERATORS, load_generator, save_generator
from jobs.trainers.benchmarl.engine.tensors import Plain

_SCALARS = (type(None), bool, int, float, complex, str, bytes)
_CONTAINERS = (list, dict, set, deque)
# Drawing on a screen is no part of the state, and its objects belong to the graphics library.
_DRAWING = ("vmas.simulator.rendering", "pyglet")


class SnapshotError(Exception):
    """The state cannot be saved or loaded without a reset; names the object in the way."""


class ObjectGraph:
    """The objects below ``root`` with a class of one of ``packages``, and all that they hold."""

    def __init__(self, root: Any, packages: tuple[str, ...]) -> None:
        self._packages = packages
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._enrol(root)

    def save(self) -> Plain:
        """Return the content of every object. Tensors are not copied: write them before training goes on."""
        writer = _Writer(self)
        return [writer.content(item) for item in writer.pending()]

    def load(self, saved: Plain) -> None:
        """Put a snapshot of an identically built graph into this one."""
        reader = _Reader(self, saved)
        for number, content in enumerate(saved):
            reader.fill(number, content)

    def tracks(self, value: Any) -> bool:
        """Whether ``value`` has a state of its own that the graph follows."""
        if type(value) in _CONTAINERS or isinstance(value, GENERATORS):
            return True
        module = type(value).__module__
        if not hasattr(value, "__dict__") or isinstance(value, type) or module.startswith(_DRAWING):
            return False
        return self.owns(module)

    def owns(self, module: str) -> bool:
        """Whether objects with a class of this module belong to the graph."""
        return module.split(".")[0] in self._packages or module.startswith("torch.distributions.")

    def number(self, value: Any) -> int | None:
        """Return the number of ``value``; ``None`` if it has none."""
        return self._numbers.get(id(value))

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._objects)

    def _enrol(self, root: Any) -> None:
        waiting = [root]
        while waiting:
            value = waiting.pop()
            if isinstance(value, tuple):
                waiting.extend(reversed(value))
            elif self.tracks(value) and id(value) not in self._numbers:
                self._numbers[id(value)] = len(self._objects)
                self._objects.append(value)
                # The order in a set differs between processes; what a set holds is met elsewhere too.
                if not isinstance(value, set):
                    waiting.extend(reversed(list(_parts(value))))


def _is_constant(encoded: Plain) -> bool:
    return isinstance(encoded, dict) and "constant" in encoded


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield item
    elif isinstance(value, list | deque):
        yield from value
    elif not isinstance(value, GENERATORS):
        yield from value.__dict__.values()


class _Writer:
    """A snapshot under construction; numbers also the objects that joined the graph later."""

    def __init__(self, graph: ObjectGraph) -> None:
        self._graph = graph
        self._objects = list(graph)
        self._new: dict[int, int] = {}

    def pending(self) -> Iterator[Any]:
        """Yield every object, including those that :meth:`content` adds on the way."""
        position = 0
        while position < len(self._objects):
            yield self._objects[position]
            position += 1

    def content(self, value: Any) -> Plain:
        kind = type(value).__name__
        if isinstance(value, dict):
            return [kind, [[self._encode(key), self._encode(item)] for key, item in value.items()]]
        if isinstance(value, deque):
            return [kind, [self._encode(item) for item in value], value.maxlen]
        if isinstance(value, list):
            return [kind, [self._encode(item) for item in value]]
        if isinstance(value, set):
            items = [self._encode(item) for item in value]
            # A set of constants (classes, say) has no order to find them by, nor a reason to change.
            return [kind, None if any(_is_constant(item) for item in items) else items]
        if isinstance(value, GENERATORS):
            return [kind, save_generator(value)]
        name = f"{type(value).__module__}:{type(value).__qualname__}"
        attributes = {key: self._encode(item) for key, item in value.__dict__.items()}
        return ["object", attributes, name]

    def _encode(self, value: Any) -> Plain:
        if type(value) in _SCALARS or isinstance(value, torch.Tensor):
            return value
        if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
            return {"array": torch.from_numpy(value.copy()), "dtype": str(value.dtype)}
        if isinstance(value, np.generic):
            return {"scalar": torch.from_numpy(np.array([value])), "dtype": str(value.dtype)}
        if isinstance(value, torch.Size):
            return {"size": list(value)}
        if type(value) is tuple:
            return {"tuple": [self._encode(item) for item in value]}
        if self._graph.tracks(value):
            return {"object": self._number(value)}
        return {"constant": type(value).__qualname__}

    def _number(self, value: Any) -> int:
        number = self._graph.number(value)
        if number is None:
            number = self._new.setdefault(id(value), len(self._objects))
            if number == len(self._objects):
                self._objects.append(value)
        return number


class _Reader:
    """Fills a graph from a snapshot."""

    def __init__(self, graph: ObjectGraph, saved: Plain) -> None:
        self._graph = graph
        self._objects = list(graph)
        for content in saved[len(graph) :]:
            self._objects.append(self._create(content))

    def fill(self, number: int, content: Plain) -> None:
        value, kind, body = self._objects[number], content[0], content[1]
        expected = content[2] if kind == "object" else kind
        if self._kind(value) != expected:
            raise SnapshotError(f"object {number} is a {self._kind(value)}, the snapshot has a {expected}")
        if isinstance(value, dict):
            before = dict(value)
            keys = self._decode_all([key for key, _ in body], list(before))
            value.clear()
            value.update({key: self._decode(body[n][1], before.get(key)) for n, key in enumerate(keys)})
        elif isinstance(value, list | deque):
            items = self._decode_all(body, list(value))
            value.clear()
            value.extend(items)
        elif isinstance(value, set):
            if body is not None:
                items = self._decode_all(body, [])
                value.clear()
                value.update(items)
        elif isinstance(value, GENERATORS):
            load_generator(value, body)
        else:
            self._fill_attributes(value, body)

    def _fill_attributes(self, value: Any, body: Plain) -> None:
        attributes = value.__dict__
        for name in [name for name in attributes if name not in body]:
            del attributes[name]
        for name, item in body.items():
            attributes[name] = self._decode(item, attributes.get(name))

    def _decode_all(self, saved: list[Plain], existing: Sequence[Any]) -> list[Any]:
        padded = [*existing, *([None] * len(saved))]
        return [self._decode(item, old) for item, old in zip(saved, padded, strict=False)]

    def _decode(self, saved: Plain, existing: Any) -> Any:
        if not isinstance(saved, dict):
            return saved
        if "object" in saved:
            return self._objects[saved["object"]]
        if "tuple" in saved:
            return tuple(self._decode_all(saved["tuple"], existing if isinstance(existing, tuple) else ()))
        if "size" in saved:
            return torch.Size(saved["size"])
        if "array" in saved:
            return saved["array"].cpu().numpy().astype(saved["dtype"])
        if "scalar" in saved:
            return saved["scalar"].cpu().numpy().astype(saved["dtype"])[0]
        if type(existing).__qualname__ != saved["constant"]:
            raise SnapshotError(f"found a {type(existing).__qualname__} where a {saved['constant']} was")
        return existing

    def _create(self, content: Plain) -> Any:
        """Make an empty object of a kind that the saved run made after the build."""
        kind = content[0]
        if kind == "deque":
            return deque(maxlen=content[2])
        plain = {"list": list, "dict": dict, "set": set}.get(kind)
        if plain is not None:
            return plain()
        if kind != "object":
            raise SnapshotError(f"a {kind} was made during training")
        module, _, name = content[2].partition(":")
        if not self._graph.owns(module) or not name.isidentifier():
            raise SnapshotError(f"an object of {content[2]} was made during training")
        cls = getattr(importlib.import_module(module), name)
        return cls.__new__(cls)

    def _kind(self, value: Any) -> str:
        if type(value) in _CONTAINERS or isinstance(value, GENERATORS):
            return type(value).__name__
        return f"{type(value).__module__}:{type(value).__qualname__}"


def vmas_graph(environment: Any) -> ObjectGraph:
    """Return the graph of a VMAS ``Environment``, with its scenario's package, which may be a user's."""
    scenario = type(environment.scenario).__module__.split(".")[0]
    return ObjectGraph(environment, ("vmas", scenario))
