"""Which files count as a program, and that they are the same in a checkout and in the copy that jobs run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config.code import key_files, worktree
from orchestrator.config.code.snapshot import freeze
from orchestrator.config.command_line.command import code_of, module_of, program_file, script_of
from orchestrator.config.program.identity import ProgramFiles, ProjectFiles
from orchestrator.core.errors import OrchestrateError
from orchestrator.rundir import SweepDir

GRID = "name: mine\ntrainer: command\nbase: {command: [python, train.py]}\nmatrix: {seed: [0]}\n"
PROFILE = "partition: gpu\ncpus_per_task: 4\nsetup: [module load cuda]\nenvironment: {A: b}\n"
FILES = {
    "train.py": "import lib.net\n",
    "helper.py": "",
    "lib/__init__.py": "",
    "lib/net.py": "WIDTH = 64\n",
    "configs/small.yaml": "lr: 1\n",
    "levels.json": "{}",
    "grid.yaml": GRID,
    "clusters/lab.yaml": PROFILE,
    "README.md": "",
    "pyproject.toml": "",
    "notes.txt": "",
    "data/frames.csv": "1\n",
    "tests/test_net.py": "",
    ".gitignore": "results/\nprivate/\n",
    "private/secret.py": "",
    "private/own.py": "",
}
COUNTED = {"train.py", "helper.py", "lib/__init__.py", "lib/net.py", "configs/small.yaml", "levels.json"}


def git(folder: Path, *arguments: str) -> None:
    argv = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
    subprocess.run(argv, capture_output=True, check=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project without git."""
    root = tmp_path / "project"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture
def project(folder: Path) -> Path:
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=m")
    return folder


def point(*command: str, **keys: Any) -> dict[str, Any]:
    return {"command": list(command), "seed": 0, **keys}


def files(start: Path, asked: dict[str, Any]) -> set[str]:
    return set(ProjectFiles(start).program(asked).files)


@pytest.mark.parametrize(
    ("text", "is_settings"),
    [
        (GRID + "for: [{seed: 0, set: {lr: 1}}]\n", False),
        ("extends: grid.yaml\nname: more\nmatrix: {seed: [1]}\n", False),
        ("trainer: command\nbase: {lr: 1}\nresources: {mem: 4G}\n", False),
        ("anchors: {a: &a [1]}\nbase: {lr: 1}\nfor: [{seed: *a, set: {lr: 1}}]\n", False),
        ("trainer: {max_epochs: 3}\nbase: {lr: 1}\n", True),
        ("base: {lr: 1}\n", True),
        ("extends: other\nmodel: {layers: 3}\n", True),
        ("for: 5\nbase: {lr: 1}\n", True),
    ],
)
def test_grids_and_what_they_extend_are_no_settings_of_a_program(
    project: Path, text: str, is_settings: bool
) -> None:
    (project / "other.yaml").write_text(text)
    assert ("other.yaml" in files(project, point("python", "train.py"))) is is_settings


def test_sources_and_settings_of_the_project_count(project: Path) -> None:
    assert files(project, point("python", "train.py")) == COUNTED


@pytest.mark.parametrize(
    ("command", "keys", "also"),
    [
        (["python", "train.py", "--data", "data/frames.csv"], {}, {"data/frames.csv"}),
        (["python", "train.py", "--data=data/frames.csv"], {}, {"data/frames.csv"}),
        (["python", "train.py", "data/{set}.csv"], {"set": "frames"}, {"data/frames.csv"}),
        (["python", "train.py", "{lacking}"], {}, set()),
        (["python", "private/own.py"], {}, {"private/own.py", "private/secret.py"}),
        (["python", "tests/test_net.py"], {}, {"tests/test_net.py"}),
        (["uv", "run", "train.py", "--grid", "grid.yaml"], {}, {"grid.yaml"}),
        (["no-such-program", "--x"], {}, set()),
    ],
)
def test_files_that_the_command_names_count_too(
    project: Path, command: list[str], keys: dict[str, Any], also: set[str]
) -> None:
    assert files(project, point(*command, **keys)) == COUNTED | also


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("lib", {"train.py", "lib/__init__.py", "lib/net.py"}),
        (["lib/net.py", "./helper.py"], {"train.py", "lib/net.py", "helper.py"}),
        (["*.py"], {"train.py", "helper.py"}),
        (["**/*.py", "-private", "-tests"], {"train.py", "helper.py", "lib/__init__.py", "lib/net.py"}),
        (
            ["+data", "-configs/*", "-levels.json"],
            COUNTED - {"configs/small.yaml", "levels.json"} | {"data/frames.csv"},
        ),
        (["+private/own.py"], COUNTED | {"private/own.py"}),
        (["-train.py"], COUNTED - {"train.py"}),
        (["+README.md", "+grid.yaml"], COUNTED | {"README.md", "grid.yaml"}),
        ([], COUNTED),
    ],
)
def test_the_grid_narrows_and_widens_what_counts(project: Path, code: Any, expected: set[str]) -> None:
    assert files(project, point("python", "train.py", code=code)) == expected


