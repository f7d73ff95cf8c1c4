"""A server on loopback that answers like S3."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

from tests.helpers import free_port, wait_for

BUCKET = "experiments"


class BucketServer:
    """moto's S3. ``env`` is what a client's environment needs to find it."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._log = folder / "moto.log"
        self._begun = 0  # bytes of the log before this test
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def env(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "AKIATESTING",
            "AWS_SECRET_ACCESS_KEY": "never-to-be-shown",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def start(self) -> None:
        """Start it, empty; or empty it, if it runs."""
        if self._process is not None:
            self._reset()
            return
        argv = [Path(sys.executable).with_name("moto_server"), "-H", "127.0.0.1", "-p", str(self.port)]
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(argv, stdout=log, stderr=log, env={**os.environ, **self.env})
        wait_for(self._answers, timeout=120, what=f"moto ({self._log})")

    def _reset(self) -> None:
        way = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        way.request("POST", "/moto-api/reset")
        assert way.getresponse().status == 200
        way.close()
        self._begun = self._log.stat().st_size

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def client(self) -> Any:
        """For tests, whose own environment is the laptop's."""
        import boto3

        return boto3.client("s3")

    def fetched(self) -> list[str]:
        """Names of objects that were read so far, in order."""
        return self._requests("GET")

    def put(self) -> list[str]:
        """Names of objects that were put so far, in order."""
        return self._requests("PUT")

    def _requests(self, method: str) -> list[str]:
        log = self._log.read_bytes()[self._begun :].decode(errors="replace")
        return re.findall(rf'"{method} /{BUCKET}/([^ ?]+)(?:\?x-id=\w+)? HTTP/1.1" 200', log)

    def _answers(self) -> bool:
        import urllib.error
        import urllib.request

        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=5).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True


class Faults:
    """A way to a bucket that is not always good: it stands between a client and the server.

    ``judge`` is asked about each request that reads an object, by its name and how often that was asked for;
    what it returns becomes of the answer: an HTTP status with S3's name for it, ``cut`` (after half of the
    bytes), ``corrupt`` (a byte is another), ``hang`` (until it is closed), or nothing.
    """

    def __init__(self, server: BucketServer, judge: Callable[[str, int], object]) -> None:
        self._judge, self._lock = judge, threading.Lock()
        self.asked: Counter[str] = Counter()
        self.sent = 0
        self.over = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler(server.port))
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def verdict(self, path: str) -> object:
        name = unquote(path.partition("?")[0]).removeprefix(f"/{BUCKET}/")
        if name == path or not name or "list-type" in path:
            return self._judge("", 0)
        with self._lock:
            self.asked[name] += 1
            number = self.asked[name]
        return self._judge(name, number)

    def _handler(self, port: int) -> type[BaseHTTPRequestHandler]:
        return type("Handler", (_Way,), {"faults": self, "port": port})


class _Way(BaseHTTPRequestHandler):
    """One request on that way."""

    protocol_version = "HTTP/1.1"
    faults: Faults
    port: int

    def do_GET(self) -> None:
        verdict = self.faults.verdict(self.path)
        if isinstance(verdict, tuple):
            status, code = verdict
            body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
            self._send(status, [("Content-Type", "application/xml")], len(body), body)
            return
        status, headers, body = self._ask()
        sent = body[: len(body) // 2] if verdict in ("cut", "hang") else body
        if verdict == "corrupt":
            sent = body[:-1] + bytes([body[-1] ^ self.faults.asked.total() % 255 + 1])
        self._send(status, headers, len(body), sent)
        if verdict == "hang":
            self.faults.over.wait(60)
        if len(sent) < len(body):
            self.close_connection = True

    def _ask(self) -> tuple[int, list[tuple[str, str]], bytes]:
        way = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        way.request(self.command, self.path, headers=dict(self.headers.items()))
        answer = way.getresponse()
        body = answer.read()
        way.close()
        return answer.status, answer.getheaders(), body

    def _send(self, status: int, headers: list[tuple[str, str]], length: int, sent: bytes) -> None:
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "connection", "date", "server"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(sent)
        self.wfile.flush()
        self.faults.sent += len(sent)

    def log_message(self, *_: object) -> None:
        pass
