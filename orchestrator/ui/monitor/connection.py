"""Take snapshots of a results tree's machine repeatedly, and reconnect by itself when the link is cut."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Self

from orchestrator.config.locations import TreeLocation, tree_there
from orchestrator.config.profiles import preparation
from orchestrator.core.errors import HostError, NotFoundError, OrchestrateError, UnreachableError
from orchestrator.core.formats import require_known_format
from orchestrator.core.machine.package_files import PACKAGE
from orchestrator.core.machine.ssh import Host, failure
from orchestrator.ui.monitor.port_forward import PortForward
from orchestrator.ui.monitor.remote_program import NOT_INSTALLED, PROBE, command_there, not_installed
from orchestrator.ui.monitor.snapshot import DamagedSnapshotError, MonitorSnapshot, parse_snapshot

# Seconds between looks.
INTERVAL_S = 3.0
# The same while TensorBoard starts.
_SOON_S = 0.5
# Seconds without a request after which the other side ends.
_SILENCE_S = 60.0
# A snapshot that takes longer than this shows as a silent link.
_PATIENCE_S = 20.0
_PAUSES_S = (1.0, 2.0, 5.0, 10.0)
# After a refused login: every try may count against the user.
_LOGIN_PAUSE_S = 30.0
_LEAVING_S = 5.0
_LONGEST_ANSWER = 16 << 20
_ROWS = 50


@dataclass(frozen=True)
class ConnectionState:
    """Latest snapshot of a connection. ``heard``: when it arrived, by this machine's clock.

    ``problem``: why there is nothing newer; ``url``: where TensorBoard is reached from here.
    """

    snapshot: MonitorSnapshot | None = None
    heard: float = 0.0
    problem: OrchestrateError | None = None
    url: str | None = None


class Monitor:
    """A results tree's machine under observation while the block lasts.

    ``results`` is the tree, where it is on this machine. Without ``tensorboard`` none is looked for or
    started.
    """

    def __init__(self, place: TreeLocation, results: Path, *, tensorboard: bool = True) -> None:
        self._place = place
        self._host = Host(place.host) if place.host is not None else None
        self._results = results.absolute()
        self._tensorboard = tensorboard
        self._seen = ConnectionState()
        self._asked = time.monotonic()
        self._relay: PortForward | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._opened_link = False
        self._stopping, self._first = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="link", daemon=True)

    def __enter__(self) -> Self:
        """Connect and take a first snapshot. Raises :class:`OrchestrateError` if that fails."""
        if self._host is not None:
            self._connect(self._host, ask=True)
        self._thread.start()
        try:
            self._first.wait()
            if self._seen.snapshot is None:
                assert self._seen.problem is not None
                raise self._seen.problem
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def seen(self) -> ConnectionState:
        """Return the latest snapshot at once."""
        seen = self._seen
        if seen.problem is None and time.monotonic() - self._asked > _PATIENCE_S:
            silent = UnreachableError(
                f"{self._place.text}: does not answer", hint="it may come back by itself"
            )
            return replace(seen, problem=silent)
        return seen

    def _close(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_LEAVING_S)
        if self._process is not None:  # hangs in a look
            self._process.terminate()
            self._thread.join(_LEAVING_S)
        if self._relay is not None:
            self._relay.close()
        if self._host is not None and self._opened_link:
            self._host.release()

    def _connect(self, host: Host, *, ask: bool = False) -> None:
        if not host.is_open:
            host.connect(ask=ask)
            self._opened_link = True

    def _run(self) -> None:
        tries = 0
        while not self._stopping.is_set():
            heard = self._seen.heard
            try:
                self._watch()
            except OrchestrateError as error:
                self._seen = replace(self._seen, problem=error)
            if self._relay is not None:
                self._relay.lead_to(None)
            if self._seen.snapshot is None:
                self._first.set()
                return
            tries = 0 if self._seen.heard > heard else tries + 1
            self._rest(tries)

    def _rest(self, tries: int) -> None:
        """Wait until the next try; after a refused login, until the user has logged in or a pause is over."""
        if self._stopping.wait(_PAUSES_S[min(tries, len(_PAUSES_S) - 1)]):
            return
        if self._host is not None and type(self._seen.problem) is HostError:
            deadline = time.monotonic() + _LOGIN_PAUSE_S
            while time.monotonic() < deadline and not self._host.is_open:
                if self._stopping.wait(_PAUSES_S[0]):
                    return

    def _watch(self) -> None:
        """Take snapshots until the link is cut or the monitor closed."""
        tree = self._tree()
        with tempfile.TemporaryFile() as errors, self._opened(tree, errors) as process:
            self._process = process
            try:
                self._request_snapshots(process, tree)
                if not self._stopping.is_set():
                    raise self._end_error(process, errors)
            except BrokenPipeError:
                raise self._end_error(process, errors) from None
            except DamagedSnapshotError as error:
                raise HostError(
                    f"{self._place.text}: {error}", hint="is another program in its way?"
                ) from None
            finally:
                self._process = None
                _end_probe(process)

    def _request_snapshots(self, process: subprocess.Popen[bytes], tree: str) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        send = process.stdin.raw.write  # type: ignore[attr-defined]  # nothing stays behind in a buffer
        _send_all(send, json.dumps(self._configuration(tree)).encode() + b"\n")
        while not self._stopping.is_set():
            self._asked = time.monotonic()
            _send_all(send, b"\n")
            line = process.stdout.readline(_LONGEST_ANSWER)
            if not line.endswith(b"\n"):
                return
            board = self._accept(line).board
            self._stopping.wait(_SOON_S if board is not None and board.state == "starting" else INTERVAL_S)

    def _accept(self, line: bytes) -> MonitorSnapshot:
        try:
            answer = json.loads(line)
        except ValueError as error:
            raise DamagedSnapshotError("an answer that is not JSON") from error
        if isinstance(answer, dict):
            require_known_format(answer, f"{self._place.text}: the answer of the program there")
        snapshot = parse_snapshot(answer)
        self._seen = ConnectionState(snapshot, time.time(), None, self._url(snapshot))
        self._first.set()
        return snapshot

    def _url(self, snapshot: MonitorSnapshot) -> str | None:
        if snapshot.board is None or snapshot.board.port is None:
            return None
        if self._host is None:
            return f"http://127.0.0.1:{snapshot.board.port}/"
        self._relay = self._relay or PortForward(self._host)
        self._relay.lead_to(snapshot.board.port)
        return f"http://127.0.0.1:{self._relay.port}/"

    def _tree(self) -> str:
        """Return the absolute path of the tree on its machine. Raises :class:`NotFoundError`."""
        if self._host is not None:
            self._connect(self._host)
            return tree_there(self._host, self._place)
        if not self._results.is_dir():
            raise NotFoundError(
                f"there is no folder {self._results}", hint="say where results are: --results DIR"
            )
        return str(self._results)

    @contextmanager
    def _opened(self, tree: str, errors: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
        if self._host is not None:
            with self._host.open(command_there(tree, self._place.profile), errors=errors) as process:
                yield process
            return
        # This very program, wherever it was started from. -P: and nothing of the present folder.
        path = os.pathsep.join(filter(None, (str(PACKAGE.parent), os.environ.get("PYTHONPATH"))))
        argv, env = [sys.executable, "-P", "-m", PROBE], {**os.environ, "PYTHONPATH": path}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
        with subprocess.Popen(argv, env=env, **pipes) as process:  # type: ignore[call-overload]
            yield process

    def _configuration(self, tree: str) -> Mapping[str, Any]:
        return {
            "tree": tree,
            "rows": _ROWS,
            "silence": _SILENCE_S,
            "tensorboard": tensorboard_commands(self._place) if self._tensorboard else [],
        }

    def _end_error(self, process: subprocess.Popen[bytes], errors: IO[bytes]) -> OrchestrateError:
        code = process.wait()
        errors.seek(0)
        said = errors.read(1 << 16).decode(errors="replace")
        if code in NOT_INSTALLED:
            return not_installed(self._place, said)
        if self._host is not None and (code in (255, -15) or not said.strip()):
            return failure(self._host.name, said or "connection closed")
        return failure(self._place.text, said)


def tensorboard_commands(place: TreeLocation) -> list[list[str]]:
    """Return command lines that may start TensorBoard at a place; the first that works is used."""
    module = ["-m", "tensorboard.main"]
    if place.host is None:
        return [[sys.executable, *module]]
    usual = [["{tree}/../.venv/bin/python", *module], ["python3", *module]]
    if place.profile is None:
        return usual
    python = place.profile.python or ("python3",)
    prepared = list(preparation(place.profile))
    if prepared:
        lines = [*prepared, f'exec {shlex.join([*python, *module])} "$@"']
        return [["bash", "-lc", "\n".join(lines), "tensorboard"], usual[0]]
    return [[*python, *module], usual[0]]


def _send_all(send: Any, data: bytes) -> None:
    while data:
        data = data[send(data) :]


def _end_probe(process: subprocess.Popen[bytes]) -> None:
    """Close a probe's input, which ends it, and give it time to end what it started."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(_LEAVING_S)
    except subprocess.TimeoutExpired:
        process.terminate()
