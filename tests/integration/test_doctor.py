"""The doctor with the real PyTorch and OpenGL; and with packages that crash, hang and lie in their place."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from orchestrator.ui.doctor import training
from orchestrator.ui.doctor.torch_probe import Probing
from tests.helpers import running, wait_for
from tests.libraries import without_glu, without_qt

# A PyTorch for CUDA in every respect that the doctor looks at, on a machine whose driver is too old for it.
TOO_NEW = """
__version__ = "2.13.0"
class version: cuda = "13.0"
def get_num_threads(): return 4
def ones(*_, **__): raise RuntimeError("The driver on your system is too old (version 11040).\\nMore")
"""


def broken_torch(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """Put a module before PyTorch."""
    (folder / "torch.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def lines(told: str) -> dict[str, str]:
    """What the doctor's lines begin with, by their name; a fix belongs to the line before it."""
    found = [line for line in told.splitlines() if not line.startswith("      ")]
    return {line[10:28].strip(): line for line in found}


def doctor(folder: Path, prefix: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    command = [*prefix, str(Path(sys.executable).with_name("orchestrate")), "doctor", "--on", "local"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


def test_this_machine_is_looked_at_and_nothing_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('not the one that is meant')")
    (tmp_path / "jobs").mkdir()
    told = doctor(tmp_path)
    assert (told.returncode, told.stderr) == (0, ""), told.stdout
    found = lines(told.stdout)
    assert " Threads           a run takes as many as `threads`" in found["Threads"]
    import torch

    assert f"ok        PyTorch           {torch.__version__}" in found["PyTorch"]
    assert found["OpenGL"].startswith(("ok ", "warning "))
    assert {path.name for path in tmp_path.iterdir()} == {"torch.py", "jobs"}


def told_without(
    tmp_path: Path, hide: Callable[[Path], Sequence[str]], name: str, code: int
) -> tuple[str, str]:
    """The doctor's line of this name where libraries are hidden, and the fix below it."""
    scratch, folder = tmp_path / "scratch", tmp_path / "folder"
    scratch.mkdir()
    folder.mkdir()
    told = doctor(folder, hide(scratch))
    assert (told.returncode, told.stderr) == (code, ""), told.stdout
    line = lines(told.stdout)[name]
    every = told.stdout.splitlines()
    return line, every[every.index(line) + 1].strip()


@pytest.mark.nightly
def test_a_machine_without_glu_says_what_to_install(tmp_path: Path) -> None:
    """Where it was not installed in the first place, GL may not be either."""
    line, fix = told_without(tmp_path, without_glu, "OpenGL", 0)
    assert line.startswith(
        "warning   OpenGL            evaluations cannot be rendered here: no library libGL"
    )
    assert fix.startswith("fix: on Debian and Ubuntu apt-get install libgl")


@pytest.mark.nightly
def test_a_machine_without_qt_says_what_to_install(tmp_path: Path) -> None:
    line, fix = told_without(tmp_path, without_qt, "Procgen", 3)
    assert line.startswith("problem   Procgen           procgen needs Qt's libraries: libQt5Gui.so.5: cannot")
    assert fix.startswith("fix: ")
    assert "[procgen]" in fix


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "raise ImportError('libcudart.so.13: cannot open shared object file')",
            "libcudart.so.13: cannot open",
        ),
        ("raise SystemExit(3)", "exit code 3"),
        ("raise SystemExit('no licence')", "no licence"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "was killed by SIGSEGV"),
        ("print('{\"probe\": 1}\\n[]'); 1 / 0", "ZeroDivisionError: division by zero"),
        ("version = None", "AttributeError: module 'torch' has no attribute '__version__'"),
    ],
)
def test_a_pytorch_that_does_not_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, said: str
) -> None:
    broken_torch(tmp_path, monkeypatch, source)
    with Probing() as probe:
        finding = training.pytorch(probe)
        assert "does not load" in finding.found
        assert said in finding.found
        assert "cannot be rendered here" in training.drawing(probe).found


def test_a_driver_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_torch(tmp_path, monkeypatch, TOO_NEW)
    monkeypatch.setattr("orchestrator.core.machine.hardware.gpus", lambda: ("NVIDIA L4",))
    with Probing() as probe:
        finding = training.pytorch(probe)
    assert finding.found == (
        "2.13.0 for CUDA 13.0 cannot use the NVIDIA L4: RuntimeError: The driver on your system is too old "
        "(version 11040)."
    )
    assert "update NVIDIA's driver" in (finding.fix or "")


def test_what_hangs_is_given_up_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "pid"
    hang = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(3600)"
    broken_torch(tmp_path, monkeypatch, hang)
    with Probing(patience=0.2) as probe:
        assert "no answer within 0 s" in training.pytorch(probe).found
        assert training.drawing(probe).fix
    mark.unlink(missing_ok=True)
    with Probing() as probe:
        pid = wait_for(lambda: mark.exists() and mark.read_text(), what="the hang")
        assert running(int(pid))
    assert not running(int(pid))


def test_a_python_that_does_not_start() -> None:
    with Probing(python="/nowhere/python") as probe:
        assert "/nowhere/python cannot be started: No such file" in training.pytorch(probe).found
