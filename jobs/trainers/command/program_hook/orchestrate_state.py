"""The state of a running program in parts, each with a hash: what `orchestrate audit` compares.

A part is ``[path, hash, shown, kinds, is_live]``: ``kinds`` are those of the objects that hold it, such as
"optimizer"; it is not live if the program sets its variable before it reads it. Reads only.
Standard library alone, Python 3.8 or later.
"""

from __future__ import annotations

import collections
import dis
import hashlib
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

_MOST_PARTS, _MOST_ITEMS, _MOST_LISTED = 20_000, 2_000_000, 16
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_CODE = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type, types.ModuleType)
_SEQUENCES = (list, tuple, collections.deque)
_LEFT_OUT = {"orchestrate_run", "argparse", "logging", "threading", "_thread", "csv", "_csv", "_io", "io"}
# Attributes of PyTorch's modules that hold others: no part of a name.
_HOLDERS = {"_parameters", "_modules", "_buffers"}


def parts(frame: Any, is_own: Callable[[str], bool]) -> list[list[Any]]:
    """Return the parts that the program in ``frame`` can reach, and the global random states."""
    found: list[list[Any]] = [
        [name, _hash(state), "", ["global rng"], True] for name, state in _global_states()
    ]
    left = [_MOST_ITEMS]
    queue: Any = collections.deque(_roots(frame, is_own))
    seen: set[int] = {id(queue), id(found)}
    while queue and len(found) < _MOST_PARTS:
        path, item, kinds, is_live = queue.popleft()
        if _is_left_out(item):
            continue
        inner = None if isinstance(item, _PLAIN) else _children(item)
        if inner is None:
            kinds = [*kinds, "rng"] if _rng_state(item) is not None else kinds
            found.append([path, _hash(item, left), _shown(item), kinds, is_live])
        elif id(item) not in seen:
            seen.add(id(item))
            kinds = kinds + _kinds(item)
            for name, child in inner:
                queue.append((path if name in _HOLDERS else path + name, child, kinds, is_live))
    return found


def _global_states() -> Iterator[tuple[str, Any]]:
    yield "random", random.getstate()
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        yield "numpy.random", numpy.random.get_state()
    if torch is not None:
        yield "torch", torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            yield "torch.cuda", torch.cuda.get_rng_state_all()


def _roots(frame: Any, is_own: Callable[[str], bool]) -> Iterator[tuple[str, Any, list[str], bool]]:
    """Yield the variables of the program's frames, the outermost first, and of its modules."""
    frames, dead = [], _set_first(frame)
    while frame is not None:
        if is_own(frame.f_code.co_filename):
            frames.append(frame)
        frame = frame.f_back
    spaces: list[Any] = [one.f_locals for one in frames]
    for module in list(sys.modules.values()):
        space: Any = getattr(module, "__dict__", None)
        file = space.get("__file__") if isinstance(space, dict) else None
        if file and is_own(str(file)) and not any(space is one for one in spaces):
            spaces.insert(0, space)
    for space in reversed(spaces):
        for name, item in list(space.items()):
            if not name.startswith("__"):
                yield name, item, [], name not in dead or space is not spaces[-len(frames)]


def _is_left_out(item: Any) -> bool:
    return type(item).__module__ in _LEFT_OUT or isinstance(item, types.ModuleType)


def _children(item: Any) -> Any:
    """Return the named parts of an item; ``None`` for one that is a part itself."""
    if isinstance(item, types.FunctionType):
        cells = zip(item.__code__.co_freevars, item.__closure__ or ())  # noqa: B905 (Python 3.8)
        return [("." + name, cell.cell_contents) for name, cell in cells if cell != types.CellType()]
    if isinstance(item, types.GeneratorType):
        inner = item.gi_frame
        return [] if inner is None else [(".f_lasti", inner.f_lasti), *_named(inner.f_locals)]
    if isinstance(item, types.MethodType):
        return [("", item.__self__)]
    if isinstance(item, type):
        return []
    if isinstance(item, dict):
        if len(item) > 2000:
            return None
        pairs = enumerate(item.items())
        return [(f"[{k!r}]" if isinstance(k, (str, int)) else f"[{place}]", v) for place, (k, v) in pairs]
    if isinstance(item, _SEQUENCES):
        small = len(item) <= _MOST_LISTED and not all(isinstance(one, _PLAIN) for one in item)
        return [(f"[{place}]", one) for place, one in enumerate(item)] if small else None
    if isinstance(item, (set, frozenset)) or _is_array(item) or _rng_state(item) is not None:
        return None
    own = _attributes(item)
    if _kinds(item)[:1] in (["optimizer"], ["scheduler"], ["module"]):  # the rest is PyTorch's own
        own = {name: one for name, one in own.items() if name in _HOLDERS or name[:1] != "_"}
    return _named(own) if own else None


def _named(space: dict[str, Any]) -> list[tuple[str, Any]]:
    return [
        (name if name in _HOLDERS else "." + str(name), one)
        for name, one in list(space.items())
        if not str(name).startswith("__")
    ]


