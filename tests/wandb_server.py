"""A W&B server on loopback as far as the real client needs one. It keeps what it is sent, to be looked at."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

import pytest

from tests.helpers import ROOT

ENTITY = "somebody"
KEY = "5ec2e70123456789abcdef0123456789abcdef99"  # as long as W&B's keys are
_OPERATION = re.compile(r"(?:query|mutation)\s+(\w+)")


@dataclass
class UploadedRun:
    """One run as the server has it. ``lines``: its history, as the offsets of the file stream place it.

    The client begins at the offset that it is told: the count of lines that are there.
    """

    entity: str
    project: str
    name: str
    upserts: list[dict[str, Any]] = field(default_factory=list)
    lines: dict[int, str] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    exit_code: int | None = None

    @property
    def history(self) -> list[dict[str, Any]]:
        assert sorted(self.lines) == list(range(len(self.lines))), "the history has holes"
        return [json.loads(self.lines[number]) for number in sorted(self.lines)]

    @property
    def config(self) -> dict[str, Any]:
        """The last configuration sent."""
        texts = [upsert["config"] for upsert in self.upserts if upsert.get("config")]
        return {name: item["value"] for name, item in json.loads(texts[-1]).items()}

    def said(self, name: str) -> Any:
        """The last word on a property of the run, such as its ``displayName``."""
        return [upsert[name] for upsert in self.upserts if upsert.get(name)][-1]


class WandbServer:
    """``refuse`` answers everything with that status; ``refuse_history`` only the lines of histories."""

    def __init__(self) -> None:
        self.runs: dict[str, UploadedRun] = {}
        self.operations: list[str] = []
        self.keys: set[str] = set()
        self.refuse: int | None = None
        self.refuse_history: int | None = None
        self.gate = threading.Event()  # while cleared, histories wait after their first lines
        self.gate.set()
        self.cut = False  # and lose the others
        self.held: set[str] = set()  # the runs that ever came to it while it was cleared
        self._lock = threading.Lock()
        self._http = _Http(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    @contextmanager
    def serving(self) -> Iterator[WandbServer]:
        thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        thread.start()
        try:
            yield self
        finally:
            self.gate.set()
            self._http.shutdown()
            self._http.server_close()
            thread.join()

    def run(self, entity: str, project: str, name: str) -> UploadedRun:
        with self._lock:
            return self.runs.setdefault(name, UploadedRun(entity, project, name))

    def answer(self, query: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        """What a GraphQL operation is answered."""
        found = _OPERATION.search(query)
        name = found[1] if found else "?"
        self.operations.append(name)
        if name == "UpsertBucket":
            return {"upsertBucket": self._upsert(variables)}
        if name == "CreateRunFiles":
            return {"createRunFiles": self._create_files(variables)}
        if name == "RunResumeStatus":
            return {"model": self._status(variables)}
        return {**_WHO, "serverInfo": {}, "serverFeatures": []}

    def _status(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        entity, run = variables.get("entity") or ENTITY, self.runs.get(variables["name"])
        bucket = run and {
            "id": run.name,
            "name": run.name,
            "historyLineCount": len(run.lines),
            "historyTail": json.dumps([run.lines[max(run.lines)]] if run.lines else []),
        }
        return {"id": "1", "name": "", "entity": {"id": entity, "name": entity}, "bucket": bucket}

    def _upsert(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        entity, project = variables.get("entity") or ENTITY, variables.get("project") or "uncategorized"
        run = self.run(entity, project, variables.get("name") or variables.get("id") or "")
        inserted = not run.upserts
        run.upserts.append(dict(variables))
        return {
            "bucket": {
                "id": run.name,
                "name": run.name,
                "displayName": variables.get("displayName") or run.name,
                "description": "",
                "config": variables.get("config") or "{}",
                "sweepName": None,
                "historyLineCount": len(run.lines),
                "project": {"id": project, "name": project, "entity": {"id": entity, "name": entity}},
            },
            "inserted": inserted,
        }

    def _create_files(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        where = f"{self.url}/storage/{variables['entity']}/{variables['project']}/{variables['run']}"
        return {
            "runID": variables["run"],
            "uploadHeaders": [],
            "files": [{"name": name, "uploadUrl": f"{where}/{name}"} for name in variables["files"]],
        }

    def take_stream(self, path: str, sent: Mapping[str, Any]) -> int:
        """Keep what a run's file stream brings; the status to answer with."""
        _, files, entity, project, name, stream = path.split("/")
        assert (files, stream) == ("files", "file_stream"), path
        run = self.run(unquote(entity), unquote(project), unquote(name))
        if self.refuse_history is not None and "wandb-history.jsonl" in sent.get("files", {}):
            return self.refuse_history
        for kind, chunk in sent.get("files", {}).items():
            if kind == "wandb-history.jsonl":
                lines = dict(enumerate(chunk["content"], chunk["offset"]))
                if not self._take(run, lines):
                    return 500
            elif kind == "wandb-summary.json":
                run.summary = json.loads(chunk["content"][-1])
        if sent.get("complete"):
            run.exit_code = sent["exitcode"]
        return 200

    def _take(self, run: UploadedRun, lines: Mapping[int, str]) -> bool:
        run.lines |= dict(list(lines.items())[:2])
        if not self.gate.is_set():
            self.held.add(run.name)
        self.gate.wait()
        if not self.cut:
            run.lines |= lines
        return not self.cut


@contextmanager
def signed_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbServer]:
    """A server that this process and those it starts have a key for; they leave nothing behind."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    (folder / "home").mkdir()
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    with TemporaryDirectory() as temporary, WandbServer().serving() as server:
        monkeypatch.setenv("TMPDIR", temporary)
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        yield server
        assert list(Path(temporary).iterdir()) == []
        assert list((folder / "home").iterdir()) == []


class _Http(ThreadingHTTPServer):
    def handle_error(self, *args: Any) -> None:
        """Clients may leave in the middle of a request: tests kill them."""


_WHO = {
    "viewer": {
        "id": "1",
        "username": ENTITY,
        "entity": ENTITY,
        "email": "",
        "admin": False,
        "flags": "{}",
        "teams": {"edges": []},
    }
}


def _handler(server: WandbServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            sent = json.loads(self._body())
            server.keys.add(self.headers.get("Authorization", ""))
            if server.refuse is not None:
                self._reply(server.refuse, {"error": "no"})
            elif self.path == "/graphql":
                data = server.answer(sent["query"], sent.get("variables") or {})
                self._reply(200, {"data": data})
            else:
                self._reply(server.take_stream(self.path, sent), {})

        def do_PUT(self) -> None:
            _, storage, entity, project, name, *path = self.path.split("/")
            assert storage == "storage", self.path
            run = server.run(unquote(entity), unquote(project), unquote(name))
            run.files[unquote("/".join(path))] = self._body()
            self._reply(200, {})

        def do_GET(self) -> None:
            self._reply(404, {})

        def _body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def _reply(self, status: int, value: Any) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    return Handler
