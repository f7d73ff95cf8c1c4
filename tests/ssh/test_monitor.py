"""A cluster under observation: TensorBoard over the link, a link that is cut, and nothing left of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from orchestrator.config.code.snapshot import freeze
from orchestrator.config.locations import parse_place, tree_there
from orchestrator.core.errors import HostError, NotFoundError, UnreachableError
from orchestrator.core.machine.ssh import Host
from orchestrator.rundir import SweepDir
from orchestrator.ui.monitor import ConnectionState, Monitor, connection
from tests.helpers import count_runs, finish, make_sweep, wait_for, work
from tests.ssh.server import ALIAS, Server

# Stands in for TensorBoard where the real one's start would be waited for again and again.
STAND_IN = """
import sys
from http.server import HTTPServer, SimpleHTTPRequestHandler
assert sys.argv[1:3] == ["-m", "tensorboard.main"], sys.argv
server = HTTPServer((sys.argv[sys.argv.index("--host") + 1], 0), SimpleHTTPRequestHandler)
print(f"TensorBoard 2 at http://127.0.0.1:{server.server_port}/ (Press CTRL+C to quit)", flush=True)
server.serve_forever()
"""


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process looks more often than the command does."""
    monkeypatch.setattr(connection, "INTERVAL_S", 0.3)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> SweepDir:
    """Two finished runs."""
    folder = tmp_path_factory.mktemp("trained")
    sweep = make_sweep(folder / "results", count_runs(folder / "audit", 2, steps=4, seconds=0.0))
    assert work(sweep, slots=2) == 0
    return sweep


@pytest.fixture
def sweep(server: Server, trained: SweepDir, tmp_path: Path) -> SweepDir:
    """These runs on the cluster, where a profile would put them, with something for TensorBoard."""
    results = server.home / "orchestrate" / "results"
    shutil.copytree(trained.results, results)
    sweep = SweepDir(results, trained.name)
    (sweep.run(sweep.run_ids()[0]).attempt(1).path / "events.out.tfevents.1.cluster").touch()
    pushed = freeze(sweep, tmp_path)  # as a submission does it
    assert [path.name for path in pushed.python_path] == ["modules.zip"]
    python = server.folder / "python" / "python3"
    python.parent.mkdir()
    # It has the packages that this program needs, and not this program: no installation answers.
    packages = sysconfig.get_path("purelib")
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    login = f'echo "Welcome!"; read -r line; export PATH={python.parent}:"$PATH"\n'
    (server.home / ".bash_profile").write_text(login)
    return sweep


@pytest.fixture
def board(server: Server, sweep: SweepDir) -> Path:
    """The environment beside the results; its Python starts a stand-in for TensorBoard."""
    python = server.home / "orchestrate" / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    script = server.folder / "stand_in.py"
    script.write_text(STAND_IN)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n')
    python.chmod(0o755)
    return python


def on_cluster(server: Server) -> dict[int, str]:
    """Processes that a login on the cluster started, by id; sshd's own are not among them."""
    found = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                mine = f"HOME={server.home}".encode() in (process / "environ").read_bytes().split(b"\0")
                words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if mine:
                found[int(process.name)] = words
    return found


def nothing_left(server: Server) -> None:
    wait_for(lambda: not on_cluster(server), what=f"an empty cluster, found {on_cluster(server)}")


def logged_out(server: Server) -> None:
    """The shared connection is gone too, and not only its name here."""
    assert not Host(ALIAS).is_open
    wait_for(lambda: not server.sessions(), what="the end of the login")


def get(url: str) -> int:
    with urllib.request.urlopen(url, timeout=600) as answer:
        return int(answer.status)


def answers(url: str) -> bool:
    try:
        return get(url) == 200
    except (urllib.error.URLError, ConnectionError):
        return False


def closed(url: str) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", urlsplit(url).port or 0)) != 0


def until(monitor: Monitor, what: str, **expected: bool) -> ConnectionState:
    """What is known as soon as there is an address (``url``), or a ``problem``, or none."""

    def look() -> ConnectionState | None:
        seen = monitor.seen()
        found = {name: getattr(seen, name) is not None for name in expected}
        return seen if found == expected else None

    found = wait_for(look, timeout=600, what=what)
    assert found is not None
    return found


