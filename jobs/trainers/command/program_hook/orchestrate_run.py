"""Log, save and resume a training program. One file, the standard library alone, Python 3.8 or later.

    from orchestrate_run import run

    start = run.resume(agent, optimizer, envs, total=100)  # built and reset before; the step to go on from
    obs = run.value("obs", obs)
    for step in range(start + 1, 101):
        ...
        run.log(step, episodic_return=r)
        run.save(step, obs=obs)

Under orchestrate it follows docs/run-protocol.md. Alone it writes ``metrics.jsonl`` and ``checkpoints/`` into
the current folder, and resumes where the variable ``ORCHESTRATE_RESUME`` names a checkpoint, or a folder of
them (the newest counts). Copy it beside your script to use it elsewhere.

A checkpoint is a sequence of pickles. Load only your own: a pickle may run code.
"""

from __future__ import annotations

import copyreg
import glob
import importlib
import io
import json
import os
import pickle
import random
import signal
import sys
import threading
import time
import types
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

INTERRUPTED = 75  # exit code: go on later
_EXTENSION = ".pickle"
_KEPT = 2  # checkpoints that stay, of a program alone
_SHARE = 50  # times as long in training as in writing checkpoints
_NOT_RESUMED = "run.{}: found no run, expected start = run.resume(…) before it"
_WORDS = ("exact", "no progress lost", "reset")


