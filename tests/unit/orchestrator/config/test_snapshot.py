"""What is kept of a project when it is submitted, and what it is kept as."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import shutil
import stat
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.config.code import own_files, snapshot, worktree
from orchestrator.config.code.key_files import has_key
from orchestrator.config.code.snapshot import freeze, key_notes
from orchestrator.core.errors import DamagedFileError, OrchestrateError
from orchestrator.core.records import parse, plain
from orchestrator.rundir import CodeDir, FrozenCode, SweepDir


class Project:
    """A repository with a sweep beside it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self.root.mkdir()
        self.sweep = SweepDir(folder / "results", "kept")
        self.sweep.create()
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str, cwd: Path | None = None) -> str:
        who = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always"]
        argv = ["git", *who, *arguments]
        done = subprocess.run(argv, cwd=cwd or self.root, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def write(self, name: str, text: str = "") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def commit(self) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message=m")
        return self.git("rev-parse", "HEAD")

    def freeze(self, cwd: str = ".", *, dry: bool = False) -> FrozenCode:
        return freeze(self.sweep, self.root / cwd, dry=dry)

    def kept(self, cwd: str = ".") -> dict[str, str]:
        """Names and contents in the frozen tree; a link as an arrow to its target."""
        return contents(self.freeze(cwd).path / "tree")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def contents(folder: Path) -> dict[str, str]:
    found = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"→ {os.readlink(path)}"
        elif path.is_file():
            found[name] = path.read_text()
    return found


def facts(code: FrozenCode) -> Mapping[str, Any]:
    told: Mapping[str, Any] = CodeDir(code.path).facts()["project"]
    return told


# What is kept


def test_a_project_is_kept_as_it_is_and_not_as_it_was_committed(project: Project) -> None:
    project.write("same", "same")
    project.write("changed", "before")
    project.write("removed", "before")
    project.write("staged", "before")
    commit = project.commit()
    project.write("changed", "now")
    (project.root / "removed").unlink()
    project.write("staged", "now")
    project.git("add", "staged")
    project.write("sub/new", "new")
    assert project.kept() == {"same": "same", "changed": "now", "staged": "now", "sub/new": "new"}
    told = facts(project.freeze())
    assert (told["commit"], told["branch"], told["changed"]) == (commit, "main", True)


def test_the_commit_and_the_kept_changes_give_the_tracked_files(project: Project, tmp_path: Path) -> None:
    project.write("text", "before\n")
    project.write("removed", "x\n")
    (project.root / "binary").write_bytes(bytes(range(256)))
    commit = project.commit()
    project.write("text", "after\n")
    (project.root / "removed").unlink()
    (project.root / "binary").write_bytes(bytes(reversed(range(256))))
    code = project.freeze()
    again = tmp_path / "again"
    project.git("clone", "--quiet", str(project.root), str(again))
    project.git("checkout", "--quiet", commit, cwd=again)
    project.git("apply", str(CodeDir(code.path).changes), cwd=again)
    assert not (again / "removed").exists()
    for name in ("text", "binary"):
        assert (
            (again / name).read_bytes()
            == (code.cwd / name).read_bytes()
            == (project.root / name).read_bytes()
        )


def test_nothing_to_tell_is_no_file(project: Project) -> None:
    project.write("a", "a")
    commit = project.commit()
    code = project.freeze()
    assert not CodeDir(code.path).changes.exists()
    assert (facts(code)["commit"], facts(code)["changed"]) == (commit, False)


def test_a_repository_without_a_commit_is_kept_too(project: Project) -> None:
    project.write("a", "a")
    assert project.kept() == {"a": "a"}
    assert facts(project.freeze())["commit"] is None


names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=20
).filter(lambda name: name not in (".", "..") and name.lower() != ".git" and len(os.fsencode(name)) < 200)
hostile = st.sampled_from(
    [" ", "a\nb", "-rf", "--", "é", "\\", '"', "'; echo", "*", "[a]", "!a", "#a", "a ", "\t", ":(top)a"]
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.dictionaries(hostile | names, st.binary(max_size=50), max_size=6),
    folder=hostile | names,
    tracked=st.booleans(),
)
def test_any_name_and_content_is_kept(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], folder: str, tracked: bool
) -> None:
    project = Project(tmp_path_factory.mktemp("any"))
    inner = project.root / f"{folder}-folder"
    inner.mkdir()
    for name, content in files.items():
        (inner / name).write_bytes(content)
    if tracked:
        project.commit()
    code = project.freeze(inner.name)
    assert code.cwd == code.path / "tree" / inner.name
    linked = {path.name: path.read_bytes() for path in code.cwd.iterdir()}
    assert linked == {name: content for name, content in files.items() if name not in ("__pycache__",)}


