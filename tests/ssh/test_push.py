"""Code on its way to a machine behind ssh: whole there or absent, and in one folder for everybody."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from orchestrator.config.code.snapshot import freeze, received
from orchestrator.config.locations import parse_place, tree_there
from orchestrator.config.profiles import Profile, parse_profile
from orchestrator.control.remote import push_code
from orchestrator.control.remote.push_code import look_there, push, sent
from orchestrator.core.errors import DamagedFileError, HostError
from orchestrator.core.findings import Verdict
from orchestrator.core.machine.ssh import Host
from orchestrator.rundir import CodeDir, FrozenCode, SweepDir
from orchestrator.ui.doctor.login_node import LoginNode
from tests.ssh.server import ALIAS, Server


class Laptop:
    """A project whose code is kept with a sweep; its profile leads to the cluster."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder, self.server = folder, server
        self.sweep = SweepDir(folder / "results", "tiny")
        self.sweep.create()
        self.project = folder / "project"
        (self.project / "my code" / "__pycache__").mkdir(parents=True)
        (self.project / "my code" / "__pycache__" / "it.cpython-311.pyc").write_bytes(b"old")
        (self.project / "my code" / "it.py").write_text("print()\n")
        (self.project / "my code" / "again").symlink_to("it.py")
        (self.project / os.fsdecode(b"caf\xe9 \n%41")).write_text("latin")
        (self.project / "run.sh").write_text("true\n")
        (self.project / "run.sh").chmod(0o755)
        subprocess.run(["git", "init", "-q", str(self.project)], check=True)

    def freeze(self) -> FrozenCode:
        return freeze(self.sweep, self.project)

    def profile(self, folder: str = "~/marl") -> Profile:
        path = self.folder / "there.yaml"
        path.write_text(f"ssh: {ALIAS}\nfolder: '{folder}'\npartition: cpu\n")
        return parse_profile(path.read_text(), str(path), "there")

    def push(self, code: FrozenCode, *, replace: bool = False) -> None:
        push(look_there(self.profile(), "tiny").place, self.sweep, code.id, replace=replace)

    def codes(self) -> frozenset[str]:
        return look_there(self.profile(), "tiny").codes

    @property
    def there(self) -> SweepDir:
        """The sweep in the tree on the cluster."""
        return SweepDir(self.server.home / "marl" / "results", "tiny")

    def receive(self, code: FrozenCode) -> FrozenCode:
        told, _ = sent(code)
        folder = self.there.results.parent
        return received(CodeDir.of(self.there, code.id), told, folder)


@pytest.fixture
def laptop(tmp_path: Path, server: Server) -> Laptop:
    return Laptop(tmp_path, server)


