"""A real SkyPilot on this machine: a laptop with a HOME and an API server of its own, and two clouds.

*Slurm*: a real cluster (tests/slurm) behind a real sshd (tests/ssh), `infra: slurm/test`. What is launched
there runs to its end. *AWS*: moto's server on loopback answers for it, and a price list of a few machines
lies where SkyPilot keeps the one that it downloads: `--dryrun` chooses as it would with Amazon's own.

An instance of a test asks for both cores of a node (`cpus: 2`): SkyPilot's daemons of two instances end each
other where they see each other's processes, and a node of the cluster is a PID namespace. There are two such
nodes, cpu1 and cpu2.

    python -m tests.sky.bed        # a SkyPilot to try things on, until Ctrl-C
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from tests import warm
from tests.conftest import FOREIGN
from tests.helpers import PATIENCE_S, free_port, wait_for
from tests.sky.catalog import write_catalog
from tests.slurm.cluster import Cluster
from tests.slurm.daemons import BOOT, ClusterError, require_parts, search_path
from tests.ssh.server import Server

_ROLE = "skypilot-v1"
CLUSTER = "test"  # the Slurm cluster's name in SkyPilot: `infra: slurm/test`

# SkyPilot fetches uv for a node from its maker's site, and with it a Python 3.10. Here it gets the uv that is
# installed beside this Python, and this Python; uv keeps what it downloads from PyPI where it does otherwise.
_CURL = """#!/bin/sh
case "$*" in
  */uv/install.sh*) echo 'mkdir -p "$UV_INSTALL_DIR" && cp {bin}/uv "$UV_INSTALL_DIR/uv"' ;;
  *) exec {curl} "$@" ;;
