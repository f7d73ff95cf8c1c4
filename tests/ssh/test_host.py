"""One machine behind ssh: a shared connection, words that arrive as they were, errors that say what to do."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.core.errors import HostError, UnreachableError
from orchestrator.core.machine import ssh
from orchestrator.core.machine.ssh import Host, remote_command
from tests.helpers import free_port, wait_for
from tests.ssh.server import ALIAS, Server


@pytest.fixture
def host(server: Server) -> Host:
    return Host(ALIAS)


def sessions(server: Server) -> int:
    """How often somebody logged in."""
    return (server.folder / "sshd.log").read_text().count("Accepted publickey")


def test_a_program_there_has_the_clusters_home_and_one_login_serves_all(server: Server, host: Host) -> None:
    assert host.run(["pwd"]).output == f"{server.home}\n"
    assert host.run(["sh", "-c", "echo $HOME; cat", "x"], b"word").output == f"{server.home}\nword"
    assert host.run(["sh", "-c", "echo no >&2; exit 7"]).code == 7
    assert sessions(server) == 1
    host.release()
    host.run(["true"])
    assert sessions(server) == 2


def master(host: Host) -> int:
    """The process that holds the shared connection."""
    found = re.search(r"pid=(\d+)", host._control("check").stderr)
    assert found is not None
    return int(found[1])


def test_one_look_at_the_connection_serves_a_question(server: Server, host: Host) -> None:
    program, calls = server.bin / "ssh", server.folder / "calls"
    program.write_text(program.read_text().replace("exec", f'echo "$*" >>{calls}\nexec', 1))
    host.connect()
    calls.unlink()
    host.run(["true"])
    assert [line.startswith("-O check") for line in calls.read_text().splitlines()] == [True, False]


def test_of_many_who_need_a_login_one_does_it(server: Server, host: Host) -> None:
    with ThreadPoolExecutor(6) as pool:
        answers = pool.map(lambda number: Host(ALIAS).run(["echo", str(number)]).output, range(6))
        assert list(answers) == [f"{number}\n" for number in range(6)]
    assert sessions(server) == len(server.sessions()) == 1


def test_a_login_at_a_terminal_is_as_by_hand_and_the_others_wait_for_it(
    server: Server, host: Host, tmp_path: Path
) -> None:
    """A key with a passphrase: ssh asks for it, what it says meanwhile is seen, and it asks once."""
    key = ["-f", str(server.laptop / ".ssh" / "id_ed25519")]
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "open sesame", *key], check=True)
    config = server.laptop / ".ssh" / "config"
    config.write_text(f"{config.read_text()}  PermitLocalCommand yes\n  LocalCommand echo Welcome >&2\n")
    with pytest.raises(HostError, match="login refused"):
        host.run(["true"])
    ours, theirs = os.openpty()
    told = f"print(Host({ALIAS!r}).run(['echo', 'word']).output)"
    program = f"from orchestrator.core.machine.ssh import Host; {told}"
    at_terminal = subprocess.Popen(
        ["setsid", "--ctty", sys.executable, "-c", program], stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    seen = b""
    try:
        while b"passphrase" not in seen:
            seen += os.read(ours, 1000)
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(host.run, ["echo", "other"])
            with pytest.raises(TimeoutError):
                other.result(0.4)
            os.write(ours, b"open sesame\n")
            assert other.result(30).output == "other\n"
        while b"word" not in seen.partition(b"Welcome")[2]:
            seen += os.read(ours, 1000)
        assert at_terminal.wait(120) == 0
    finally:
        at_terminal.kill()
        at_terminal.wait()
    os.close(ours)
    assert seen.count(b"passphrase") == sessions(server) == 1


def test_a_login_that_somebody_else_never_ends(
    server: Server, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as hurry, host._turn():
        hurry.setattr(ssh, "PATIENCE_S", 0.2)
        with pytest.raises(UnreachableError, match="has not finished its login"):
            Host(ALIAS).run(["true"])
    assert Host(ALIAS).run(["true"]).code == 0


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    words=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12), max_size=4)
)
def test_words_arrive_as_they_were(host: Host, words: list[str]) -> None:
    answer = host.run(["printf", "%s\\0", "first", *words])
    assert answer.output.split("\0")[:-1] == ["first", *words]


@pytest.mark.parametrize(
    "line",
    ["RemoteCommand uptime", "RequestTTY force", "LocalForward 127.0.0.1:1 127.0.0.1:1", "LogLevel QUIET"],
)
def test_what_people_configure_for_their_terminals(server: Server, line: str) -> None:
    config = server.laptop / ".ssh" / "config"
    config.write_text(f"{config.read_text()}  {line}\n")
    assert Host(ALIAS).run(["echo", "word"]).output == "word\n"
    Host(ALIAS).release()
    server.stop()
    with pytest.raises(UnreachableError, match="cannot be reached"):
        Host(ALIAS).run(["true"])


@given(st.lists(st.text(), min_size=1))
def test_no_login_shell_sees_anything_that_it_could_read_otherwise(words: list[str]) -> None:
    """Some know no newline in quotes, some other escapes: there is nothing of that kind."""
    words = [word.replace("\0", "").encode(errors="replace").decode() for word in words]
    sent = remote_command(words, "mark", "~/folder")
    assert re.fullmatch(r"sh -c 'eval \"\$\(printf %b \"\$0\"\)\"' '[A-Za-z0-9_./:=,@+\\-]*'", sent)


def test_what_a_login_prints_is_no_answer(server: Server, host: Host) -> None:
    server.banner("Welcome!\nquota: $HOME 12%")
    assert host.run(["echo", "word"]).output == "word\n"
    with host.open(["cat"]) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"line\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"line\n"


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("~/new", "new"),
        ("$PLACE/new", "place/new"),
        ("${PLACE}/new", "place/new"),
        ("~/$(touch x)", "$(touch x)"),
        ("~/`touch x`", "`touch x`"),
        ("~/${PLACE:-x}", "${PLACE:-x}"),
        ("~/a\"b 'c", "a\"b 'c"),
    ],
)
def test_folders_may_hold_variables_and_nothing_else(
    server: Server, host: Host, folder: str, expected: str
) -> None:
    server.stop()
    server.start({"PLACE": f"{server.home}/place"})
    (server.home / expected).mkdir(parents=True)
    assert host.run(["pwd"], folder=folder).output == f"{server.home}/{expected}\n"
    assert not (server.home / "x").exists()


def test_a_link_that_is_cut(server: Server, host: Host) -> None:
    host.connect()
    with host.open(["cat"]) as process:
        assert server.cut()
        assert process.stdout is not None
        assert process.stdout.read() == b""
    assert host.run(["echo", "again"]).output == "again\n"
    host.connect()
    server.stop()
    with pytest.raises(UnreachableError, match="cannot be reached"):
        host.run(["true"])


def test_a_shared_connection_that_died_unseen_is_opened_anew(server: Server, host: Host) -> None:
    """As when the laptop slept: its ssh is there, and what it is connected to is not."""
    host.connect()
    stopped = master(host)
    os.kill(stopped, signal.SIGSTOP)
    assert server.cut()
    os.kill(stopped, signal.SIGCONT)
    assert host.run(["echo", "word"]).output == "word\n"
    assert sessions(server) == 2


def test_a_link_that_is_cut_while_a_program_runs(server: Server, host: Host) -> None:
    """ssh says nothing then, and the program may be through with what it was asked."""
    host.connect()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(host.run, ["sh", "-c", "touch begun; exec sleep 60"])
        wait_for((server.home / "begun").exists, what="the program")
        os.kill(master(host), signal.SIGKILL)
        with pytest.raises(UnreachableError, match="the connection was cut") as error:
            asked.result(30)
    assert error.value.begun


def test_a_connection_whose_process_hangs_is_replaced(
    server: Server, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.connect()
    stopped = master(host)
    os.kill(stopped, signal.SIGSTOP)
    try:
        with monkeypatch.context() as hurried:
            hurried.setattr(ssh, "_CONTROL_S", 1.0)
            assert host.run(["echo", "word"]).output == "word\n"
    finally:
        os.kill(stopped, signal.SIGKILL)
    assert sessions(server) == 2
    assert master(host) != stopped


def test_a_command_that_does_not_come_back_disturbs_no_other(server: Server, host: Host) -> None:
    with host.open(["cat"]) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with pytest.raises(UnreachableError, match="no answer within"):
            host.run(["sleep", "60"], patience=0.5)
        process.stdin.write(b"word\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"word\n"
    assert host.run(["true"]).code == 0
    assert sessions(server) == 1


def test_a_program_that_is_killed_leaves_no_wall_of_numbers(host: Host) -> None:
    said = host.run(["sh", "-c", "echo why >&2; kill -9 $$"])
    assert (said.code, said.errors) == (137, "why\n")


def test_a_host_key_that_changed(server: Server, host: Host) -> None:
    server.stop()
    server.new_host_key()
    server.start()
    with pytest.raises(HostError, match="host key has changed") as error:
        host.run(["true"])
    assert error.value.hint is not None
    assert "ssh-keygen -R" in error.value.hint


def test_a_host_key_that_nobody_has_seen(server: Server, host: Host) -> None:
    (server.laptop / ".ssh" / "known_hosts").unlink()
    with pytest.raises(HostError, match="its host key is unknown"):
        host.run(["true"])


def test_nobody_lets_us_in(server: Server, host: Host) -> None:
    (server.folder / "authorized_keys").write_text("")
    with pytest.raises(HostError, match="login refused"):
        host.run(["true"])


@pytest.mark.parametrize("name", ["", "-oProxyCommand=x", "a b", "a;b", "a\nb", "a/b", "host:path", "$(x)"])
def test_names_of_no_machine(name: str) -> None:
    with pytest.raises(HostError, match="cannot name a machine"):
        Host(name)


def test_no_ssh_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="no program 'ssh'"):
        Host("cluster").run(["true"])


def test_nobody_listens(server: Server) -> None:
    config = server.laptop / ".ssh" / "config"
    config.write_text(config.read_text() + f"Host nobody\n  HostName 127.0.0.1\n  Port {free_port()}\n")
    with pytest.raises(UnreachableError, match="cannot be reached"):
        Host("nobody").run(["true"])
    with pytest.raises(HostError, match="no such machine"):
        Host("no.such.machine.invalid").run(["true"])


def test_a_folder_for_connections_that_others_can_use(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = Path("/tmp") / f"orchestrate-test-{os.getpid()}"
    (short / "orchestrate").mkdir(parents=True, mode=0o755)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    with pytest.raises(HostError, match="that others can use"):
        Host(ALIAS).run(["true"])
    subprocess.run(["rm", "-r", str(short)], check=True)