def test_a_name_that_is_no_text_is_kept(project: Project) -> None:
    name = os.fsdecode(b"\xff\xfe")
    project.write(name, "odd")
    project.write(name + ".pem", "key")
    code = project.freeze()
    assert (code.cwd / name).read_text() == "odd"
    assert facts(code)["linked"] == {r"\xff\xfe.pem": "may hold a key"}
    assert code.notes == (rf"of {project.root}, linked, not copied: \xff\xfe.pem (may hold a key)",)


def test_a_program_stays_one_and_no_file_is_readable_by_more_people(project: Project) -> None:
    project.write("run.sh", "#!/bin/sh\n").chmod(0o755)
    project.write("private").chmod(0o600)
    project.write("shared").chmod(0o664)
    code = project.freeze()
    modes = {name: stat.S_IMODE((code.cwd / name).stat().st_mode) for name in ("run.sh", "private", "shared")}
    assert modes == {"run.sh": 0o555, "private": 0o400, "shared": 0o444}


@pytest.mark.parametrize(
    ("target", "kept"),
    [
        ("file", "file"),
        ("../../project/folder/file", "file"),
        ("{root}/folder/file", "file"),
        ("{root}", ".."),
        ("./../folder/file", "./../folder/file"),
        ("nowhere", "nowhere"),
        ("../../outside", "{above}/outside"),
        ("/etc/hosts", "/etc/hosts"),
        ("{root}-not", "{root}-not"),
    ],
)
def test_a_link_leads_to_the_copy_of_what_it_leads_to(project: Project, target: str, kept: str) -> None:
    places = {"root": project.root, "above": project.root.parent}
    project.write("folder/file", "here")
    link = project.root / "folder" / "link"
    link.symlink_to(target.format(**places))
    copy = project.freeze().cwd / "folder" / "link"
    assert os.readlink(copy) == kept.format(**places)


def test_a_tracked_folder_that_a_link_replaced_is_the_link(project: Project) -> None:
    project.write("folder/file", "tracked")
    project.write("other/file", "other")
    project.commit()
    shutil.rmtree(project.root / "folder")
    (project.root / "folder").symlink_to("other")
    assert project.kept() == {"folder": "→ other", "other/file": "other"}


def test_what_git_ignores_is_reached_by_a_link(project: Project) -> None:
    project.write(".gitignore", "/data/\n*.so\n__pycache__/\n.*_cache/\n*.egg-info/\n")
    for name in ("data/deep/set", "package/a.py", "package/fast.so", "package/__pycache__/a.pyc"):
        project.write(name, name)
    for name in (".ruff_cache/x", "project.egg-info/PKG-INFO"):
        project.write(name)
    kept = project.kept()
    kept.pop(".gitignore")
    assert kept == {
        "package/a.py": "package/a.py",
        "package/fast.so": f"→ {project.root}/package/fast.so",
        "data": f"→ {project.root}/data",
    }
    code = project.freeze()
    assert code.notes == ()
    assert (code.cwd / "data/deep/set").read_text() == "data/deep/set"


def test_a_folder_with_ignored_and_other_files_is_no_link(project: Project) -> None:
    project.write(".gitignore", "*.tmp\n")
    project.write("both/a.tmp", "ignored")
    project.write("both/a.py", "kept")
    project.write("only/a.tmp", "ignored")
    kept = project.kept()
    assert kept["both/a.py"] == "kept"
    assert kept["both/a.tmp"] == f"→ {project.root}/both/a.tmp"
    assert (project.freeze().cwd / "only/a.tmp").read_text() == "ignored"


