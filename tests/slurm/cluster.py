"""A real Slurm cluster on this machine: accounting, two CPU nodes, a node with two fake GPUs, and preemption.

Every node is a PID, mount and UTS namespace with a host name and a boot id of its own: what runs on one node
cannot see what runs on another, and cutting a node's power ends everything on it. All of it lives on loopback
and in one folder under /tmp, beside whatever Slurm the machine has; it dies with the process that started it.

    python -m tests.slurm.cluster        # a cluster to try things on, until Ctrl-C
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.helpers import PATIENCE_S
from tests.slurm import config
from tests.slurm.config import CGROUP, NODES, Ports
from tests.slurm.daemons import BOOT, ClusterError, Daemons, Node, require_parts, search_path


@dataclass
class Cluster:
    """A test cluster, or the plan of one until `start`.

    ``folder``: an empty folder where all of it lives. Its path has no spaces, is short (a socket's path ends
    at 107 characters), and every user may look into it (munged insists). ``etc``: what files of /etc say on
    its nodes, by name.
    """

    folder: Path
    accounting: bool = True
    settings: dict[str, object] = field(default_factory=lambda: dict(config.DEFAULTS))
    etc: Mapping[str, str] = field(default_factory=dict)
    ports: Ports = field(default_factory=Ports.free)
    nodes: dict[str, Node] = field(default_factory=dict)
    limits: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.daemons = Daemons(self.folder, self.env)

    @classmethod
    def in_temporary_folder(cls, **options: Any) -> Cluster:
        """A plan with a folder of its own, where this machine can run a cluster."""
        require_parts()
        folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
        folder.chmod(0o755)
        return cls(folder, **options)

    @property
    def env(self) -> dict[str, str]:
        """What a program's environment needs to find this cluster."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self) -> None:
        """Start everything and return when all nodes are idle; nothing is left behind when that fails."""
        try:
            self._write_files()
            self._start_munged()
            if self.accounting:
                self._start_database()
                self.slurmdbd_start()
                self._sacctmgr("add", "cluster", "test")
                self._sacctmgr("add", "account", "lab")
                self._sacctmgr("add", "user", "root", "account=lab")
                self._sacctmgr("modify", "user", "root", "set", "DefaultAccount=lab")
            self.slurmctld_start()
            for name in NODES:
                self.slurmd_start(name)
            self.wait_idle(BOOT)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process of the cluster and remove its folder."""
        for node in self.nodes.values():
            node.switch_off()
        self.nodes.clear()
        self.daemons.end_all()
        self._remove_cgroups()
        shutil.rmtree(self.folder, ignore_errors=True)

    def clean(self) -> None:
        """As after `start`: daemons up, default options, no limits, no jobs, idle nodes. Quick when so."""
        if self.accounting and not self.daemons.runs("slurmdbd"):
            self.slurmdbd_start()
        if not self.daemons.runs("slurmctld"):
            self.slurmctld_start()
        self.set_config(**{**dict.fromkeys(self.settings), **config.DEFAULTS})
        self.set_limits(**dict.fromkeys(self.limits, -1))
        for name in NODES:
            if name not in self.nodes or not self.daemons.runs(f"slurmd.{name}"):
                self.slurmd_start(name)
        self.cancel_all()
        for name, state in self.node_states().items():
            if re.match("down|drain|fail", state):
                # Refused where the node came back by itself meanwhile.
                self.run("scontrol", "update", f"NodeName={name}", "State=RESUME", check=False)
        self.wait_idle()
        for node in self.nodes.values():
            node.kill(set(node.processes().values()) - {"slurmd"})
            self.daemons.wait(lambda n=node: set(n.processes().values()) == {"slurmd"}, BOOT, "an empty node")

    def cancel_all(self, timeout: float = PATIENCE_S) -> None:
        """Cancel every job, without the time to end that Slurm gives, and wait until the queue is empty."""
        if jobs := {job.split("_")[0] for job in self.queue()}:
            self.run("scancel", "--signal=KILL", "--full", *jobs, check=False)  # they may end meanwhile
            self.run("scancel", *jobs)
            self.daemons.wait(lambda: not self.queue(), timeout, "an empty queue")

    def wait_idle(self, timeout: float = PATIENCE_S) -> None:
        """Wait until every node is idle."""

        def idle() -> bool:
            try:
                states = self.node_states()
            except ClusterError:
                return False  # slurmctld does not answer yet
            return set(states) == set(NODES) and set(states.values()) == {"idle"}

        self.daemons.wait(idle, timeout, "idle nodes")

    def set_config(self, **settings: object) -> None:
        """Change options of slurm.conf under the running cluster (see `config.DEFAULTS`; None: not there)."""
        if all(self.settings.get(key) == value for key, value in settings.items()):
            return
        self.settings.update(settings)
        self._write_slurm_conf()
        # Some options are read at the start only.
        self.slurmctld_restart()
        for name in self.nodes:
            self.slurmd_kill(name, "slurmd")
            self.slurmd_start(name)

    def set_limits(self, **limits: int) -> None:
        """Limits of user root in account lab, as ``MaxSubmitJobs=20``; -1 takes one away."""
        if not limits:
            return
        items = [f"{key}={value}" for key, value in limits.items()]
        self._sacctmgr("modify", "user", "root", "where", "account=lab", "set", *items)
        self.limits = {key for key in {*self.limits, *limits} if limits.get(key) != -1}

    def run(
        self, *argv: str | Path, timeout: float = PATIENCE_S, check: bool = True, cwd: Path | None = None
    ) -> str:
        """What one of Slurm's commands prints; `ClusterError` when it fails, unless ``check`` is false."""
        done = subprocess.run(
            [str(item) for item in argv],
            env={**os.environ, "PATH": search_path(), **self.env},
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=cwd,
        )
        if check and done.returncode:
            raise ClusterError(f"{' '.join(map(str, argv))}: exit {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def node_states(self) -> dict[str, str]:
        """Node → state in Slurm's words, as "idle" or "down*"."""
        lines = self.run("sinfo", "--Node", "--noheader", "--format=%N %T").split("\n")
        return dict(line.split() for line in lines if line)

    def queue(self) -> list[str]:
        """The ids of all jobs that are pending, running or completing, one for each element of an array."""
        return self.run("squeue", "--array", "--noheader", "--format=%i").split()

    def job(self, job_id: str) -> dict[str, str]:
        """What `scontrol show job` says of one job or array element; empty when Slurm forgot it."""
        text = self.run("scontrol", "--oneliner", "show", "job", job_id, check=False)
        return dict(re.findall(r"(\S+?)=(\S*)", text.split("\n")[0]))

    def accounted(self, job_id: str, *fields: str) -> list[tuple[str, ...]]:
        """One tuple of ``fields`` for every time the job, or an element of the array, was started."""
        options = ["--duplicates", "--allocations", "--noheader", "--parsable2"]
        text = self.run("sacct", *options, f"--jobs={job_id}", f"--format={','.join(fields)}")
        return [tuple(line.split("|")) for line in text.split("\n") if line]

    def sdiag(self) -> dict[str, dict[str, int]]:
        """How many messages slurmctld took since `sdiag_reset`: "types" by message type, "users" by user."""
        types, _, users = self.run("sdiag").partition("Remote Procedure Call statistics by user")
        count = re.compile(r"^\s+(\w+)\s+\(.*?\)\s+count:(\d+)", re.MULTILINE)
        return {
            "types": {name: int(number) for name, number in count.findall(types)},
            "users": {name: int(number) for name, number in count.findall(users)},
        }

    def sdiag_reset(self) -> None:
        self.run("sdiag", "--reset")

    def slurmd_start(self, name: str) -> None:
        """Start the node's slurmd; where the node is off switch it on before, with another boot id."""
        if name not in self.nodes:
            self.nodes[name] = Node.switch_on(self.daemons, name)
        self.nodes[name].start_slurmd(self.daemons)

    def slurmd_kill(self, name: str, what: Literal["node", "daemons", "slurmd"] = "node") -> None:
        """SIGKILL on a node.

        "node": a power cut, every process there dies. "daemons": slurmd and slurmstepd; the jobs' processes
        go on though Slurm has lost them. "slurmd": it alone, and Slurm finds the jobs when it is back.
        """
        if what == "node":
            self.nodes.pop(name).switch_off()
        else:
            self.nodes[name].kill({"slurmd", "slurmstepd"} if what == "daemons" else {"slurmd"})
            self.nodes[name].wait_slurmd()

    def node_down(self, name: str) -> None:
        """Tell Slurm at once what it would find out 15 to 30 s after a node's death."""
        self.run("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=test")

    def slurmctld_stop(self, number: int = signal.SIGTERM) -> None:
        """End slurmctld (SIGKILL: a crash): Slurm's commands fail or wait until `slurmctld_start`."""
        self.daemons.end("slurmctld", number)

    def slurmctld_start(self) -> None:
        self.daemons.start("slurmctld", ["slurmctld", "-D"])
        self.daemons.wait_listening("slurmctld", self.ports.slurmctld)

    def slurmctld_restart(self, number: int = signal.SIGTERM) -> None:
        """End slurmctld with this signal and start it again on the state it left."""
        self.slurmctld_stop(number)
        self.slurmctld_start()

    def slurmdbd_stop(self, number: int = signal.SIGTERM) -> None:
        """End slurmdbd: sacct fails, and slurmctld keeps what it has to tell."""
        self.daemons.end("slurmdbd", number)

    def slurmdbd_start(self) -> None:
        env = {"MYSQL_UNIX_PORT": str(self.folder / "database.socket")}
        self.daemons.start("slurmdbd", ["slurmdbd", "-D"], env)
        self.daemons.wait_listening("slurmdbd", self.ports.slurmdbd)

    def _start_munged(self) -> None:
        key, socket = self.folder / "munge.key", self.folder / "munge.socket"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        files = {"key-file": key, "socket": socket, "pid-file": "munge.pid", "log-file": "munge.log"}
        options = [f"--{option}={self.folder / path}" for option, path in files.items()]
        seed = f"--seed-file={self.folder / 'munge.seed'}"
        self.daemons.start("munged", ["munged", "--foreground", *options, seed])
        self.daemons.wait_listening("munged", socket)

    def _start_database(self) -> None:
        options = [*config.database_options(self.folder), "--user=root"]
        self.run("mariadb-install-db", *options, "--skip-test-db", "--skip-name-resolve", timeout=BOOT)
        socket = self.folder / "database.socket"
        self.daemons.start("mariadbd", ["mariadbd", *options, "--skip-networking", f"--socket={socket}"])
        self.daemons.wait_listening("mariadbd", socket)

    def _remove_cgroups(self) -> None:
        """What task/cgroup left; folders that another cluster uses refuse to go."""
        for node in NODES:
            top = CGROUP / f"slurm_{node}"
            for folder in [*sorted(top.rglob("*/"), reverse=True), top]:
                try:
                    folder.rmdir()
                except OSError:
                    pass  # not there, or in use

    def _sacctmgr(self, *argv: str) -> None:
        self.run("sacctmgr", "--immediate", *argv)

    def _write_files(self) -> None:
        (self.folder / "state").mkdir()
        self._write_slurm_conf()
        (self.folder / "gres.conf").write_text(config.gres_conf())
        (self.folder / "cgroup.conf").write_text(config.cgroup_conf())
        slurmdbd_conf = self.folder / "slurmdbd.conf"
        slurmdbd_conf.touch(0o600)  # slurmdbd refuses it otherwise
        slurmdbd_conf.write_text(config.slurmdbd_conf(self.folder, self.ports))
        hosts = f"{Path('/etc/hosts').read_text()}\n127.0.0.1 {' '.join(NODES)}\n"
        (self.folder / "etc").mkdir()
        for name, text in {"hosts": hosts, **self.etc}.items():
            (self.folder / "etc" / name).write_text(text)

    def _write_slurm_conf(self) -> None:
        text = config.slurm_conf(self.folder, self.ports, self.settings, self.accounting)
        (self.folder / "slurm.conf").write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.slurm.cluster", description="A Slurm to try things on."
    )
    parser.add_argument("--no-accounting", action="store_true", help="without slurmdbd: no sacct, no limits")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for slurm.conf")
    arguments = parser.parse_args()
    settings = {**config.DEFAULTS, **dict(item.split("=", 1) for item in arguments.set)}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started = time.monotonic()
    try:
        cluster = Cluster.in_temporary_folder(accounting=not arguments.no_accounting, settings=settings)
        cluster.start()
    except ClusterError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    try:
        sys.stdout.write(
            f"# up after {time.monotonic() - started:.1f} s; logs are there too; Ctrl-C ends it\n"
        )
        sys.stdout.writelines(f"export {name}={value}\n" for name, value in cluster.env.items())
        sys.stdout.flush()
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        cluster.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