class Run:
    """The run of this program: one for each process."""

    def __init__(self) -> None:
        self._alone = "ORCHESTRATE_METRICS" not in os.environ
        self._folder = os.environ.get("ORCHESTRATE_CHECKPOINT_DIR", "checkpoints")
        self._metrics: int | None = None
        self._objects: dict[str, Any] = {}
        self._values: dict[str, Any] = {}
        self._total: int | None = None
        self._every, self._cost, self._saved_at = 30.0, 0.0, time.monotonic()
        self._step = -1  # of the last checkpoint
        self._written: list[str] = []
        self._stopped, self._process = False, os.getpid()

    def resume(
        self,
        *objects: Any,
        total: int | None = None,
        every: float = 30.0,
        exactness: str | None = None,
    ) -> int:
        """Track objects, restore them from the checkpoint if there is one, and return its step, else 0.

        Call it last before the loop: it restores the random states of Python, NumPy and PyTorch, too.

        ``total``: the last step. ``every``: seconds between checkpoints. ``exactness``: how a resumed run
        continues, one of "exact", "no progress lost" and "reset"; say "exact" if a test of yours shows it.
        Objects are restored in place: those with ``state_dict``, arrays, tensors, random generators, dicts,
        lists, and any other by its attributes, such as a Gymnasium vector environment.
        """
        if exactness not in (None, *_WORDS):
            raise ValueError(f"exactness: found {exactness!r}, expected one of: {', '.join(_WORDS)}")
        self._total, self._every = total, every
        live, lost = self._track(objects)
        path = self._checkpoint()
        step = self._restore(path, live) if path else 0
        self._begin_metrics(step, resumed=bool(path))
        if lost and exactness != "reset":
            exactness = "no progress lost"
        if exactness:
            self._write({"program": {"exactness": exactness}})
        for name in ("SIGTERM", "SIGUSR1"):
            self._handle(name)
        self._saved_at = time.monotonic()
        return step

    def init(self, *objects: Any) -> None:
        """Restore what another run learned, where ``ORCHESTRATE_INIT`` names its checkpoint at a first start.

        ``objects``: the first of those that it gave :meth:`resume`; its random states and values stay out.
        """
        path = os.environ.get("ORCHESTRATE_INIT")
        if path and not self._checkpoint():
            hint = "give run.init the first objects that run.resume got there, of the same sizes and versions"
            live, _ = self._track(objects)
            _load(path, self._objects, live, hint, whole=False)

    def value(self, name: str, default: Any = None) -> Any:
        """Return the value that :meth:`save` got under that name before the restart, else ``default``."""
        return self._values.get(name, default)

    def log(self, step: int, **metrics: Any) -> None:
        """Append a line of metrics: numbers, or arrays and tensors of one number."""
        line: dict[str, Any] = {"frames": int(step)}
        if self._total is not None:
            line["total"] = self._total
        line["metrics"] = {name: _number(name, found) for name, found in metrics.items()}
        self._write(line)

    def save(self, step: int, now: bool = False, **values: Any) -> None:
        """Write a checkpoint if one is due, and leave with exit code 75 if a signal asked for it.

        Call it once a step, after :meth:`log`. ``values``: what the program assigns anew in each step, such
        as observations, JAX arrays, or a tuple of them; :meth:`value` returns them after a restart. ``now``:
        write in any case.
        """
        last = self._total is not None and step >= self._total
        waited = time.monotonic() - self._saved_at
        if self._metrics is None:
            raise RuntimeError(_NOT_RESUMED.format("save"))
        due = now or last or self._stopped or waited >= max(self._every, _SHARE * self._cost)
        if not last and (audit := sys.modules.get("orchestrate_audit")):
            due = audit.due(step, due)
        if due and step != self._step:
            self._save(int(step), values)
        if self._stopped and not last:
            sys.exit(INTERRUPTED)

    def _save(self, step: int, values: dict[str, Any]) -> None:
        began = time.monotonic()
        path = os.path.join(self._folder, f"{step}{_EXTENSION}")
        unfinished = f"{path}.{os.getpid()}.unfinished"  # processes of one run may share the folder
        try:
            os.makedirs(self._folder, exist_ok=True)
            with open(unfinished, "wb") as file:
                self._write_state(file, {"step": step, "values": values, "arguments": sys.argv[1:]})
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
        except OSError as error:  # such as a full disk: what was trained is not given up
            self._saved_at = time.monotonic()
            sys.stderr.write(f"run.save: no checkpoint of step {step} ({error}): the next one comes later\n")
            return
        finally:
            _remove(unfinished)
        self._step, self._saved_at = step, time.monotonic()
        self._cost = self._saved_at - began
        if self._alone:
            self._written = [*(kept for kept in self._written if kept != path), path]
            while len(self._written) > _KEPT:
                _remove(self._written.pop(0))

    def _write_state(self, file: Any, header: dict[str, Any]) -> None:
        pickler = _Pickler(file, self._objects)
        random_states = {name: found[0]() for name, found in _generators()}
        name = ", ".join(header["values"])
        try:
            pickler.dump({**header, "random": random_states, "objects": list(self._objects)})
            for name, found in self._objects.items():
                pickler.dump_state(name, found)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise TypeError(
                f"run.save: {name} cannot be saved ({type(error).__name__}: {error}): "
                "make it anew after run.resume"
            ) from error

    def _restore(self, path: str, live: dict[tuple[str, int], Any]) -> int:
        anew = "without ORCHESTRATE_RESUME" if self._alone else "by `orchestrate retry`"
        hint = f"give run.resume the same objects, of the same sizes and versions, or start anew {anew}"
        header = _load(path, self._objects, live, hint)
        arguments = header.get("arguments", sys.argv[1:])
        if self._alone and arguments != sys.argv[1:]:
            sys.stderr.write(
                f"run.resume: {path} was written with the arguments {arguments}, and goes on with "
                f"{sys.argv[1:]}: to start anew, leave ORCHESTRATE_RESUME out\n"
            )
        self._values, self._step = header["values"], header["step"]
        for name in header["random"]:
            module = importlib.import_module(name)
            if name == "torch.cuda":
                module.init()
        for name, (_, put) in _generators():
            if name in header["random"]:
                put(header["random"][name])
        self._written = [path]
        return self._step

    def _track(self, objects: tuple[Any, ...]) -> tuple[dict[tuple[str, int], Any], bool]:
        """Track objects; return what no pickle holds by its keys, and whether some cannot be saved."""
        self._objects = {f"{place} {type(found).__name__}": found for place, found in enumerate(objects)}
        pickler, lost = _Pickler(_Nowhere(), self._objects), False
        for name, found in list(self._objects.items()):
            if _has_state(found):
                continue
            try:
                pickler.dump_state(name, found)
            except Exception as error:  # any object's own code may run
                lost = True
                del self._objects[name]
                sys.stderr.write(
                    f"run.resume: {name} cannot be saved ({type(error).__name__}: {error}): it restarts when "
                    "the program is resumed\n"
                )
        return pickler.live, lost

    def _checkpoint(self) -> str | None:
        """Return the checkpoint to go on from."""
        path = os.environ.get("ORCHESTRATE_RESUME")
        if not path or not os.path.isdir(path):
            return path if path and (os.path.exists(path) or not self._alone) else None
        return max(_checkpoints(path), key=os.path.getmtime, default=None)

    def _begin_metrics(self, step: int, resumed: bool) -> None:
        path = os.environ.get("ORCHESTRATE_METRICS", "metrics.jsonl")
        own = self._alone and os.environ.get("RANK", "0") == "0"  # torchrun's processes share the folder
        self._metrics = _opened(path, own)
        if not own:
            return
        if resumed:
            with open(path, encoding="utf-8") as file:
                lines = [line for line in file if _is_covered(line, step)]
            with open(f"{path}.unfinished", "w", encoding="utf-8") as file:
                file.writelines(lines)
            os.replace(f"{path}.unfinished", path)
        else:
            named = os.environ.get("ORCHESTRATE_RESUME")
            why = f"{named} holds no checkpoint" if named else "no checkpoint is given"
            for old in filter(os.path.getsize, (path, *_checkpoints(self._folder))):
                kept = f"{old}.{int(os.path.getmtime(old))}.old"
                os.replace(old, kept)
                sys.stderr.write(f"run.resume: a new start, as {why}: {old} is now {kept}\n")
        os.close(self._metrics)
        self._metrics = _opened(path, own)

    def _write(self, line: dict[str, Any]) -> None:
        if self._metrics is None:
            raise RuntimeError(_NOT_RESUMED.format("log"))
        os.write(self._metrics, (json.dumps(line) + "\n").encode())

    def _handle(self, name: str) -> None:
        number = getattr(signal, name, None)
        if number is not None:
            with suppress(ValueError):  # not in the main thread: a kill leads back to the last checkpoint
                signal.signal(number, self._stop)

    def _stop(self, number: int, _: Any) -> None:
        if os.getpid() == self._process:
            self._stopped = True
        else:  # a forked worker ends as without this module
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


