"""An AWS that refuses to start machines: moto behind a door that answers one kind of question itself."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.sky.bed import Bed

_NO = "<Response><Errors><Error><Code>{code}</Code><Message>{text}</Message></Error></Errors></Response>"


class Door(ThreadingHTTPServer):
    """Hands everything on to moto but `RunInstances`, which is answered with ``code``."""

    daemon_threads = True

    def __init__(self, moto: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.moto, self.code, self.asked = moto, "", 0


class _Handler(BaseHTTPRequestHandler):
    server: Door

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if b"Action=RunInstances" in body:
            self.server.asked += 1
            text = _NO.format(code=self.server.code, text="as the test wants it")
            self._say(400, text.encode(), "text/xml")
            return
        url = f"http://127.0.0.1:{self.server.moto}{self.path}"
        request = urllib.request.Request(url, body or None, dict(self.headers), method=self.command)
        try:
            answer = urllib.request.urlopen(request, timeout=600)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            self._say(answer.status, answer.read(), answer.headers.get("Content-Type", "text/xml"))

    do_GET = do_PUT = do_DELETE = do_POST  # noqa: N815 (as the base class asks for them)

    def _say(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def refusing(bed: Bed) -> Iterator[Door]:
    """The bed's AWS from now on: it has all but machines."""
    with Door(bed.moto) as door:
        thread = threading.Thread(target=door.serve_forever)
        thread.start()
        bed.aws_at(door.server_port)
        try:
            yield door
        finally:
            bed.aws_at(bed.moto)
            door.shutdown()
            thread.join()