esac
"""
_UV = """#!/bin/bash
export UV_CACHE_DIR={cache} UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=hardlink {exports}
words=()
for word in "$@"; do [ "$word" = 3.10 ] && word={python}; words+=("$word"); done
exec {uv} "${{words[@]}}"
"""
# ssh finds a user's files by the system's list of users, whatever HOME says.
_SSH = """#!/bin/sh
exec unshare --mount sh -c 'mount --bind {passwd} /etc/passwd && exec {ssh} "$@"' ssh "$@"
"""


class Laptop:
    """A HOME where SkyPilot keeps all that it knows, and the port of its API server. It knows no cloud."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sky-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.home = self.folder / "home"
        self.port = free_port()
        self._user = secrets.token_hex(4)
        for path in (self.home, self.temporary):
            path.mkdir()
        self._reaper: subprocess.Popen[bytes] | None = None

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    @property
    def env(self) -> dict[str, str]:
        """What a program's environment needs to find this SkyPilot."""
        return {
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "SKYPILOT_API_SERVER_LOCAL_PORT": str(self.port),
            "SKYPILOT_USER_ID": self._user,
            "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
        }

    def guard(self) -> None:
        """From now on, `stop` or this process's death ends whatever runs in the folder, and removes it."""
        sockets = f"/tmp/sky_ssh_{self._user}"  # SkyPilot's place for ssh's shared connections
        reaper = [sys.executable, "-I", "-S", Path(__file__).with_name("reaper.py"), self.folder, sockets]
        self._reaper = subprocess.Popen(reaper, stdin=subprocess.PIPE, start_new_session=True)

    def stop(self) -> None:
        if self._reaper is not None:
            self._reaper.communicate()
            self._reaper = None

    def sky(self, *arguments: str, code: int = 0, timeout: float = PATIENCE_S) -> str:
        """What SkyPilot's own command says, on both outputs."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "sky.client.cli.command", *arguments],
            env={**_plain_environment(), **self.env},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == code, (
            f"sky {shlex.join(arguments)}: {done.returncode}\n{done.stdout}\n{self._server_log()}"
        )
        return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)

    def _server_log(self) -> str:
        log = self.home / ".sky" / "api_server" / "server.log"
        return "\n".join(log.read_text().splitlines()[-20:]) if log.exists() else ""


class Bed(Laptop):
    """A laptop that knows both clouds, with its API server up. ``home`` is the laptop's HOME."""

    def __init__(self) -> None:
        require_parts()
        super().__init__()
        self.server = Server(self.folder / "ssh")
        self.home = self.server.laptop
        nodes = self.server.home
        nodes.chmod(0o755)
        etc = {
            "passwd": _users(nodes),
            # A login shell forgets the PATH that it was given; nodes share this machine's /tmp.
            "profile": f"export PATH={self.bin}:$PATH TMPDIR={self.temporary}\n",
        }
        self.slurm = Cluster(self.folder / "slurm", accounting=False, etc=etc)
        self.slurm.folder.mkdir()
        self._moto: subprocess.Popen[bytes] | None = None
        self._warm: subprocess.Popen[bytes] | None = None
        self.moto = 0

    @property
    def bin(self) -> Path:
        """What nodes have before all other programs."""
        return self.folder / "bin"

    @property
    def env(self) -> dict[str, str]:
        path = f"{self.server.bin}:{search_path()}"
        return {**super().env, "PATH": path, "WARM_SKYPILOT": str(self.folder / "skypilot")}

    def start(self) -> None:
        """Start everything; nothing is left behind when that fails."""
        self.guard()
        try:
            self.slurm.start()
            self._put_programs()
            self.connect()
            self._start_moto()
            self._write_home()
            parent = Path(self.env["WARM_SKYPILOT"])
            self._warm = warm.start_parent(parent, self.env)
            wait_for(parent.exists, BOOT, "SkyPilot's warm parent to listen")
            wait_for(self._moto_answers, BOOT, "moto to listen")
            self._fill_account()
            self._start_server()  # it looks which clouds answer as soon as it is up
            self.sky("check", "slurm", "aws")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        if self._moto is not None:
            self._moto.kill()
            self._moto.wait()
        self.server.stop()
        self.slurm.stop()
        super().stop()
        if self._warm is not None:
            self._warm.communicate()

    def clean(self) -> None:
        """No instance and idle nodes, whatever a test left."""
        # The command would take seconds to say that there is none.
        with closing(sqlite3.connect(self.home / ".sky" / "state.db")) as database:
            left = [name for (name,) in database.execute("select name from clusters")]
        if left:
            self.sky("down", "--yes", "--purge", *left)
        self.slurm.clean()

    def connect(self) -> None:
        """Have the Slurm cluster's login node answer; ``server.stop()`` cuts it off."""
        etc = self.slurm.folder / "etc"
        binds = " && ".join(f"mount --bind {etc}/{name} /etc/{name}" for name in ("passwd", "profile"))
        self.server.start(self.slurm.env, ["unshare", "--mount", "sh", "-c", f'{binds} && exec "$@"', "sh"])

    def _start_server(self) -> None:
        """Try other ports: the server takes a second one, where any connection of this machine may end."""
        for last in (False, False, True):
            try:
                self.sky("api", "start")
                return
            except AssertionError as error:
                if last or "already in use" not in str(error):
                    raise
            self.port = free_port()

    def _put_programs(self) -> None:
        self.bin.mkdir()
        uv = Path(sys.executable).with_name("uv")
        curl = shutil.which("curl")
        if not uv.exists() or curl is None:
            raise ClusterError(
                "the SkyPilot bed needs uv beside this Python (make setup) and curl, see tests/packages.sh"
            )
        _put(self.bin / "curl", _CURL.format(bin=self.bin, curl=curl))
        exports = shlex.join(f"{name}={text}" for name, text in os.environ.items() if _of_downloads(name))
        python = Path(warm.FRESH).resolve()
        cache = subprocess.run(
            [uv, "cache", "dir"], stdout=subprocess.PIPE, text=True, check=True
        ).stdout.strip()
        _put(self.bin / "uv", _UV.format(cache=shlex.quote(cache), exports=exports, python=python, uv=uv))
        passwd = self.folder / "passwd"
        passwd.write_text(_users(self.home))
        _put(self.server.bin / "ssh", _SSH.format(passwd=passwd, ssh=shutil.which("ssh")))
        _put(self.server.bin / "aws", f'#!/bin/sh\nexec {sys.executable} -P -m awscli "$@"\n')

    def _start_moto(self) -> None:
        self.moto = port = free_port()
        argv = [Path(sys.executable).with_name("moto_server"), "-H", "127.0.0.1", "-p", str(port)]
        with open(self.folder / "moto.out", "wb") as output:
            env = {**_plain_environment(), **self.env}
            self._moto = subprocess.Popen(argv, env=env, stdout=output, stderr=output)

    def _fill_account(self) -> None:
        """What SkyPilot starts nothing without: a way out of the network, and a role (it would wait long)."""
        import boto3

        account = {"endpoint_url": f"http://127.0.0.1:{self.moto}", "region_name": "us-east-1"}
        keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
        ec2, iam = (boto3.client(service, **account, **keys) for service in ("ec2", "iam"))
        gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
        for table in ec2.describe_route_tables()["RouteTables"]:
            where = {"RouteTableId": table["RouteTableId"], "DestinationCidrBlock": "0.0.0.0/0"}
            ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=table["VpcId"])
            ec2.create_route(GatewayId=gateway, **where)
        iam.create_role(RoleName=_ROLE, AssumeRolePolicyDocument="{}")
        iam.create_instance_profile(InstanceProfileName=_ROLE)
        iam.add_role_to_instance_profile(InstanceProfileName=_ROLE, RoleName=_ROLE)

    def _moto_answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.moto)) == 0

    def aws_at(self, port: int) -> None:
        """From now on AWS is what answers at this port of loopback; `moto` is where it is at first."""
        text = f"[default]\nregion = us-east-1\nendpoint_url = http://127.0.0.1:{port}\n"
        (self.home / ".aws" / "config").write_text(text)

    def _write_home(self) -> None:
        host = f"Host {CLUSTER}\n  HostName 127.0.0.1\n  Port {self.server.port}\n  User root\n"
        files = {
            ".slurm/config": f"{host}  IdentityFile {self.home}/.ssh/id_ed25519\n  IdentitiesOnly yes\n",
            # Where nodes keep what is theirs alone; /tmp, if nobody says so.
            ".sky/config.yaml": f"slurm: {{cluster_configs: {{{CLUSTER}: {{tmpdir: {self.temporary}}}}}}}\n",
            ".aws/credentials": "[default]\naws_access_key_id = testing\naws_secret_access_key = testing\n",
        }
        for name, text in files.items():
            path = self.home / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        self.aws_at(self.moto)
        write_catalog(self.home)


def _users(home: Path) -> str:
    """/etc/passwd where root lives in ``home``."""
    lines = Path("/etc/passwd").read_text().splitlines(keepends=True)
    return "".join(
        [f"root:x:0:0:root:{home}:/bin/bash\n", *(one for one in lines if not one.startswith("root:"))]
    )


def _put(path: Path, script: str) -> None:
    path.write_text(script)
    path.chmod(0o755)


def _of_downloads(name: str) -> bool:
    """Whether a variable says from where and how this machine downloads packages."""
    return name.startswith("UV_") or name.upper() in (
        "SSL_CERT_FILE",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
    )


def _plain_environment() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if not name.startswith(FOREIGN)}


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started = time.monotonic()
    try:
        bed = Bed()
        bed.start()
    except ClusterError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    try:
        sys.stdout.write(f"# up after {time.monotonic() - started:.1f} s; Ctrl-C ends it\n")
        sys.stdout.writelines(f"export {name}={shlex.quote(value)}\n" for name, value in bed.env.items())
        sys.stdout.flush()
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        bed.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