@pytest.mark.parametrize("code", [3, {"a": 1}, [1], [""], ["+"], [None]])
def test_what_is_no_list_of_files_is_refused(project: Path, code: Any) -> None:
    with pytest.raises(OrchestrateError, match="expected files, folders or patterns"):
        files(project, point("python", "train.py", code=code))


def test_entries_that_fit_nothing_are_named(project: Path) -> None:
    found = ProjectFiles(project).unmatched(["lib", "+data/*.npz", "trian.py", "-nothing"])
    assert found == ["trian.py", "data/*.npz"]


@pytest.mark.parametrize("within", [".", "lib"])
@pytest.mark.parametrize("code", [None, ["+private", "+data"], ["lib"], ["../data", "."], ["**/*.yaml"]])
def test_a_copy_that_jobs_run_has_the_same_id(project: Path, tmp_path: Path, within: str, code: Any) -> None:
    (project / "new.py").write_text("")  # in no commit, and kept all the same
    (project / "link.py").symlink_to("helper.py")
    for folder in ("lib", "data"):  # a copy links to them, so they do not count
        (project / folder / "lab.yaml").write_text("api_key: hunter2hunter2\n")
    start = project / within
    command = ["python", "train.py" if within == "." else "net.py", "../configs/small.yaml"]
    asked = point(*command, **({} if code is None else {"code": code}))
    kept = freeze(SweepDir(tmp_path / "results", "mine"), start)
    today, then = ProjectFiles(start).program(asked), ProjectFiles(kept.cwd).program(asked)
    assert today.files == then.files
    assert today.id is not None
    assert today.id == then.id


def test_files_that_count_are_searched_for_keys_once(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "notes.txt").write_text("no settings\n")
    (project / "more.json").write_text("{}")
    git(project, "add", "--all")
    searched: list[str] = []
    monkeypatch.setattr(key_files, "has_key", lambda name, content: bool(searched.append(name)))
    for _ in range(2):
        assert "more.json" in files(project, point("python", "train.py"))
    assert "more.json" in searched
    assert "notes.txt" not in searched
    assert len(searched) == len(set(searched))


@pytest.mark.parametrize("within", [".", "lib"])
def test_a_project_reached_by_a_link_is_the_same(project: Path, tmp_path: Path, within: str) -> None:
    (tmp_path / "link").symlink_to(project)
    (tmp_path / "results").mkdir()
    (tmp_path / "other").symlink_to(tmp_path / "results")
    asked = point("python", "train.py")
    kept = freeze(SweepDir(tmp_path / "other", "mine"), tmp_path / "link" / within)
    starts = (project / within, tmp_path / "link" / within, kept.cwd, kept.cwd.resolve())
    assert len({ProjectFiles(start).program(asked).id for start in starts}) == 1


@pytest.mark.parametrize("name", sorted(COUNTED))
def test_an_edit_of_what_counts_is_another_program(project: Path, name: str) -> None:
    asked = point("python", "train.py")
    before = ProjectFiles(project).program(asked)
    (project / name).write_text("edited = 1\n")
    after = ProjectFiles(project).program(asked)
    assert after.id != before.id
    assert after.differing(before) == [name]


