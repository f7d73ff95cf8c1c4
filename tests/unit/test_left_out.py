"""Set-up of a bare machine for the tests, and the list of tests that it cannot run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "packages.sh"
BASE = ("git", "make", "ps", "python3")
TOOLS = ("cut", "env", "grep", "ldconfig", "sed", "sh", "sort", "tr")


def put(path: Path, script: str) -> None:
    """Write a program that is found before the machine's own."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The folder of a machine's programs: what every test needs, and an apt-get that notes its arguments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in (*BASE, *TOOLS):
        (folder / name).symlink_to(shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin") or sys.executable)
    put(folder / "id", "echo 0")
    put(folder / "apt-get", f'echo "$@" >>{tmp_path}/apt; [ $# != 5 ] || [ "$1" = update ]')
    return folder


def install(programs: Path, what: str = "install") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": str(programs), "PYTHON": sys.executable}
    return subprocess.run([SCRIPT, what], env=environment, capture_output=True, text=True)


def asked(programs: Path) -> list[str]:
    """Return what apt-get was asked for, a line each."""
    file = programs.parent / "apt"
    return file.read_text().splitlines() if file.exists() else []


def test_root_installs_what_is_missing(programs: Path) -> None:
    assert install(programs).returncode == 0
    update, all_at_once, *_ = asked(programs)
    assert update == "update -qq"
    assert all_at_once.startswith("install -qq -y --no-install-recommends ")
    assert {"chromium", "rsync", "strace"} <= set(all_at_once.split())
    assert not {"git", "make", "python3"} & set(all_at_once.split())


def test_a_name_that_the_distribution_lacks_keeps_no_other_away(programs: Path) -> None:
    put(programs / "apt-get", f'echo "$@" >>{programs.parent}/apt; [ $# -lt 6 ]')
    assert install(programs).returncode == 0
    one_by_one = asked(programs)[2:]
    assert len(one_by_one) > 3
    assert "install -qq -y --no-install-recommends rsync" in one_by_one


@pytest.mark.parametrize("sudo", ['[ "$1" = -n ] && shift && exec "$@"', "exit 1"])
def test_a_person_s_packages_come_by_a_sudo_that_asks_nothing(programs: Path, sudo: str) -> None:
    put(programs / "id", "echo 1000")
    put(programs / "sudo", sudo)
    (programs / "true").symlink_to("/bin/true")
    assert install(programs).returncode == 0
    assert bool(asked(programs)) == (sudo != "exit 1")


def test_what_every_test_needs_is_demanded(programs: Path) -> None:
    (programs / "git").unlink()
    refused = install(programs, "base")
    assert refused.returncode == 1
    assert refused.stderr == "tests/packages.sh: install these first: apt-get install git \n"


@pytest.mark.parametrize(
    ("options", "ci", "code"),
    [(["--numprocesses", "1"], "", 0), (["--complete"], "", 1), (["--numprocesses", "1"], "true", 1)],
)
def test_the_end_lists_what_was_left_out(tmp_path: Path, options: list[str], ci: str, code: int) -> None:
    put(tmp_path / "id", "echo 1000")
    hooks = "from tests.missing_parts import pytest_addoption, pytest_configure\n"
    (tmp_path / "conftest.py").write_text(hooks)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gridengine: needs Grid Engine\n")
    tests = "import pytest\n@pytest.mark.gridengine\ndef test_cell(): assert 0\ndef test_plain(): pass\n"
    (tmp_path / "test_two.py").write_text(tests)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "CI": ci,
    }
    argv = [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "no:cacheprovider", *options]
    run = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == code, run.stdout + run.stderr
    end = run.stdout[run.stdout.rindex("left out here: ") :]
    assert "left out: 1 test marked gridengine (needs Grid Engine): run as root\n" in end
    assert " passed" not in end, "the list stands below the last line of pytest"
    assert ("--complete" in end) == bool(code)
