"""Upload offline W&B runs of a results tree: choose them, and send them.

W&B's client is imported only in child processes (``jobs.wandb.upload``). The attempts of a run become one W&B
run. Uploaded data is only added to, never changed: of an unfinished run only final steps are sent, and an
interrupted upload is simply repeated.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from orchestrator.config.trainers import x_axis_of
from orchestrator.core.errors import DamagedFileError, OrchestrateError, UploadError
from orchestrator.core.machine.json_process import JsonProcess
from orchestrator.rundir import AttemptDir, Result, RunDir, SweepDir, Uploaded, sha256, standing
from orchestrator.rundir.uploads import wandb_id

# The destination of runs in the environment of W&B's client; it may be configured elsewhere, too.
_PLACE = ("WANDB_BASE_URL", "WANDB_ENTITY", "WANDB_PROJECT")
_TAIL_LINES = 5
# Seconds in which at least one of the active uploads must end.
_PATIENCE_S = 3600.0
_AGAIN = "run the same command again"
# Seconds for a client to remove its temporary files.
_LEAVING_S = 10.0


@dataclass(frozen=True)
class OfflineAttempt:
    """The offline log of one attempt: an archive or a folder. ``until``: its last final step."""

    path: Path
    until: int | None


@dataclass(frozen=True)
class Upload:
    """A run to send. ``pieces``: its attempts, oldest first. ``sha256``: the archive's, if on record."""

    sweep: SweepDir
    run_id: str
    wandb_id: str
    pieces: tuple[OfflineAttempt, ...]
    digest: str
    finished: bool
    sha256: str | None = None


@dataclass(frozen=True)
class UnsentRun:
    """A run with W&B data that is not sent, and why. ``waits``: it is only too early."""

    sweep: str
    run_id: str
    why: str
    waits: bool = False


@dataclass(frozen=True)
class UploadPlan:
    """Runs to upload. ``already``: number of runs that are uploaded and unchanged."""

    todo: tuple[Upload, ...]
    already: int
    left: tuple[UnsentRun, ...]


@dataclass(frozen=True)
class UploadReport:
    """Outcome for one run: its ``url``, or else ``error`` and a hint."""

    upload: Upload
    url: str = ""
    error: str = ""
    hint: str | None = None


def plan_uploads(sweeps: Iterable[SweepDir], only: Collection[str] | None = None) -> UploadPlan:
    """Choose the runs of these sweeps (optionally only these ids) to upload to the server in the environment.

    Finished runs are sent completely, inactive ones up to their last checkpoint.
    """
    todo: list[Upload] = []
    left: list[UnsentRun] = []
    already = 0
    for sweep in sweeps:
        up = {record.run_id: record.digest for record in sweep.uploads.read() if record.place == _place()}
        for run_id in sweep.run_ids():
            if only is not None and run_id not in only:
                continue
            found = _upload_of(sweep, run_id)
            if isinstance(found, UnsentRun):
                left.append(found)
            elif found is not None and up.get(run_id) == found.digest:
                already += 1
            elif found is not None:
                todo.append(found)
    return UploadPlan(tuple(todo), already, tuple(left))


def send(todo: Sequence[Upload], at_once: int = 4) -> Iterator[UploadReport]:
    """Send runs, several at once, and record each one when it is complete.

    Yields in order of completion. Raises :class:`UploadError` if nothing can be sent at all.
    """
    waiting = list(reversed(todo))
    busy: dict[JsonProcess, Upload] = {}
    with ExitStack() as stack:
        for sweep in {upload.sweep.path: upload.sweep for upload in todo}.values():
            stack.enter_context(sweep.uploads.writing())
        idle = [JsonProcess("jobs.wandb.upload") for _ in range(min(at_once, len(todo)))]
        for client in idle:
            stack.callback(client.close, _LEAVING_S)
        while waiting or busy:
            while waiting and idle:
                upload = waiting.pop()
                if fault := _fault(upload):
                    yield fault
                else:
                    idle[-1].send(_request(upload))
                    busy[idle.pop()] = upload
            for client in _ready(busy):
                idle.append(client)
                yield _ended(busy.pop(client), _reply(client))


def _ready(busy: Collection[Any]) -> Sequence[JsonProcess]:
    """Return the clients with a reply; waits for the first."""
    if not busy:
        return []
    ready: list[Any] = wait(list(busy), _PATIENCE_S)
    if not ready:
        raise UploadError(f"no run was uploaded within {_PATIENCE_S / 60:.0f} minutes", hint=_AGAIN)
    return ready


