"""A real Grid Engine cell on this machine: a master and one host of four slots, on loopback, in one folder.

Its daemons end with the process that started them. An installed Grid Engine of the machine stays as it is.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.helpers import free_port
from tests.slurm.daemons import BOOT, ClusterError, Daemons

PROGRAMS = Path("/usr/lib/gridengine")
SHARED = Path("/usr/share/gridengine")
SLOTS = 4
# Seconds between SIGUSR2 and SIGKILL of a job that is deleted.
NOTIFY_S = 30

_HOST = {"hostname": "{host}", "load_scaling": "NONE", "complex_values": f"slots={SLOTS}"}
_HOST |= dict.fromkeys(("user_lists", "xuser_lists", "projects", "xprojects"), "NONE")
_HOST |= {"usage_scaling": "NONE", "report_variables": "NONE"}
_ENVIRONMENT = {
    "pe_name": "smp",
    "slots": "99",
    "user_lists": "NONE",
    "xuser_lists": "NONE",
    "start_proc_args": "NONE",
    "stop_proc_args": "NONE",
    "allocation_rule": "$pe_slots",
    "control_slaves": "FALSE",
    "job_is_first_task": "TRUE",
    "urgency_slots": "min",
    "accounting_summary": "FALSE",
    "qsort_args": "NONE",
}
_QUEUE = {
    "qname": "all.q",
    "hostlist": "{host}",
    "seq_no": "0",
    "nsuspend": "1",
    "suspend_interval": "00:05:00",
    "priority": "0",
    "min_cpu_interval": "00:05:00",
    "processors": "UNDEFINED",
    "qtype": "BATCH",
    "pe_list": "smp",
    "rerun": "FALSE",
    "slots": str(SLOTS),
    "tmpdir": "/tmp",
    "shell": "/bin/sh",
    "shell_start_mode": "posix_compliant",
    "notify": f"00:00:{NOTIFY_S:02}",
    "initial_state": "default",
    **dict.fromkeys(("load_thresholds", "suspend_thresholds", "ckpt_list", "prolog", "epilog"), "NONE"),
    **dict.fromkeys(("starter_method", "suspend_method", "resume_method", "terminate_method"), "NONE"),
    **dict.fromkeys(("owner_list", "user_lists", "xuser_lists", "subordinate_list"), "NONE"),
    **dict.fromkeys(("complex_values", "projects", "xprojects", "calendar"), "NONE"),
    **{
        f"{kind}_{what}": "INFINITY"
        for what in ("rt", "cpu", "fsize", "data", "stack", "core", "rss", "vmem")
        for kind in "sh"
    },
}
# No login shells: what root's own files do on this machine is no part of the tests, and may take a minute.
_SETTINGS = {"min_uid": "0", "min_gid": "0", "load_report_time": "00:00:01", "login_shells": "none"}
_SCHEDULE = {"schedule_interval": "0:0:1", "flush_submit_sec": "1", "flush_finish_sec": "1"}


@dataclass
class Cell:
    """A cell that runs from `start` on. ``folder``: an empty folder where all of it lives."""

    folder: Path
    ports: tuple[int, int]
    host: str = field(default_factory=socket.gethostname)

    def __post_init__(self) -> None:
        self.daemons = Daemons(self.folder, self.env)

    @classmethod
    def in_temporary_folder(cls) -> Cell:
        """A cell that is not started yet, where this machine can run one."""
        if not (PROGRAMS / "sge_qmaster").exists() or not (PROGRAMS / "sge_execd").exists():
            raise ClusterError("Grid Engine is not here. On Debian and Ubuntu: tests/packages.sh install")
        if os.geteuid() != 0:
            raise ClusterError("Grid Engine's daemons need root: run this as root, in a container, say")
        folder = Path(tempfile.mkdtemp(prefix="gridengine-", dir="/tmp"))
        folder.chmod(0o755)
        return cls(folder, (free_port(), free_port()))

    @property
    def env(self) -> dict[str, str]:
        """What a program's environment needs to find this cell."""
        master, execution = map(str, self.ports)
        return {
            "SGE_ROOT": str(self.folder),
            "SGE_CELL": "default",
            "SGE_QMASTER_PORT": master,
            "SGE_EXECD_PORT": execution,
        }

    def start(self) -> None:
        """Return when a job would start; nothing is left behind if this fails."""
        try:
            self._write_files()
            self.daemons.start("qmaster", [PROGRAMS / "sge_qmaster"], {"SGE_ND": "1"})
            self.daemons.wait_listening("qmaster", self.ports[0])
            self.run("qconf", "-as", self.host)
            self._add("-Ae", _HOST)
            self._add("-Ap", _ENVIRONMENT)
            self._add("-Aq", _QUEUE)
            self._add("-Msconf", {**_pairs(self.run("qconf", "-ssconf")), **_SCHEDULE})
            self.daemons.start("execd", [PROGRAMS / "sge_execd"], {"SGE_ND": "1"})
            self.daemons.wait_listening("execd", self.ports[1])
            # Of a host that has not reported yet the architecture is unknown, and it gets no jobs.
            reported = re.compile(rf"^{re.escape(self.host)}\s+lx-", re.MULTILINE)
            self.daemons.wait(lambda: reported.search(self.run("qhost")), BOOT, "the host to report")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process of the cell and its jobs, and remove its folder."""
        if self.daemons.runs("execd"):
            self.run("qdel", "-f", "-u", "*", check=False)
        self.daemons.end_all()
        shutil.rmtree(self.folder, ignore_errors=True)

    def tasks(self) -> list[str]:
        """The ids of all tasks that wait or run."""
        lines = self.run("qstat", "-g", "d").splitlines()[2:]
        return [f"{line.split()[0]}.{line.split()[-1]}" for line in lines]

    def clean(self) -> None:
        """Delete all jobs at once, and wait until the queue is empty."""
        if self.tasks():
            self.run("qdel", "-f", "-u", "*", check=False)
            self.daemons.wait(lambda: not self.tasks(), BOOT, "an empty queue")

    def run(self, *argv: str, check: bool = True) -> str:
        """What one of Grid Engine's commands prints."""
        done = subprocess.run(
            [PROGRAMS / argv[0], *argv[1:]],
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            timeout=600,
        )
        if check and done.returncode:
            raise ClusterError(f"{' '.join(argv)}: exit {done.returncode}: {done.stderr}{done.stdout}")
        return done.stdout

    def _add(self, option: str, values: Mapping[str, str]) -> None:
        file = self.folder / "to-add"
        file.write_text(_lines(values).replace("{host}", self.host))
        self.run("qconf", option, str(file))

    def _write_files(self) -> None:
        common, spool = self.folder / "default" / "common", self.folder / "spool"
        for path in (common, spool / "qmaster" / "job_scripts", spool / "execd"):
            path.mkdir(parents=True)
        for name in ("bin", "lib", "utilbin"):
            (self.folder / name).mkdir()
            (self.folder / name / "lx-amd64").symlink_to(PROGRAMS)
        (self.folder / "util").symlink_to(SHARED / "util")
        where = f"{common};{spool / 'qmaster'}"
        start = {"admin_user": "none", "default_domain": "none", "ignore_fqdn": "true"}
        start |= {"spooling_method": "classic", "spooling_lib": "libspoolc", "spooling_params": where}
        start |= {"binary_path": str(PROGRAMS), "qmaster_spool_dir": str(spool / "qmaster")}
        start |= {"security_mode": "none", "listener_threads": "2", "worker_threads": "2"}
        (common / "bootstrap").write_text(_lines({**start, "scheduler_threads": "1"}))
        (common / "act_qmaster").write_text(f"{self.host}\n")
        # Loopback has several names, and Grid Engine takes a host for another if they do not agree.
        (common / "host_aliases").write_text(" ".join([self.host, *sorted(_names(self.host))]) + "\n")
        usual = _pairs((SHARED / "default-configuration").read_text())
        settings = {**usual, **_SETTINGS, "execd_spool_dir": str(spool / "execd")}
        (self.folder / "configuration").write_text(_lines(settings))
        self.run("spoolinit", "classic", "libspoolc", where, "init")
        self.run("spooldefaults", "configuration", str(self.folder / "configuration"))
        self.run("spooldefaults", "complexes", str(SHARED / "util" / "resources" / "centry"))
        self.run("spooldefaults", "usersets", str(SHARED / "util" / "resources" / "usersets"))
        self.run("spooldefaults", "managers", "root")


def _names(host: str) -> set[str]:
    """Other names of the addresses that this host's name has."""
    address = socket.gethostbyname(host)
    lines = [line.split("#")[0].split() for line in Path("/etc/hosts").read_text().splitlines()]
    return {name for line in lines if line and line[0] == address for name in line[1:]} - {host}


def _lines(values: Mapping[str, str]) -> str:
    return "".join(f"{name} {value}\n" for name, value in values.items())


def _pairs(text: str) -> dict[str, str]:
    lines = (line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#"))
    return {name: value.strip() for name, value in lines}