def test_the_links_to_ignored_files_are_bounded(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worktree, "_MOST_LINKS", 3)
    project.write(".gitignore", "*.tmp\n")
    for number in range(10):
        project.write(f"{number}.tmp")
    assert sum(text.startswith("→") for text in project.kept().values()) == 3
    assert "git ignores more than 3 files" in project.freeze().notes[0]


def test_large_files_and_keys_are_linked_and_named(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worktree, "LARGEST_FILE", 1 << 20)
    (project.root / "tracked.bin").write_bytes(bytes(2 << 20))
    project.write(".env.example", "KEY=")
    project.commit()
    (project.root / "new.bin").write_bytes(bytes(2 << 20))
    for name in (".env", "sub/.netrc", "server.pem"):
        project.write(name, "secret")
    code = project.freeze()
    linked = {name for name, text in project.kept().items() if text.startswith("→")}
    assert (
        linked == {"tracked.bin", "new.bin", ".env", "sub/.netrc", "server.pem"} == set(facts(code)["linked"])
    )
    assert (code.cwd / "new.bin").stat().st_size == 2 << 20
    (note,) = code.notes
    assert "larger than 1 MiB" in note
    assert all(f"{name} (may hold a key)" in note for name in (".env", "sub/.netrc", "server.pem"))