def _ended(upload: Upload, answer: Mapping[str, Any]) -> UploadReport:
    if answer.get("fatal"):
        raise UploadError(answer["error"], hint=answer.get("hint"))
    if answer.get("error"):
        return UploadReport(upload, error=answer["error"], hint=answer.get("hint"))
    url = without_login(answer["url"])
    upload.sweep.uploads.add(Uploaded(upload.run_id, upload.digest, _place(), url, time.time()))
    return UploadReport(upload, url=url)


def _place() -> str:
    return " ".join(without_login(os.environ.get(name, "")) for name in _PLACE).rstrip()


def without_login(url: str) -> str:
    """Return the URL without a user name and password: records may be shared."""
    scheme, slashes, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}"


def _upload_of(sweep: SweepDir, run_id: str) -> Upload | UnsentRun | None:
    """Return the run's upload, or why it is not sent; ``None`` if W&B logged nothing offline."""
    run = sweep.run_to_read(run_id)
    try:
        logged = [attempt for attempt in run.current_attempts() if attempt.offline_wandb() is not None]
        if not logged:
            return None
        result = run.result()
        if result is None and run.blocked_by() is not None:
            return UnsentRun(sweep.name, run_id, "it is active", waits=True)
        known = _on_record(result, logged)
        stands = _finished(run, logged) if result is not None else _unfinished(run, logged)
        pieces = tuple(_pieces(logged, stands))
        if not pieces:
            return UnsentRun(sweep.name, run_id, "it has no checkpoint", waits=True)
        digest = _digest(pieces, [known] if known else [attempt.offline_digest() for attempt in logged])
    except (OrchestrateError, OSError) as error:
        return UnsentRun(sweep.name, run_id, str(error))
    name = wandb_id(sweep.name, run_id, run.retired)
    return Upload(sweep, run_id, name, pieces, digest, result is not None, known)


def _on_record(result: Result | None, logged: Sequence[AttemptDir]) -> str | None:
    """Return the archive's checksum in the manifest. A finished run normally has no other W&B data."""
    if result is None or len(logged) != 1:
        return None
    ending = logged[0].wandb_packed.relative_to(logged[0].path.parent.parent).as_posix()
    sums = [item.sha256 for item in result.manifest if item.path == ending]
    return sums[0] if sums and logged[0].offline_wandb() == logged[0].wandb_packed else None


def _finished(run: RunDir, logged: Sequence[AttemptDir]) -> Mapping[int, int | None]:
    """Return the last final step per attempt. The newest log contains the history before it."""
    newest = logged[-1].number
    try:
        return standing(run.chain(newest), _x_axis(run)) if len(logged) > 1 else {newest: None}
    except DamagedFileError:  # for example without fetched metrics
        return {newest: None}


def _unfinished(run: RunDir, logged: Sequence[AttemptDir]) -> Mapping[int, int | None]:
    """Return the last final step per attempt: the next attempt repeats all after the last checkpoint."""
    chain = run.chain(logged[-1].number)
    saved = [checkpoint.frames for checkpoint in run.checkpoints()]
    saved += [piece.resumed_from.frames for piece in chain if piece.resumed_from is not None]
    return standing(chain, _x_axis(run), max(saved, default=0))


def _x_axis(run: RunDir) -> str:
    return x_axis_of(run.description().trainer)


def _pieces(logged: Sequence[AttemptDir], stands: Mapping[int, int | None]) -> Iterator[OfflineAttempt]:
    for attempt in logged:
        path, until = attempt.offline_wandb(), stands.get(attempt.number, -1)
        if path is not None and until != -1:
            yield OfflineAttempt(path, until)


def _digest(pieces: Sequence[OfflineAttempt], contents: Sequence[str]) -> str:
    told = json.dumps([contents, [piece.until for piece in pieces]])
    return hashlib.sha256(told.encode()).hexdigest()


def _fault(upload: Upload) -> UploadReport | None:
    """Return the error if the archive differs from the published one."""
    newest = upload.pieces[-1].path
    try:
        if upload.sha256 is None or upload.sha256 == sha256(newest):
            return None
    except OSError as error:
        return UploadReport(upload, error=str(error))
    found = f"{newest}: changed since the result was published"
    return UploadReport(upload, error=found, hint="fetch it again: orchestrate sync SOURCE")


def _request(upload: Upload) -> dict[str, Any]:
    return {
        "id": upload.wandb_id,
        "group": upload.sweep.name,
        "pieces": [[str(piece.path.absolute()), piece.until] for piece in upload.pieces],
        "finished": upload.finished,
    }


def _reply(client: JsonProcess) -> dict[str, Any]:
    """Return ``url``, or ``error`` and perhaps ``hint``; ``fatal``: nothing else can be sent either."""
    try:
        reply: dict[str, Any] = client.receive()
    except EOFError:
        tail = "".join(f"\n  {line}" for line in client.error_lines()[-_TAIL_LINES:])
        raise UploadError(f"W&B's client ended without a reply{tail}") from None
    return reply
