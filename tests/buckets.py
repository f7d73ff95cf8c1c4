"""A server on loopback that answers like S3, as long as a test lasts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.helpers import wait_for
from tests.ssh.server import free_port

BUCKET = "experiments"


class BucketServer:
    """moto's S3. ``env`` is what a client's environment needs to find it."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
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
        """It begins empty, each time."""
        argv = [Path(sys.executable).with_name("moto_server"), "-H", "127.0.0.1", "-p", str(self.port)]
        with open(self._folder / "moto.log", "ab") as log:
            self._process = subprocess.Popen(argv, stdout=log, stderr=log, env={**os.environ, **self.env})
        wait_for(self._answers, timeout=120, what=f"moto ({self._folder}/moto.log)")

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
        log = (self._folder / "moto.log").read_text(errors="replace")
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