# In parts, so that this file is not taken for one with keys.
PEM = "-----BEGIN OPENSSH PRIVATE " + "KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAA\n"
HEX = "0123456789abcdef" * 2 + "01234567"
KEYS = {
    **dict.fromkeys(("id_rsa", "id_ed25519", ".git-credentials", ".aws/credentials", ".kube/config"), "x"),
    **dict.fromkeys((".docker/config.json", ".pypirc", ".npmrc", "kaggle.json", "service-account.json"), "x"),
    **dict.fromkeys(("store.p12", ".envrc", "prod.env", "secrets.yaml", "_netrc", "hf_token"), "x"),
    **dict.fromkeys(("a.tfstate", "a.tfvars", ".ssh/config", ".config/gcloud/x.db", ".vault-token"), "x"),
    "notes.txt": PEM,
    "deploy": PEM,
    "account.json": json.dumps({"type": "x", "private_key": PEM}),
    "lab.yaml": "user: me\nwandb_api_key: 0123456789abcdef\n",
    "db.yaml": "url: postgres://me:hunter2@host/db\n",
    "flow.json": '{"user": "me", "password": "hunter2"}',
    "settings.ini": "[default]\nauth_token = aB3dE6gH9jK2mN5pQ8sT1v\n",
    "README.md": "token: ghp_" + "a1B2" * 9,
    "run.sh": "export AWS=AKIA" + "IOSFODNN7EXAMPLZ\n",
    **dict.fromkeys(("token.txt", "api-keys.yaml", "passwords.txt", "prod.secrets.yaml", ".env-prod"), "x"),
    **dict.fromkeys(
        ("prod.env.bak", "id_rsa.old", "deploy_key", "netrc", "my.cnf", "a.gpg", "kubeconfig"), "x"
    ),
    "inline.yaml": "wandb: {api_key: hunter2hunter2}\n",
    "inline.json": '{"wandb": {"api_key": "hunter2hunter2"}}',
    "inline.toml": 'wandb = {api_key = "hunter2hunter2"}\n',
    "next_line.yaml": "wandb:\n  api_key: >-\n    hunter2hunter2\n",
    "job.sbatch": f"#!/bin/bash\nexport WANDB_API_KEY={HEX}\n",
    "env.sh": f"export WANDB_API_KEY={HEX}\n",
    "login.py": f"import wandb\nwandb.login(key='{HEX}')\n",
    "run.ipynb": json.dumps({"source": [f"%env WANDB_API_KEY={HEX}\n", f'wandb.login(key="{HEX}")']}),
    "cluster.yaml": "user:\n  client-key-data: LS0tLS1CRUdJTi" + "BSU0EgUFJJVkFURSBLRVk\n",
    "train.py": 'LOGIN = "hf_' + "aB" * 17 + '"\n',
    "pem.py": f'KEY = """{PEM}"""\n',
}
NO_KEYS = {
    "secrets.py": "import secrets\nprint(secrets.token_hex(8))\n",
    "tokens.py": 'HEADER = "-----BEGIN RSA PRIVATE KEY-----"\nPREFIX = "sk-"\npassword = input()\n',
    "tokenizer.json": json.dumps({"vocab": {"password": 3, "secret": 4, "api_key": 5}, "pad_token": "[PAD]"}),
    "tokenizer_config.json": json.dumps({"bos_token": "<s>", "mask_token": "\u0120m", "auth_token": None}),
    "keys.yaml": "keys: [obs, action]\nkey: observation_encoder_v2\nsort_key: a\ntoken: gpt2\n",
    "conf.yaml": "api_key: ${oc.env:WANDB_API_KEY}\npassword: null\nsecret: ???\nmax_tokens: 1024\n",
    ".env.example": "API_KEY=your-key\n",
    ".env-example": "API_KEY=your-key\n",
    "form.yaml": 'password: "Enter 8 letters"\n',
    "id_rsa.pub": "ssh-rsa AAAA",
    "credentials.py": "",
    "docs.md": "set password: to what sk-learn-contrib-extra-package and Bearer authentication need\n",
    "requirements.txt": "scikit-learn\npypi-simple-index-of-packages==1\n",
    "levels.env.yaml": "level: 1\n",
    "profile.yaml": "backend: skypilot\nsecrets: [WANDB_API_KEY, HF_TOKEN2]\n",
    "profile2.yaml": "secrets:\n  - WANDB_API_KEY\n  - HF_TOKEN2\n",
    ".github/workflows/a.yml": "permissions:\n  id-token: write\nsecrets: inherit\n",
    "references.yaml": "a: {api_key: env:WANDB_KEY2}\napi_key: !env KEY2\ncredentials: configs/creds2.json\n",
    "vocab.json": '{"secret": "S", "token": "T"}',
    "secrets.example.yaml": "api_key: abc\n",
    "keys.md": "AKIA" + "IOSFODNN7EXAMPLE begins as -----BEGIN RSA PRIVATE KEY-----\nexport API_KEY=...\n",
    "keys.sh": "export WANDB_API_KEY=$(cat ~/key) API_KEY=${1}\n",
    "code.py": "api_key = os.environ['KEY2']\nsecret_key = makePrivateKeyOfLength2048(8)\nkey='layer2'\n",
    "README": "export WANDB_API_KEY=abc123\n",
}


@pytest.mark.parametrize("tracked", [True, False])
def test_files_with_keys_are_linked_by_name_or_content(
    project: Project, tracked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "_MOST_KEYS", len(KEYS))
    for name, text in {**KEYS, **NO_KEYS}.items():
        project.write(name, text)
    if tracked:
        project.commit()
    code = project.freeze()
    kept = contents(code.path / "tree")
    assert {name for name, text in kept.items() if text.startswith("→")} == KEYS.keys()
    assert {name: kept[name] for name in NO_KEYS} == NO_KEYS
    assert all(f"{name} (may hold a key)" in code.notes[0] for name in KEYS)
    assert key_notes(project.root) == code.notes
    assert project.freeze(dry=True).notes == code.notes


@pytest.mark.parametrize(
    "text",
    [
        '{"at": "http://x", "data": "' + "ab.cd-" * 40_000 + '"}',
        "eyJ" + "abcdefghijkl-eyJ" * 15_000,
        "sk-" * 80_000,
        "sk-" + "abc-" * 60_000,
        "token: " + "a" * 240_000,
        "a.b-key_" * 30_000 + "=1",
        "api_key" + " " * 240_000,
        "-----BEGIN RSA PRIVATE KEY-----" + "\\n" * 100_000,
    ],
    ids=lambda text: text[:20],
)
@pytest.mark.parametrize("name", ["a.yaml", "a.txt", "a.py"])
def test_no_text_takes_a_search_for_keys_long(name: str, text: str) -> None:
    before = time.process_time()
    has_key(name, text.encode())
    assert time.process_time() - before < 5  # tens of milliseconds; a quadratic search takes minutes


