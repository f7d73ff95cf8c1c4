"""Which files count for the result of a program, by the notes of the hook in its Python."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.trainers.command.traced import Trace
from orchestrator.config.program.identity import ProgramFiles, ProjectFiles

FILES = ("train.py", "net.py", "a.yaml", "plot.py", "run.sh", "pkg/__main__.py")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x = 1\n")
    monkeypatch.chdir(folder)
    return folder


def traced(project: Path, notes: list[str], *argv: str, before: ProgramFiles | None = None) -> dict[str, Any]:
    """The keys of the result of a program with these notes: names in the project, or paths."""
    run_dir = project / "results" / "mine" / "runs" / "1"
    run_dir.mkdir(parents=True, exist_ok=True)
    (run_dir / "notes").write_text("".join(f"file\t{project / name}\n" for name in notes))
    attempts = [
        SimpleNamespace(inbox_imports=run_dir / "gone"),
        SimpleNamespace(inbox_imports=run_dir / "notes"),
    ]
    point = {"command": list(argv)}
    files = before or ProjectFiles(project).program(point)
    context: Any = SimpleNamespace(
        run_dir=SimpleNamespace(path=run_dir, current_attempts=lambda: attempts),
        run=SimpleNamespace(point=point),
        program=files,
    )
    return Trace(context, argv).result()


@pytest.mark.parametrize(
    ("argv", "notes", "names"),
    [
        (["python", "train.py"], ["train.py", "net.py", "a.yaml"], {"train.py", "net.py", "a.yaml"}),
        (["uv", "run", "./train.py"], ["train.py"], {"train.py"}),
        (["python", "-m", "pkg"], ["pkg/__main__.py", "net.py"], {"pkg/__main__.py", "net.py"}),
        (["python", "pkg"], ["pkg/__main__.py"], {"pkg/__main__.py"}),
        (["python", "-c", "import net"], ["net.py"], {"net.py"}),
        (["python", "train.py"], ["results/mine/runs/1/work/train.py"], {"train.py"}),
        (["python", "train.py"], ["train.py", "results/mine/x.yaml", "gone.py"], {"train.py"}),
        (["python", "train.py"], ["net.py"], None),
        (["python", "train.py"], [], None),
        (["python", "-c", "pass"], [], None),
        (["bash", "run.sh"], ["train.py", "run.sh"], None),
        (["bash", "-c", "python train.py"], ["train.py"], None),
    ],
)
def test_only_of_a_python_program_that_was_seen_the_noted_files_count(
    project: Path, argv: list[str], notes: list[str], names: set[str] | None
) -> None:
    result = traced(project, notes, *argv)
    assert (set(result["code_files"]) if result else None) == names


def test_a_file_that_changed_while_the_program_ran_counts_as_it_was(project: Path) -> None:
    before = ProjectFiles(project).program({"command": ["python", "train.py"]})
    (project / "net.py").write_text("x = 2\n")
    (project / "plot.py").write_text("x = 2\n")
    files = traced(project, ["train.py", "net.py"], "python", "train.py", before=before)["code_files"]
    assert set(files) == {"train.py", "net.py"}
    assert files["net.py"] == before.files["net.py"]
    assert files["train.py"].startswith("ast:")