@pytest.mark.parametrize(
    ("text", "is_same"),
    [
        ("# remark\n\nimport lib.net as net\n\nprint( net )\n", True),
        ("'''A docstring.'''\nimport lib.net as net\nprint(net)\n", True),
        ("import helper as net\nprint(net)\n", False),
        ("import lib.net as net\nprint(net, 1)\n", False),
        ("import lib.net as net\nprint(net\n", False),
    ],
)
def test_of_a_file_that_a_program_imports_the_syntax_counts(project: Path, text: str, is_same: bool) -> None:
    (project / "train.py").write_text("import lib.net as net\nprint(net)\n")
    asked, opened = point("python", "train.py"), frozenset({"train.py", "lib/net.py", "data/frames.csv"})
    before = ProjectFiles(project).program(asked, opened)
    assert before.files.keys() == opened
    (project / "train.py").write_text(text)
    (project / "helper.py").write_text("edited = 1\n")
    assert (ProjectFiles(project).program(asked, opened).id == before.id) is is_same


def test_a_docstring_that_a_program_reads_counts(project: Path) -> None:
    asked, opened = point("python", "train.py"), frozenset({"train.py"})
    ids = set()
    for default in (1, 2):
        (project / "train.py").write_text(f"'''--lr [default: {default}]'''\nparse(__doc__)\n")
        ids.add(ProjectFiles(project).program(asked, opened).id)
    assert len(ids) == 2


@pytest.mark.parametrize(
    "name",
    [
        "grid.yaml",
        "clusters/lab.yaml",
        "README.md",
        "pyproject.toml",
        "notes.txt",
        "tests/test_net.py",
        "private/own.py",
    ],
)
def test_an_edit_of_anything_else_is_not(project: Path, name: str) -> None:
    asked = point("python", "train.py")
    before = ProjectFiles(project).program(asked)
    edits = {
        "grid.yaml": GRID.replace("[0]", "[0, 1]"),
        "clusters/lab.yaml": '{"ssh": "lab", "gpus": 1, "partition": "a"}',
    }
    (project / name).write_text(edits.get(name, "edited"))
    assert ProjectFiles(project).program(asked).id == before.id


def test_settings_of_a_program_are_no_profile(project: Path) -> None:
    """Though they have keys that a profile may have, too."""
    before = ProjectFiles(project).program(point("python", "train.py"))
    (project / "configs/small.yaml").write_text("environment: {name: walker}\ntime: 10\nsignal: 1\n")
    assert ProjectFiles(project).program(point("python", "train.py")).id != before.id