def beginnings(packed: bytes) -> list[bytes]:
    """Archives that end where a member does, as tar takes for complete ones, and one that ends anywhere."""
    content = gzip.decompress(packed)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        members = archive.getmembers()
    ends = [member.offset for member in members]
    chosen = [ends[0], ends[1], ends[len(ends) // 2], ends[-1]]
    return [*(gzip.compress(content[:end]) for end in chosen), packed[: len(packed) // 2]]


def test_an_upload_that_is_cut_leaves_nothing(laptop: Laptop, monkeypatch: pytest.MonkeyPatch) -> None:
    code = laptop.freeze()
    (code.path / "written_by_a_run").touch()  # a run may be writing there
    whole = push_code._packed(CodeDir(code.path))
    for part in beginnings(whole):
        with monkeypatch.context() as patch:
            patch.setattr(push_code, "_packed", lambda _, part=part: part)
            with pytest.raises(
                HostError, match=r"(?i)did not come whole|unexpected end of file|unexpected EOF"
            ):
                laptop.push(code)
        assert os.listdir(laptop.there.path / "code") == []
        assert laptop.codes() == frozenset()
    laptop.push(code)
    assert laptop.codes() == {code.id}
    assert laptop.receive(code).cwd == laptop.there.path / "code" / code.id / "tree"
    assert not (laptop.there.path / "code" / code.id / "written_by_a_run").exists()


def test_what_lies_there_in_part_is_sent_again(laptop: Laptop) -> None:
    code = laptop.freeze()
    part = laptop.there.path / "code" / code.id / "tree"
    part.mkdir(parents=True)
    (part / "run.sh").write_text("")
    assert laptop.codes() == frozenset()
    with pytest.raises(DamagedFileError, match="is not the code that was sent"):
        laptop.receive(code)
    laptop.push(code)
    assert laptop.codes() == {code.id}
    laptop.receive(code)
    assert os.listdir(laptop.there.path / "code") == [code.id]


def test_code_that_was_changed_there_is_replaced_on_request_only(laptop: Laptop) -> None:
    code = laptop.freeze()
    laptop.push(code)
    kept = CodeDir.of(laptop.there, code.id)
    program = kept.tree / "run.sh"
    program.chmod(0o755)
    program.write_text("false\n")
    with pytest.raises(DamagedFileError, match=code.id):
        laptop.receive(code)
    laptop.push(code)
    assert program.read_text() == "false\n", "twice is as once"
    (kept.tree / "model.pt").write_text("a run was here")
    laptop.push(code, replace=True)
    laptop.receive(code)
    assert program.read_text() == "true\n"
    assert (kept.tree / "model.pt").exists()
    assert os.listdir(kept.path.parent) == [code.id]
    kept.facts_path.chmod(0o644)
    kept.facts_path.write_text("[]")
    with pytest.raises(DamagedFileError, match=code.id):
        laptop.receive(code)


def test_what_runs_and_python_leave_in_it_is_no_damage(laptop: Laptop) -> None:
    code = laptop.freeze()
    laptop.push(code)
    tree = CodeDir.of(laptop.there, code.id).tree
    (tree / "outputs").mkdir()
    (tree / "outputs" / "log.txt").write_text("a run was here")
    (tree / "my code" / "__pycache__").mkdir(exist_ok=True)
    (tree / "my code" / "__pycache__" / "it.cpython-311.pyc").write_bytes(b"new")
    laptop.receive(code)
    (laptop.freeze().path / "tree" / "my code" / "__pycache__").mkdir()
    assert laptop.freeze().id == code.id


def folders(laptop: Laptop, profile: Profile) -> set[str]:
    """Where a submission, the doctor and a monitor take the profile's folder to be."""
    place = look_there(profile, "tiny").place
    assert profile.address.endswith("there.yaml")
    tree = tree_there(Host(ALIAS), parse_place(profile.address))
    findings = LoginNode(profile).examined()
    told = next(one.found for one in findings if one.name == "Results there")
    assert "can be written" in told
    return {place.folder, tree.removesuffix("/results"), told.partition(": ")[0]}


@pytest.mark.parametrize(
    "folder", ["$WORK/marl", "${WORK}/./marl", "~/work of mine/marl", "work of mine/marl"]
)
def test_one_folder_for_every_command(laptop: Laptop, folder: str) -> None:
    home = laptop.server.home
    (home / ".bash_profile").write_text(
        'echo "Welcome!"; read -r line; echo "quota 12%" >&2\nexport WORK="$HOME/work of mine" EMPTY=\n'
    )
    (home / "work of mine" / "marl" / "results").mkdir(parents=True)
    found = folders(laptop, laptop.profile(folder))
    assert {os.path.normpath(one) for one in found} == {f"{home}/work of mine/marl"}


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("$WORK/marl", r"\$WORK is unset or empty"),
        ("~/$EMPTY/marl", r"\$EMPTY is unset or empty"),
        ("~root/marl", "~root/marl(/results)?: another user's home"),
    ],
)
def test_a_folder_that_is_nowhere_is_said_in_a_line(laptop: Laptop, folder: str, said: str) -> None:
    (laptop.server.home / ".bash_profile").write_text("export EMPTY=\n")
    profile = laptop.profile(folder)
    with pytest.raises(HostError, match=said) as looking:
        look_there(profile, "tiny")
    assert looking.value.hint is not None
    assert "\n" not in str(looking.value)
    with pytest.raises(HostError, match=said):
        tree_there(Host(ALIAS), parse_place(profile.address))
    findings = LoginNode(profile).examined()
    told = next(one for one in findings if one.name == "Results there")
    assert told.verdict is Verdict.PROBLEM
    assert told.found.count("unset or empty") + told.found.count("another user's home") == 1