@contextmanager
def command(*words: str | Path) -> Iterator[subprocess.Popen[str]]:
    """`orchestrate monitor` as a process of its own."""
    argv = [sys.executable, "-m", "orchestrator.ui.cli", "monitor", *map(str, words)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def address(process: subprocess.Popen[str]) -> str:
    """Where it says that TensorBoard is."""
    assert process.stdout is not None
    for line in process.stdout:
        if "http://" in line:
            return line.split()[-1]
    raise AssertionError("it never told an address")


def test_one_look(server: Server, sweep: SweepDir) -> None:
    with command(ALIAS, "--once") as process:
        output = process.communicate(timeout=600)[0]
    assert process.returncode == 0
    assert "2/2 done" in output
    assert f"{ALIAS}  looked " in output
    nothing_left(server)
    logged_out(server)
    with command(f"{ALIAS}:orchestrate/results", "--json") as process:
        looked = json.loads(process.communicate(timeout=600)[0])
    assert {run["run_id"] for run in looked["runs"]} == set(sweep.run_ids())
    assert looked["sweeps"][0]["counts"] == {"done": 2}


def test_the_real_tensorboard_is_reached_and_ends(server: Server, sweep: SweepDir) -> None:
    environment = server.home / "orchestrate" / ".venv"
    environment.symlink_to(Path(sys.executable).parents[1])
    with Monitor(parse_place(ALIAS), Path("results")) as monitor:
        url = until(monitor, "TensorBoard's address", url=True).url
        assert url is not None
        assert get(f"{url}data/runs") == 200
        assert any("tensorboard.main" in words for words in on_cluster(server).values())
    nothing_left(server)
    assert closed(url)
    logged_out(server)


def test_a_login_of_somebody_else_s_stays(server: Server, board: Path) -> None:
    Host(ALIAS).connect()
    with Monitor(parse_place(ALIAS), Path("results")) as monitor:
        until(monitor, "TensorBoard's address", url=True)
    nothing_left(server)
    assert Host(ALIAS).is_open
    Host(ALIAS).release()


def test_after_a_kill_nothing_is_left(server: Server, board: Path) -> None:
    with command(ALIAS) as process:
        url = address(process)
        assert get(url) == 200
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        nothing_left(server)
        assert closed(url)
    Host(ALIAS).release()


@pytest.mark.nightly(but=["SIGTERM"])
@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name
)
def test_it_leaves_when_it_is_told_to(server: Server, sweep: SweepDir, number: signal.Signals) -> None:
    with command(ALIAS, "--no-tensorboard") as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        os.kill(process.pid, number)
        assert finish(process) == 0  # type: ignore[arg-type]
    nothing_left(server)
    logged_out(server)


def test_a_link_that_is_cut_comes_back_at_the_same_address(server: Server, board: Path) -> None:
    with Monitor(parse_place(ALIAS), Path("results")) as monitor:
        before = until(monitor, "TensorBoard's address", url=True)
        assert before.url is not None
        first = set(on_cluster(server))
        server.stop()
        lost = until(monitor, "a word about the link", problem=True)
        assert isinstance(lost.problem, UnreachableError)
        assert lost.snapshot is not None
        wait_for(lambda: not first & set(on_cluster(server)), what="the end of what the cut link had there")
        assert not answers(before.url)
        server.start()
        after = until(monitor, "the link and TensorBoard", problem=False, url=True)
        assert after.url == before.url
        assert get(before.url) == 200
    nothing_left(server)
    assert closed(before.url)


def test_the_command_outlives_a_link_that_is_cut(server: Server, sweep: SweepDir) -> None:
    with command(ALIAS, "--no-tensorboard") as process:
        assert process.stdout is not None
        told = (line.split(maxsplit=2) for line in process.stdout)
        links = (words for _, name, words in told if name == ALIAS)
        assert next(links) == "answers\n"
        server.cut()
        assert next(links).startswith("unknown since ")
        assert next(links) == "answers\n"