def test_sweeps_elsewhere_in_the_project_are_none_of_it(project: Path) -> None:
    before = ProjectFiles(project).program({"command": ["python", "train.py"]})
    for name in ("index.tsv", "ledger/0001.json", "code/1/tree/train.py", "runs/1/config.yaml"):
        (path := project / "older" / "speed" / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    assert ProjectFiles(project).program({"command": ["python", "train.py"]}).id == before.id
    (project / "older/speed/ledger/0001.json").unlink()
    assert ProjectFiles(project).program({"command": ["python", "train.py"]}).id != before.id


def test_without_git_what_lies_beside_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But no outputs: what a program writes there must not make it another program."""
    asked = point("python", "train.py")
    before = ProjectFiles(folder).program(asked)
    assert set(before.files) == {
        "train.py",
        "helper.py",
        "lib/__init__.py",
        "lib/net.py",
        "private/own.py",
        "private/secret.py",
    }
    for name in ("out.json", "log.txt", "results/x/y.yaml", "outputs/config.yaml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("1")
    assert ProjectFiles(folder).program(asked).id == before.id
    monkeypatch.setenv("PATH", "/nowhere")  # without a repository nobody needs git to know so
    assert ProjectFiles(folder).program(asked).id == before.id


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("absent", "is in a git repository, and git is not installed"),
        ("broken", "is in a git repository, and git fails there (fatal: "),
        ("elsewhere", "is in a git repository, and git fails there (fatal: not a git repository: /nowhere)"),
        ("slow", "git took more than 0 s"),
    ],
)
@pytest.mark.parametrize("within", [".", "lib"])
def test_where_git_does_not_answer_the_program_is_unknown(
    project: Path, monkeypatch: pytest.MonkeyPatch, within: str, how: str, said: str
) -> None:
    if how == "absent":
        monkeypatch.setenv("PATH", "/nowhere")
    elif how == "slow":
        monkeypatch.setattr(worktree, "_PATIENCE_S", 0)
    elif how == "broken":
        (project / ".git" / "index").write_bytes(b"DIRCnonsense" * 10)
    else:  # a work tree of a repository on a disk that is not mounted
        shutil.rmtree(project / ".git")
        (project / ".git").write_text("gitdir: /nowhere\n")
    program = ProjectFiles(project / within).program(point("python", "train.py", code=["train.py"]))
    assert (program.id, program.files) == (None, {})
    assert said in (program.unknown or "")


def test_a_listed_program_is_narrowed_like_one_of_today(project: Path) -> None:
    (project / "odd \udcff.py").touch()
    listed = ProgramFiles.from_json(ProjectFiles(project).program(point("python", "train.py")).to_json())
    assert listed is not None
    for code in (None, ["-lib"], ["lib/*", "+configs", "-lib/net.py"], ["helper.py"]):
        asked = point("python", "train.py", **({} if code is None else {"code": code}))
        today = ProjectFiles(project)
        assert today.narrowed(listed, asked) == today.program(asked)


@pytest.mark.parametrize("data", [None, [], {"a.py": 3}])
def test_what_lists_no_files_is_no_program(data: Any) -> None:
    assert ProgramFiles.from_json(data) is None


def test_an_absolute_path_counts_with_what_lies_beside(project: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "train.py").touch()
    (elsewhere / "net.py").touch()
    found = files(project, point("python", str(elsewhere / "train.py"), str(elsewhere)))
    assert found == COUNTED | {str(elsewhere / "train.py"), str(elsewhere / "net.py")}


def test_where_nothing_counts_there_is_no_id(tmp_path: Path) -> None:
    assert ProjectFiles(tmp_path).program(point("simulate", "--fast")).id is None


@pytest.mark.parametrize(
    ("argv", "script", "module"),
    [
        (["python", "train.py"], "train.py", None),
        (["/usr/bin/python3.11", "-u", "-W", "ignore", "train.py", "x.py"], "train.py", None),
        (["python", "-um", "pkg.train", "--x"], None, "pkg.train"),
        (["python", "-c", "print()"], None, None),
        (["python", "-Xdev", "folder"], "folder", None),
        (["python"], None, None),
        (["python", "-"], None, None),
        (["bash", "-e", "run.sh"], "run.sh", None),
        (["bash", "-o", "pipefail", "run.sh"], "run.sh", None),
        (["bash", "-ec", "run.sh"], None, None),
        (["sh", "--", "run"], "run", None),
        (["uv", "run", "--with", "x", "train.py"], "train.py", None),
        (["uv", "run", "python", "train.py"], "train.py", None),
        (["torchrun", "--nproc", "2", "train.py"], "train.py", None),
        (["env", "A=1", "nice", "-n", "5", "julia", "-t", "4", "a.jl"], "a.jl", None),
        (["perl", "-e", "1"], None, None),
        (["simulate", "out.py"], None, None),
        ([], None, None),
    ],
)
def test_the_file_that_a_command_runs(argv: list[str], script: str | None, module: str | None) -> None:
    assert (script_of(argv), module_of(argv)) == (script, module)


@pytest.mark.parametrize(
    ("code", "script"),
    [
        ("python train.py --lr 1", "train.py"),
        ("A=1 exec python3 'my train.py' > log.txt 2>&1 && echo done", "my train.py"),
        ("time bash run.sh\necho done", "run.sh"),
        ("cd src && python train.py", None),
        ("touch train.py; python train.py", None),
        ("python train.py || python other.py", None),
        ("python $SCRIPT.py", None),
        ("python -c 'print(1)'", None),
        ("python -m train", None),
        ("python 'train.py", None),
        ("if true; then python train.py; fi", None),
        ("", None),
    ],
)
def test_the_file_that_shell_code_runs_first(code: str, script: str | None) -> None:
    assert program_file(["bash", "-c", code]) == program_file(["sh", "-ec", code]) == script
    assert program_file(["bash", "-lc", code]) is program_file(["bash", "-e", "-l", "-c", code]) is None
    assert code_of(["bash", "-c", code]) == code_of(["python", "-u", "-c", code]) == code
