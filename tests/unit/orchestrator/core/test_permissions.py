"""Which permission denies access, whose it is, and what to type."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.core.errors import StorageError
from orchestrator.core.machine import permissions
from orchestrator.core.machine.permissions import denial
from orchestrator.rundir.files.atomic import storage_errors, write_atomic

# Root without the capabilities by which it may read and write everything.
HUMBLE = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process as another user of another group, in the test's folder."""
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    monkeypatch.setattr(os, "getegid", lambda: 4711)
    monkeypatch.setattr(os, "getgroups", lambda: [4711])
    bits = {os.X_OK: 0o001, os.R_OK | os.W_OK: 0o006}

    def may(path: Path, mode: int) -> bool:
        return not path.is_relative_to(tmp_path) or path.stat().st_mode & bits[mode] == bits[mode]

    monkeypatch.setattr(permissions, "_may", may)


@pytest.mark.usefixtures("stranger")
@pytest.mark.parametrize(("mode", "shown"), [(0o755, "drwxr-xr-x"), (0o700, "drwx------")])
def test_the_folder_that_keeps_others_out_is_named(mode: int, shown: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    folder = tmp_path / "m"
    (folder / "runs").mkdir(parents=True)
    folder.chmod(mode)
    found = denial(folder / "new.json")
    assert found is not None
    assert str(folder) in found.reason
    assert shown in found.reason
    assert f"chgrp -R 4711 {folder} && chmod -R g+rwX {folder}" in found.hint
    assert "umask 002" in found.hint


@pytest.mark.usefixtures("stranger")
def test_members_of_the_group_need_its_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getgroups", lambda: [tmp_path.stat().st_gid])
    tmp_path.chmod(0o755)
    found = denial(tmp_path / "new.json")
    assert found is not None
    assert f" types: chmod -R g+rwX {tmp_path}" in found.hint


def test_a_read_only_copy_of_ones_own_says_how_to_write_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    code = (
        "import sys, pathlib\nfrom orchestrator.core.errors import StorageError\n"
        "from orchestrator.rundir.files.atomic import write_atomic\n"
        "try: write_atomic(pathlib.Path(sys.argv[1]), b'')\n"
        "except StorageError as error: print(error, error.hint)\n"
    )
    argv = [*HUMBLE, sys.executable, "-c", code, str(tmp_path / "x")]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert "mode dr-xr-xr-x" in done.stdout
    assert f"type: chmod -R u+rwX {tmp_path}" in done.stdout
    assert "free space" not in done.stdout


@pytest.mark.parametrize(
    ("number", "advice"), [(errno.EROFS, "cp -r"), (errno.ENOSPC, "free space"), (errno.EDQUOT, "free space")]
)
def test_each_cause_has_its_advice(number: int, advice: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError) as caught, storage_errors(tmp_path):
        raise OSError(number, os.strerror(number))
    assert advice in (caught.value.hint or "")


def test_what_may_be_written_is_not_denied(tmp_path: Path) -> None:
    write_atomic(tmp_path / "x", b"")
    assert denial(tmp_path / "x") is None
    assert denial(tmp_path / "new" / "y") is None