def test_the_diff_has_no_key_either(project: Project) -> None:
    project.write("gone.env", "DB=hunter2\n")
    project.write("lab.yaml", "a: 1\napi_key: hunter2\n")
    project.write("sub b/.netrc", "password hunter2\n")
    project.write("plain.yaml", "a: 1\n")
    project.commit()
    project.write("plain.yaml", "a: 2\n")
    project.write("lab.yaml", "a: 2\n")  # no key any more, but in the commit
    project.write("sub b/.netrc", "password hunter22\n")
    (project.root / "gone.env").unlink()
    code = project.freeze()
    diff = CodeDir(code.path).changes.read_text()
    assert ("+a: 2" in diff, "hunter2" in diff) == (True, False)
    assert {"changes.diff of lab.yaml", "changes.diff of gone.env"} <= facts(code)["left_out"].keys()


def test_a_copy_is_for_the_same_users(project: Project) -> None:
    for name, mode in (("open.py", 0o644), ("mine.py", 0o600), ("shut/inside.py", 0o644)):
        project.write(name, "1\n").chmod(mode)
    project.commit()
    (project.root / "shut").chmod(0o700)
    project.write("open.py", "2\n")
    code = project.freeze()
    files = {path.name: path.stat().st_mode & 0o777 for path in code.path.rglob("*") if path.is_file()}
    assert (files["open.py"], files["mine.py"], files["inside.py"]) == (0o444, 0o400, 0o400)
    assert files["changes.diff"] & 0o077 == 0


def test_what_is_no_file_is_left_out_and_named(project: Project) -> None:
    project.write("pipe")
    project.commit()
    (project.root / "pipe").unlink()
    os.mkfifo(project.root / "pipe")
    assert project.kept() == {}
    assert project.freeze().notes == (f"of {project.root}, left out: pipe (neither a file nor a link)",)