def _attributes(item: Any) -> dict[str, Any]:
    own = dict(getattr(item, "__dict__", None) or {})
    for kind in type(item).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            try:
                own.setdefault(name, object.__getattribute__(item, name))
            except AttributeError:
                pass
    return own


def _kinds(item: Any) -> list[str]:
    own, kind = _attributes(item), type(item)
    if "param_groups" in own and "state" in own:
        return ["optimizer"]
    if "last_epoch" in own and "optimizer" in own:
        return ["scheduler"]
    if callable(getattr(kind, "step", None)) and callable(getattr(kind, "reset", None)):
        return ["environment"]
    return ["module"] if "_parameters" in own and "_modules" in own else []


def _is_array(item: Any) -> bool:
    return hasattr(item, "dtype") and hasattr(item, "shape")


def _rng_state(item: Any) -> Any:
    """Return the state of a random generator; ``None`` for anything else."""
    name = type(item).__module__.partition(".")[0]
    if isinstance(item, random.Random):
        return item.getstate()
    if name == "numpy" and type(item).__name__ == "RandomState":
        return item.get_state()
    if name == "numpy" and hasattr(item, "bit_generator"):
        return item.bit_generator.state
    if name == "torch" and type(item).__name__ == "Generator":
        return item.get_state()
    return None


def _hash(item: Any, left: list[int] | None = None) -> str:
    digest = hashlib.blake2b(digest_size=12)
    _feed(digest.update, item, set(), [_MOST_ITEMS] if left is None else left)
    return digest.hexdigest()


def _feed(put: Callable[[bytes], None], item: Any, above: set[int], left: list[int]) -> None:
    left[0] -= 1
    if isinstance(item, _PLAIN):
        put((f"{type(item).__name__}:{item!r};").encode("utf-8", "replace"))
        return
    put(type(item).__name__.encode())
    if id(item) in above or left[0] < 0 or _is_left_out(item) or isinstance(item, _CODE):
        put(str(getattr(item, "__qualname__", "")).encode())
        return
    state = _rng_state(item)
    if state is None and _is_array(item):
        put(_bytes(item))
        return
    inner = state if state is not None else _items(item)
    for one in (inner,) if state is not None else inner:
        _feed(put, one, above | {id(item)}, left)


def _items(item: Any) -> Any:
    if isinstance(item, dict):
        return [one for pair in list(item.items()) for one in pair]
    if isinstance(item, _SEQUENCES):
        return list(item)
    if isinstance(item, (set, frozenset)):
        return sorted(map(_hash, item))
    if type(item).__name__.endswith("_iterator") or type(item) in (enumerate, zip, map, reversed):
        return item.__reduce__()[1:]
    if type(item).__module__ == "itertools":
        return [repr(item)]
    return [one for pair in sorted(_attributes(item).items()) for one in pair]


def _bytes(item: Any) -> bytes:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    try:
        if torch is not None and isinstance(item, torch.Tensor):
            flat = item.detach().cpu().contiguous().reshape(-1)
            return str(tuple(item.shape)).encode() + bytes(flat.view(torch.uint8).numpy().tobytes())
        found = numpy.asarray(item)  # type: ignore[union-attr]
        head = (f"{found.dtype}{found.shape}").encode()
        return head + (repr(found.tolist()).encode() if found.dtype.hasobject else found.tobytes())
    except Exception as error:
        return type(error).__name__.encode()


def _shown(item: Any) -> str:
    if isinstance(item, _PLAIN):
        return repr(item)[:40]
    if _is_array(item):
        try:
            return repr(item.item()) if not item.shape else f"of shape {tuple(item.shape)}"
        except Exception:
            return ""
    return f"of length {len(item)}" if hasattr(item, "__len__") else ""


def _set_first(frame: Any) -> set[str]:
    """Return variables that the code sets before it reads them, in the order of its lines from here on."""
    code, here = frame.f_code, frame.f_lasti
    steps = list(dis.get_instructions(code))
    backs = [
        s for s in steps if "JUMP" in s.opname and isinstance(s.argval, int) and s.argval <= here < s.offset
    ]
    top = min([s.argval for s in backs], default=here)
    ordered = [s for s in steps if s.offset >= here] + [s for s in steps if top <= s.offset < here]
    first: dict[str, bool] = {}
    for step in ordered:
        if "LOAD" in step.opname or "STORE" in step.opname or "DELETE" in step.opname:
            for name in step.argval if isinstance(step.argval, tuple) else (step.argval,):
                first.setdefault(str(name), "LOAD" not in step.opname)
    read = _read_by_functions(code)
    names = set(frame.f_locals)
    return {name for name in names if first.get(name, True) and name not in read}


def _read_by_functions(code: Any) -> set[str]:
    names: set[str] = set()
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            names |= set(one.co_names) | set(one.co_freevars) | _read_by_functions(one)
    return names