def test_where_a_login_is_refused_it_waits_for_somebody_s(server: Server, sweep: SweepDir) -> None:
    keys = server.folder / "authorized_keys"
    with Monitor(parse_place(ALIAS), Path("results"), tensorboard=False) as monitor:
        allowed = keys.read_text()
        keys.write_text("")
        server.cut()
        refused = until(monitor, "a word about the link", problem=True)
        wait_for(lambda: "login refused" in str(monitor.seen().problem), what="the refusal")
        assert refused.snapshot is not None
        keys.write_text(allowed)
        Host(ALIAS).connect()
        until(monitor, "the link", problem=False)
    nothing_left(server)


def test_this_machine_is_watched_without_ssh(server: Server, sweep: SweepDir, own_world: Path) -> None:
    argv = ["local", "--results", sweep.results, "--no-tensorboard"]
    with command(*argv) as process:
        assert process.stdout is not None
        assert "answers" in process.stdout.readline()
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split() or [""]
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        wait_for(
            lambda: not child or not Path(f"/proc/{child}").exists(), what="the end of the program that looks"
        )


def test_what_cannot_be_watched_is_said_at_once(server: Server, sweep: SweepDir, tmp_path: Path) -> None:
    place = parse_place(f"{ALIAS}:no/such")
    with pytest.raises(NotFoundError, match="no results tree there"), Monitor(place, tmp_path):
        pass
    with (
        pytest.raises(NotFoundError, match="there is no folder"),
        Monitor(parse_place("local"), tmp_path / "no"),
    ):
        pass
    nothing_left(server)
    server.stop()
    with pytest.raises(UnreachableError, match="cannot be reached"), Monitor(parse_place(ALIAS), tmp_path):
        pass


def refusal(server: Server) -> HostError:
    with pytest.raises(HostError) as error, Monitor(parse_place(ALIAS), Path("results")):
        pass
    nothing_left(server)
    return error.value


def test_a_cluster_without_the_program_says_what_was_tried(server: Server, sweep: SweepDir) -> None:
    shutil.rmtree(sweep.path / "code")
    python = server.folder / "python" / "python3"
    python.write_text("#!/bin/sh\necho \"No module named 'orchestrator'\" >&2; exit 1\n")
    own = server.home / "orchestrate" / ".venv" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.write_text("#!/bin/sh\nprintf 'Unknown option: -P\\nTry -h\\n' >&2; exit 2\n")
    own.chmod(0o755)
    refused = refusal(server)
    assert "no orchestrate can answer there" in str(refused)
    assert "python3: No module named 'orchestrator'" in str(refused)
    assert f"{own.parent.parent.parent}/results/../.venv/bin/python: older than Python 3.11" in str(refused)
    assert "submit a sweep there" in str(refused.hint)


def test_a_cluster_without_a_shell_of_ours_says_so(server: Server, sweep: SweepDir) -> None:
    server.stop()
    programs = server.folder / "few"
    programs.mkdir()
    for name in ("sh", "pwd"):
        (programs / name).symlink_to(f"/bin/{name}")
    server.start({"PATH": str(programs)})
    assert "no orchestrate can answer there" in str(refusal(server))


def test_code_that_came_with_a_copy_is_never_started(server: Server, sweep: SweepDir) -> None:
    (sweep.path / ".synced").mkdir()
    python = server.folder / "python" / "python3"
    python.write_text('#!/bin/sh\necho "PYTHONPATH=$PYTHONPATH" >&2; exit 1\n')
    assert "python3: PYTHONPATH=;" in f"{refusal(server)};".replace(")", ";")


def test_the_tree_of_an_alias_is_where_it_is_usually(server: Server, sweep: SweepDir) -> None:
    host, place = Host(ALIAS), parse_place(ALIAS)
    assert tree_there(host, place) == str(sweep.results)
    (server.home / "sky_workdir" / "results").mkdir(parents=True)
    assert tree_there(host, place) == str(server.home / "sky_workdir" / "results")
    with pytest.raises(NotFoundError, match="no results tree there"):
        tree_there(host, parse_place(f"{ALIAS}:other"))