def test_repositories_within_are_kept_with_their_own_rules(project: Project, tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    library = Project(tmp_path / "library")
    library.write("lib.py", "committed")
    library.commit()
    project.git("submodule", "--quiet", "add", str(library.root), "sub")
    project.commit()
    project.write("sub/lib.py", "changed")
    project.write("sub/new.py", "new")
    project.write("nested/.gitignore", "*.tmp\n")
    project.write("nested/a.tmp")
    project.write("nested/a.py", "nested")
    project.git("init", "--quiet", cwd=project.root / "nested")
    kept = project.kept()
    assert {name: kept[name] for name in kept if name.endswith(".py")} == {
        "sub/lib.py": "changed",
        "sub/new.py": "new",
        "nested/a.py": "nested",
    }
    assert not [name for name in kept if "a.tmp" in name or ".git/" in name]
    assert "changed" in CodeDir(project.freeze().path).changes.read_text()


def test_a_submodule_that_was_not_fetched_is_no_obstacle(project: Project, tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    library = Project(tmp_path / "library")
    library.write("lib.py")
    library.commit()
    project.git("submodule", "--quiet", "add", str(library.root), "sub")
    project.commit()
    project.git("submodule", "--quiet", "deinit", "--force", "sub")
    assert set(project.kept()) == {".gitmodules"}


# Results are no code


@pytest.mark.parametrize("name", ["results", "out/my results", "res[1]*", "res ", "re\\s?"])
def test_results_in_the_project_are_never_kept(project: Project, name: str) -> None:
    project.write("train.py", "train")
    project.write("res1.py", "of a similar name")
    results = project.root / name
    for sweep in ("one", "two"):
        SweepDir(results, sweep).create()
        (results / sweep / "runs" / "log").write_text("log")
    project.sweep = SweepDir(results, "one")
    first = project.freeze()
    assert contents(first.path / "tree") == {"train.py": "train", "res1.py": "of a similar name"}
    assert project.freeze() == first


@pytest.mark.parametrize("how", ["ignored", "tracked"])
def test_results_are_not_kept_whatever_git_makes_of_them(project: Project, how: str) -> None:
    project.write("train.py", "train")
    project.sweep = SweepDir(project.root / "results", "one")
    project.write("results/one/runs/log", "log")
    if how == "ignored":
        project.write(".gitignore", "/results/\n")
    project.commit()
    assert set(project.kept()) - {".gitignore"} == {"train.py"}


def test_other_results_trees_in_no_commit_are_linked(project: Project) -> None:
    project.write("train.py", "train")
    for name in ("index.tsv", "ledger/0001.json", "notes.txt"):
        project.write(f"reference/speed/{name}", "tracked")
    project.commit()
    sweep = "older/speed/runs/0/sent/results/speed"
    for top in ("older/speed", sweep, "reference/speed"):
        project.write(f"{top}/index.tsv", "tracked")
        for name in ("ledger/0002.json", "code/1/tree/train.py", ".env"):
            project.write(f"{top}/{name}", "untracked")
    (project.root / "older/best").symlink_to("speed")
    kept = project.kept()
    assert {name for name, text in kept.items() if not text.startswith("→")} == {
        "train.py",
        *(f"reference/speed/{name}" for name in ("index.tsv", "ledger/0001.json", "notes.txt")),
    }
    assert {name: text for name, text in kept.items() if text.startswith("→")} == {
        "older/best": "→ speed",
        "older/speed": f"→ {project.root}/older/speed",
    }
    first = project.freeze()
    assert [note.split(": ", 1)[1] for note in first.notes] == [
        "older/speed (results of a sweep)",
        "reference/speed/ (results of a sweep, of which git tracks a part)",
    ]
    project.write("older/speed/runs/1/log", "more")
    assert project.freeze() == first


def test_a_results_folder_that_is_the_project_keeps_its_code(project: Project) -> None:
    project.write("train.py", "train")
    for sweep in ("one", "two"):
        SweepDir(project.root, sweep).create()
        (project.root / sweep / "grids" / "0001.yaml").write_text("name: x\n")
    project.sweep = SweepDir(project.root, "one")
    assert project.kept() == {"train.py": "train"}
    assert project.kept() == {"train.py": "train"}


def test_a_call_from_within_the_results_starts_there(project: Project) -> None:
    project.write("train.py", "train")
    project.sweep = SweepDir(project.root / "results", "one")
    project.sweep.create()
    code = project.freeze("results/one/runs")
    assert code.cwd == project.root / "results/one/runs"
    assert "is part of the results" in code.notes[0]


# Where there is no project


def test_without_a_repository_the_folder_is_used_as_it_is(tmp_path: Path) -> None:
    sweep = SweepDir(tmp_path / "results", "kept")
    code = freeze(sweep, tmp_path)
    assert (code.cwd, code.python_path) == (tmp_path, (code.path / "ours" / "modules.zip",))
    assert code.notes == (
        f"the code in {tmp_path} is not copied (it is in no git repository): "
        "later edits affect queued and resumed runs",
    )
    assert (code.path / "ours" / "jobs" / "conf" / "experiment" / "gpu.yaml").is_file()
    assert (code.path / "ours" / "orchestrator" / "templates" / "profiles").is_dir()
    assert "jobs/worker/worker.py" in zipfile.ZipFile(code.python_path[0]).namelist()
    assert len(list(code.path.rglob("*"))) < 100, "a cluster limits a user's number of files"
    assert not list(code.path.rglob("__pycache__"))
    assert CodeDir(code.path).facts()["project"] is None


def test_without_git_the_folder_is_used_as_it_is(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    code = project.freeze()
    assert code.cwd == project.root
    assert "git is not installed" in code.notes[0]


def test_a_broken_repository_is_used_as_it_is(project: Project) -> None:
    project.write("a")
    project.commit()
    (project.root / ".git" / "index").write_bytes(b"DIRCnonsense" * 10)
    code = project.freeze()
    assert code.cwd == project.root
    assert "git fails there (fatal: " in code.notes[0]


def test_another_owner_is_no_obstacle(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write("a", "a")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(subprocess.CalledProcessError):
        project.git("status")
    assert project.kept() == {"a": "a"}


def test_a_git_hook_does_not_mislead(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write("a", "a")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    assert project.kept() == {"a": "a"}


def test_frozen_code_is_not_frozen_as_a_project(project: Project) -> None:
    project.write("a", "a")
    project.sweep = SweepDir(project.root / "results", "one")
    first = project.freeze()
    again = freeze(SweepDir(project.root / "results", "two"), first.cwd)
    assert again.cwd == first.cwd
    assert "is part of the frozen code" in again.notes[0]


# Bounds


@pytest.mark.parametrize(("name", "bound"), [("_MOST_FILES", 10), ("_MOST_BYTES", 1000)])
def test_too_large_a_project_is_refused_with_the_way_out(
    project: Project, monkeypatch: pytest.MonkeyPatch, name: str, bound: int
) -> None:
    monkeypatch.setattr(snapshot, name, bound)
    with pytest.raises(OrchestrateError, match="the code to keep with the sweep has") as raised:
        project.freeze()
    assert ".gitignore" in str(raised.value.hint)
    assert not (project.sweep.path / "code").exists()


def test_a_repository_that_takes_git_too_long_is_refused(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(worktree, "_PATIENCE_S", 0.2)
    with pytest.raises(OrchestrateError, match="git took more than"):
        project.freeze()


def test_a_folder_that_python_cannot_search_is_refused(project: Project) -> None:
    project.sweep = SweepDir(project.root.parent / "a:b", "kept")
    with pytest.raises(OrchestrateError, match="Python searches no folder with ':' in its name"):
        project.freeze()
    assert not project.sweep.path.exists()


# What it is kept as


def test_a_dry_run_tells_the_same_and_writes_nothing(project: Project) -> None:
    project.write("train.py", "train")
    before = contents(project.sweep.results)
    told = project.freeze(dry=True)
    assert contents(project.sweep.results) == before
    assert not told.path.exists()
    assert project.freeze() == told == project.freeze(dry=True)


def test_the_same_content_is_kept_once(project: Project) -> None:
    file = project.write("train.py", "one")
    project.commit()
    first = project.freeze()
    os.utime(file, (0, 0))
    assert project.freeze() == first
    project.write("train.py", "two")
    second = project.freeze()
    file.chmod(0o755)
    third = project.freeze()
    project.git("commit", "--quiet", "--all", "--message=m")
    fourth = project.freeze()
    assert len({first.id, second.id, third.id, fourth.id}) == 4
    project.write("train.py", "one")
    file.chmod(0o644)
    project.git("reset", "--quiet", "--soft", "HEAD^")
    assert project.freeze() == first
    assert len(list((project.sweep.path / "code").iterdir())) == 4
    assert (first.cwd / "train.py").read_text() == "one"


def test_a_kept_file_that_was_changed_is_refused(project: Project) -> None:
    project.write("train.py", "one")
    code = project.freeze()
    (code.cwd / "train.py").chmod(0o644)
    (code.cwd / "train.py").write_text("two")
    with pytest.raises(DamagedFileError, match="has changed since it was stored") as raised:
        project.freeze()
    assert str(code.path) in str(raised.value.hint)
    shutil.rmtree(code.path)
    assert (project.freeze().cwd / "train.py").read_text() == "one"


def test_what_runs_leave_beside_the_code_is_no_change(project: Project) -> None:
    project.write("train.py", "one")
    code = project.freeze()
    (code.cwd / "output.csv").write_text("1")
    assert project.freeze() == code


def test_a_draft_of_a_killed_command_line_goes_away(project: Project) -> None:
    project.write("train.py", "one")
    left = project.sweep.path / "code" / ".0123456789abcdef.abc.tmp"
    (left / "tree").mkdir(parents=True)
    code = project.freeze()
    assert [path.name for path in (project.sweep.path / "code").iterdir()] == [code.id]


def change_while_copying(project: Project, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Let the first ``times`` copies find another content than the look before."""
    real, left = snapshot._marks, iter(range(times))

    def marks(entries: Any, into: Path | None = None) -> dict[str, str]:
        if into is not None and (number := next(left, None)) is not None:
            project.write("train.py", f"changed {number}")
        return real(entries, into)

    monkeypatch.setattr(snapshot, "_marks", marks)


def test_a_change_while_copying_is_seen(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write("train.py", "one")
    change_while_copying(project, monkeypatch, times=1)
    code = project.freeze()
    assert (code.cwd / "train.py").read_text() == "changed 0"
    assert project.freeze(dry=True) == code
    assert [path.name for path in (project.sweep.path / "code").iterdir()] == [code.id]


def test_files_that_never_rest_are_an_error(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write("train.py", "one")
    change_while_copying(project, monkeypatch, times=100)
    with pytest.raises(OrchestrateError, match="files change while they are being copied"):
        project.freeze()
    assert list((project.sweep.path / "code").iterdir()) == []


def test_an_empty_folder_of_the_call_is_there(project: Project) -> None:
    project.write("a")
    (project.root / "empty" / "deeper").mkdir(parents=True)
    assert project.freeze("empty/deeper").cwd.is_dir()


def test_it_survives_json(project: Project) -> None:
    project.write(".env", "x")
    code = project.freeze(dry=True)
    assert parse(FrozenCode, plain(code)) == code


# Modules


def test_folders_on_pythons_path_are_those_of_the_copy(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("src/mine.py")
    project.write(".gitignore", ".venv\n")
    project.write(".venv/lib/theirs.py")
    entries = [project.root / "src", project.root / ".venv/lib", project.root / "absent"]
    monkeypatch.setattr(sys, "path", ["", *map(str, entries), *sys.path])
    code = project.freeze()
    assert code.python_path == (code.path / "ours" / "modules.zip", code.path / "tree" / "src")


def test_folders_that_pythonpath_names_elsewhere_stay_on_it(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("src/mine.py")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr(sys, "path", ["", str(project.root / "src"), str(elsewhere), *sys.path])
    monkeypatch.setenv("PYTHONPATH", f"{project.root / 'src'}:{elsewhere}")
    code = project.freeze()
    assert code.python_path == (code.path / "ours" / "modules.zip", code.path / "tree" / "src", elsewhere)


class Editable:
    """Finds one module, as the finder does that an editable installation leaves."""

    def __init__(self, module: str, path: Path) -> None:
        self._module, self._path = module, path

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_file_location(name, self._path) if name == self._module else None


def install_editable(module: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave what pip leaves of an editable installation of a trainer in that module."""
    about = site / f"{module.stem}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module.stem}\nVersion: 1.0\n")
    (about / "direct_url.json").write_text('{"dir_info": {"editable": true}, "url": "file:///x"}')
    (about / "entry_points.txt").write_text(f"[orchestrate.trainers]\nmine = {module.stem}:SPEC\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Editable(module.stem, module)])


def test_a_package_installed_as_editable_is_that_of_the_copy(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_editable(project.write("lib/my_trainer.py"), tmp_path / "site", monkeypatch)
    code = project.freeze()
    assert code.path / "tree" / "lib" in code.python_path
    assert code.notes == ()


def test_a_trainer_of_another_project_is_named(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "elsewhere" / "my_trainer.py"
    module.parent.mkdir()
    module.touch()
    install_editable(module, tmp_path / "site", monkeypatch)
    assert project.freeze().notes == (
        f"the code of my_trainer in {module.parent} is not copied: "
        "later edits affect queued and resumed runs",
    )


def test_a_file_of_the_program_that_has_vanished_takes_no_other_with_it(tmp_path: Path) -> None:
    here, link, pipe = tmp_path / "here.py", tmp_path / ".#lock.py", tmp_path / "pipe.py"
    here.write_text("x = 1\n")
    link.symlink_to("somebody@machine.4711")
    os.mkfifo(pipe)
    with own_files.pack({path.name: path for path in (here, link, pipe)}) as packed:
        assert zipfile.ZipFile(packed).read("here.py") == b"x = 1\n"
