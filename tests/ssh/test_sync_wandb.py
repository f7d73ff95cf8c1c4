"""W&B after a sync: the laptop has the key, the cluster never did."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.helpers import make_sweep
from tests.offline_logs import PARTS, finish, make_logs, of_benchmarl, take_part
from tests.ssh.server import ALIAS, Server
from tests.wandb_server import KEY, signed_in


def sync(server: Server, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "orchestrator.ui.cli", "sync", ALIAS, *arguments]
    env = {**os.environ, **warm.COMMANDS}
    return subprocess.run(argv, env=env, cwd=server.laptop, capture_output=True, text=True, timeout=600)


def test_what_came_goes_up_once(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    make_logs(logs)
    there = make_sweep(server.home / "results", [of_benchmarl()])
    run = there.run(there.run_ids()[0])
    take_part(run, PARTS[0], logs)
    finish(run)
    with signed_in(tmp_path, monkeypatch) as wandb:
        monkeypatch.delenv("TMPDIR")  # where ssh's shared connection has its socket
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        rehearsed = sync(server, "--wandb", "--dry-run")
        assert (rehearsed.returncode, wandb.runs) == (0, {})
        done = sync(server, "--wandb")
        assert done.returncode == 0, done
        assert "1 run uploaded" in done.stdout
        again = sync(server, "--wandb")
        assert "0 runs uploaded" in again.stdout
        assert "1 there already" in again.stdout
    kept = [path for path in server.folder.rglob("*") if path.is_file() and path.stat().st_size < 1 << 20]
    assert not [path for path in kept if KEY.encode() in path.read_bytes()]