class _Nowhere:
    def write(self, data: Any) -> int:
        return len(data)


class _Pickler(pickle.Pickler):
    """Pickles states, and names what stays: tracked objects, lambdas, modules, open files.

    ``live``: those beside tracked objects, by their kind and how many of it came before.
    """

    dispatch_table = copyreg.dispatch_table.copy()
    for make in (threading.Lock, threading.RLock):  # a lock restarts open
        dispatch_table[type(make())] = lambda _, make=make: (make, ())  # type: ignore[misc]

    def __init__(self, file: Any, objects: dict[str, Any]) -> None:
        super().__init__(file, protocol=4)
        self._tracked = {id(found): name for name, found in _standing(objects).items()}
        self._own: str | None = None
        self._counts: dict[str, int] = {}
        self.live: dict[tuple[str, int], Any] = {}

    def dump_state(self, name: str, found: Any) -> None:
        self._own = name
        self.dump(_state(found))

    def persistent_id(self, found: Any) -> tuple[str, int] | None:
        if id(found) in self._tracked:
            return (self._tracked[id(found)], -1)
        kind = _stays(found)
        if kind is None or self._own is None:
            return None
        kind = f"{self._own}: {kind}"
        count = self._counts[kind] = self._counts.get(kind, -1) + 1
        self.live[kind, count] = found
        return (kind, count)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, objects: dict[str, Any], live: dict[tuple[str, int], Any]) -> None:
        super().__init__(file)
        self._places = {**{(name, -1): found for name, found in _standing(objects).items()}, **live}

    def persistent_load(self, place: Any) -> Any:
        if place not in self._places:
            sys.stderr.write(f"run: {place[0]} is not restored: it is None until the program sets it\n")
        return self._places.get(place)


def _load(path: str, objects: dict[str, Any], live: Any, hint: str, *, whole: bool = True) -> Any:
    """Restore all objects of a checkpoint, without ``whole`` its first ones; return what else it holds."""
    try:
        with open(path, "rb") as file:
            unpickler = _Unpickler(file, objects, live)
            header = unpickler.load()
            if header["objects"][: None if whole else len(objects)] != list(objects):
                raise ValueError(f"found {header['objects']}, but the program gave {list(objects)}")
            for found in objects.values():
                _set_state(found, unpickler.load())
    except Exception as error:  # any object's own code may run
        why = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path}: it does not fit this program ({why}): {hint}") from error
    return header


