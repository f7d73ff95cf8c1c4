"""Upload runs to W&B's server one after another with W&B's own client: a process for `orchestrate sync`.

Reads a task per line from stdin and answers each with a line of JSON: ``url``, or ``error``, ``hint``, and
``fatal`` if no other run could be uploaded either. Key and server come from this machine's environment and
~/.netrc; no data of a run can change them. When stdin ends, even during an upload, it removes its files and
leaves.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import queue
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import MutableMapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from jobs.wandb.offline_logs import join, write
from jobs.wandb.reachable import unreachable
from orchestrator.core.errors import OrchestrateError, UploadError
from orchestrator.core.machine.installation import install_package

# W&B's variables about the server and the key. The others, such as WANDB_NAME and WANDB_MODE, are for runs of
# this machine.
_KEPT = re.compile(
    r"WANDB_(API_KEY|BASE_URL|ENTITY|PROJECT|IDENTITY_TOKEN_FILE|CREDENTIALS_FILE|CONFIG_DIR"
    r"|HTTPS?_PROXY|HTTP_TIMEOUT|FILE_PUSHER_TIMEOUT|INSECURE_DISABLE_SSL|X_EXTRA_HTTP_HEADERS)"
)
# W&B's client would go on for hours where a server does not answer; the same command again does as well.
_RETRIES = {
    f"WANDB_X_{what}_{name}": value
    for what in ("GRAPHQL", "FILE_STREAM", "FILE_TRANSFER")
    for name, value in (("RETRY_MAX", "5"), ("RETRY_WAIT_MAX_SECONDS", "10"))
}
_PRINTED_URL = re.compile(r" at (https?://\S+)$", re.MULTILINE)
_PRINTED_ERROR = re.compile(r"^wandb: +ERROR +(?:\[[^\]]*\] +)?(.*)$", re.MULTILINE)
_STATUS = re.compile(r"(?:error|HTTP) (4\d\d)", re.IGNORECASE)
_LOGIN = "log in once with `wandb login`, or export WANDB_API_KEY"
# W&B's client leaves its socket where temporary files are, and no longer path can name one.
_SHORT = 60
# For a server that is there and fails.
_PATIENCE_S = 60
_AGAIN = "run the same command again"


def main() -> None:
    """Answer the tasks on stdin until it ends."""
    os.umask(0o077)
    with (
        os.fdopen(os.dup(1), "w") as answers,
        tempfile.TemporaryDirectory(prefix="orchestrate-upload-") as folder,
    ):
        os.dup2(2, 1)  # other output is no answer
        tempfile.tempdir = folder
        _prepare(os.environ, Path(folder))
        os.chdir(folder)
        tasks = _tasks(folder)
        while (line := tasks.get()) is not None:
            answer = _answer(json.loads(line), Path(folder))
            tasks.task_done()  # before the answer: its reader may close stdin at once
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
        if "wandb" in sys.modules:
            sys.modules["wandb"].teardown()  # ends the process that it has beside this one


def _tasks(folder: str) -> queue.Queue[str | None]:
    """Read lines of stdin in a thread. End the process when stdin ends during a task."""
    tasks: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            tasks.put(line)
        if tasks.unfinished_tasks:
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(1)
        tasks.put(None)

    threading.Thread(target=read, daemon=True).start()
    return tasks


def _prepare(environ: MutableMapping[str, str], folder: Path) -> None:
    for name in [name for name in environ if name.startswith("WANDB_") and not _KEPT.fullmatch(name)]:
        if name not in _RETRIES:
            del environ[name]
    for name in ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_ARTIFACT_DIR"):
        environ[name] = str(folder)
    if len(str(folder)) <= _SHORT:
        environ["TMPDIR"] = str(folder)
    environ["WANDB_ERROR_REPORTING"] = "false"
    for name, value in _RETRIES.items():
        environ.setdefault(name, value)


def _answer(task: dict[str, Any], folder: Path) -> dict[str, Any]:
    place = Path(tempfile.mkdtemp(dir=folder))
    try:
        return {"url": _upload(task, place)}
    except UploadError as error:
        return {"error": str(error), "hint": error.hint, "fatal": True}
    except OrchestrateError as error:
        return {"error": str(error), "hint": error.hint}
    except Exception as error:  # of W&B's client or the disk: other runs may still work
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _upload(task: dict[str, Any], place: Path) -> str:
    """Send one run; return its address."""
    try:
        import wandb
    except ImportError as error:
        raise UploadError("W&B is not installed here", hint=install_package("wandb")) from error
    server = wandb.setup().settings.base_url
    if why := unreachable(server):
        raise UploadError(f"W&B's server does not answer: {why}", hint="set another with WANDB_BASE_URL")
    api = _api(server)
    own = {"run_id": task["id"]}
    for name in ("entity", "project"):
        if chosen := os.environ.get(f"WANDB_{name.upper()}"):
            own[name] = chosen
    pieces = [(Path(path), until) for path, until in task["pieces"]]
    joined = join(pieces, place, own, task["finished"])
    log = place / "run-joined.wandb"
    write(joined, log, task["finished"], after=_last_step_there(api, joined.run, server))
    return _sync(log, server)


def _api(server: str) -> Any:
    from wandb.sdk.internal.internal_api import Api

    api = Api(retry_timedelta=timedelta(seconds=_PATIENCE_S))
    if not api.api_key:
        raise UploadError(f"no key for {server}", hint=_LOGIN)
    return api


def _last_step_there(api: Any, run: Any, server: str) -> int:
    """Return the last step of the run that the server has, or -1: W&B's client adds to them."""
    from wandb.errors import CommError

    try:
        found = api.run_resume_status(run.entity or None, run.project, run.run_id)
    except CommError as error:
        raise _refusal(str(error), server) from error
    tail = json.loads((found or {}).get("historyTail") or "[]")
    return int(json.loads(tail[-1])["_step"]) if tail else -1


def _sync(log: Path, server: str) -> str:
    """Have W&B's client send the log. Its failures stand only in its output."""
    import click
    from wandb.cli.cli import cli
    from wandb.errors import AuthenticationError, UsageError

    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            cli.main(["beta", "sync", str(log)], standalone_mode=False)
    except (UsageError, AuthenticationError) as error:
        raise UploadError(f"no key for {server}: {error}", hint=_LOGIN) from error
    except click.ClickException as error:
        raise UploadError(
            f"this version of W&B's client: {error.message}", hint=install_package("wandb")
        ) from error
    except TimeoutError as error:
        raise OrchestrateError(f"{server} takes too long to answer", hint=_AGAIN) from error
    text = click.unstyle(printed.getvalue())
    if errors := _PRINTED_ERROR.findall(text):
        raise _refusal(" · ".join(errors), server)
    if not (urls := _PRINTED_URL.findall(text)):
        raise OrchestrateError(f"{server} did not say where the run is", hint=_AGAIN)
    return str(urls[-1])


def _refusal(said: str, server: str) -> OrchestrateError:
    status = found[1] if (found := _STATUS.search(said)) else ""
    if status == "401":
        return UploadError(f"{server} refuses the key (401)", hint=_LOGIN)
    if status:
        hint = "is the key's owner a member there? WANDB_ENTITY and WANDB_PROJECT choose another place"
        return OrchestrateError(f"{server} refuses the run ({status})", hint=hint)
    if why := unreachable(server):
        return UploadError(f"W&B's server does not answer any more: {why}", hint=_AGAIN)
    return OrchestrateError(f"W&B's client says: {said[:300]}", hint=_AGAIN)


if __name__ == "__main__":
    main()