def _standing(objects: dict[str, Any]) -> dict[str, Any]:
    """Return the objects that are there, by name, when a checkpoint is restored."""
    streams = {name: getattr(sys, name) for name in ("stdout", "stderr") if getattr(sys, name) is not None}
    return {**streams, **objects}


def _stays(found: Any) -> str | None:
    """Return the kind of an object that no pickle can hold and that a restarted program makes anew."""
    if isinstance(found, (types.FunctionType, type)):
        name = found.__qualname__
        return f"{found.__module__}.{name}" if "<" in name else None
    if isinstance(found, (types.ModuleType, io.IOBase)):
        return type(found).__name__
    return None


def _has_state(found: Any) -> bool:
    """Whether the object restores itself. An environment does not, even as a module of PyTorch."""
    own = hasattr(found, "state_dict") and hasattr(found, "load_state_dict")
    return own and not (hasattr(found, "step") and hasattr(found, "reset"))


def _state(found: Any) -> Any:
    if _has_state(found):
        return found.state_dict()
    if isinstance(found, random.Random):
        return found.getstate()
    if isinstance(found, (dict, list)):
        return type(found)(found)
    for kind, get, _ in _in_place():
        if isinstance(found, kind):
            return get(found)
    return dict(vars(found))


def _set_state(found: Any, state: Any) -> None:
    if _has_state(found):
        found.load_state_dict(state)
    elif isinstance(found, random.Random):
        found.setstate(state)
    elif isinstance(found, list):
        found[:] = state
    else:
        for kind, _, put in _in_place():
            if isinstance(found, kind):
                put(found, state)
                return
        attributes = found if isinstance(found, dict) else vars(found)
        attributes.clear()
        attributes.update(state)


def _in_place() -> Iterator[tuple[Any, Any, Any]]:
    """Yield kinds of NumPy's and PyTorch's objects, how to read and how to write their states."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        yield numpy.ndarray, lambda x: x.view(), lambda x, state: numpy.copyto(x, state.reshape(x.shape))
        yield numpy.random.RandomState, lambda found: found.get_state(), lambda found, s: found.set_state(s)
        yield (
            numpy.random.Generator,
            lambda found: found.bit_generator.state,
            lambda found, state: setattr(found.bit_generator, "state", state),
        )
    if torch is not None:
        yield torch.Tensor, lambda x: x.detach(), lambda x, state: x.detach().copy_(state.reshape(x.shape))
        yield torch.Generator, lambda found: found.get_state(), lambda found, state: found.set_state(state)


def _generators() -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield the global random generators of loaded modules: how to read and how to write their states."""
    yield "random", (random.getstate, random.setstate)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        yield "numpy", (numpy.random.get_state, numpy.random.set_state)
    if torch is not None:
        yield "torch", (torch.get_rng_state, torch.set_rng_state)
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            yield "torch.cuda", (torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all)


def _number(name: str, found: Any) -> Any:
    if isinstance(found, (bool, int, float)):
        return found
    try:
        return float(found.detach() if hasattr(found, "detach") else found)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"run.log: {name} is {found!r}, expected one number") from None


def _is_covered(line: str, step: int) -> bool:
    try:
        return bool(json.loads(line).get("frames", 0) <= step)
    except (ValueError, AttributeError, TypeError):  # cut short by a kill
        return False


def _checkpoints(folder: str) -> list[str]:
    return glob.glob(os.path.join(glob.escape(folder), f"[0-9]*{_EXTENSION}"))


def _opened(path: str, own: bool) -> int:
    """Open metrics to append; refuse those of another program if they are to be this one's ``own``."""
    found = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        if own and fcntl is not None:
            fcntl.lockf(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        raise RuntimeError(
            f"{os.path.abspath(path)}: another program writes it: start this one in a folder of its own"
        ) from None
    except OSError:
        pass  # a file system without locks
    return found


def _remove(path: str) -> None:
    with suppress(OSError):  # removed by others
        os.remove(path)


run = Run()
