"""The test cluster's configuration files, as texts."""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

NODES = ("cpu1", "cpu2", "gpu1")

# Everything that a test may want otherwise: `Cluster.set_config(MaxArraySize=10)`; None leaves an option out.
DEFAULTS: Mapping[str, object] = {
    "KillWait": 5,
    "MinJobAge": 300,
    "MaxArraySize": 1001,
    "MaxJobCount": 10000,
    "SlurmdTimeout": 10,
    "SlurmctldTimeout": 30,
    "MessageTimeout": 10,
    "JobRequeue": 1,
    "AccountingStorageEnforce": "associations,limits,qos",
    "AccountingStoreFlags": "job_comment",
    "SchedulerParameters": "sched_interval=1,batch_sched_delay=0,bf_interval=1",
    # Counts and kills whole process trees. proctrack/pgid would miss what has a session of its own, which the
    # cgroups of a real site do not miss.
    "ProctrackType": "proctrack/linuxproc",
    "JobAcctGatherType": "jobacct_gather/linux",
    "JobAcctGatherFrequency": "task=1",
    "JobAcctGatherParams": "OverMemoryKill",
    "TaskPlugin": "task/none",
    "PreemptType": "preempt/partition_prio",
    "PreemptMode": "REQUEUE",
}


# Memory limits kept by the kernel instead of a look every second. The kernel kills one process, and when the
# script has ended Slurm says OUT_OF_MEMORY. Needs `CGROUP` writable.
KERNEL_MEMORY: Mapping[str, object] = {"TaskPlugin": "task/cgroup", "JobAcctGatherParams": None}
CGROUP = Path("/sys/fs/cgroup/memory")


@dataclass(frozen=True)
class Ports:
    slurmctld: int
    slurmdbd: int
    slurmd: Mapping[str, int]

    @classmethod
    def free(cls) -> Ports:
        """Ports that nobody listens at, below those that the kernel gives to outgoing connections."""
        found: set[int] = set()
        while len(found) < 2 + len(NODES):
            port = random.randrange(20000, 32000)
            with socket.socket() as sock:
                try:
                    sock.bind(("127.0.0.1", port))
                except OSError:
                    continue
            found.add(port)
        ports = iter(found)
        return cls(next(ports), next(ports), dict(zip(NODES, ports, strict=True)))


def slurm_conf(folder: Path, ports: Ports, settings: Mapping[str, object], accounting: bool) -> str:
    """slurm.conf: two CPU nodes under a plain and a preempting partition, a node with two fake L4 GPUs."""
    lines = [
        "ClusterName=test",
        "SlurmctldHost=localhost(127.0.0.1)",
        f"SlurmctldPort={ports.slurmctld}",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        "CredType=cred/munge",
        # A requeued job waits as long as the credential of its former start is valid: 120 s unless told, and
        # no less than 5 s.
        f"AuthInfo=socket={folder}/munge.socket,cred_expire=5",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/spool.%n",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmdPidFile={folder}/slurmd.%n.pid",
        f"SlurmctldLogFile={folder}/slurmctld.log",
        f"SlurmdLogFile={folder}/slurmd.%n.log",
        "SlurmdParameters=config_overrides",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "MpiDefault=none",
        "ReturnToService=2",
        "GresTypes=gpu",
        # Clusters on one machine share the kernel's control groups, which are named for node and job.
        f"FirstJobId={ports.slurmctld * 1000}",
        *(f"{key}={value}" for key, value in settings.items() if value is not None),
    ]
    if accounting:
        lines += [
            "AccountingStorageType=accounting_storage/slurmdbd",
            "AccountingStorageHost=localhost",
            f"AccountingStoragePort={ports.slurmdbd}",
            f"AccountingStoragePass={folder}/munge.socket",
            "AccountingStorageTRES=gres/gpu",
        ]
    for name, port in ports.slurmd.items():
        gres = " Gres=gpu:l4:2" if name == "gpu1" else ""
        lines.append(f"NodeName={name} NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory=8000{gres}")
    lines += [
        "PartitionName=cpu Nodes=cpu[1-2] Default=YES PriorityTier=1 PreemptMode=REQUEUE DefMemPerCPU=1000",
        "PartitionName=urgent Nodes=cpu[1-2] PriorityTier=10 PreemptMode=OFF DefMemPerCPU=1000",
        "PartitionName=gpu Nodes=gpu1 PriorityTier=1 PreemptMode=REQUEUE DefMemPerCPU=1000",
    ]
    return "\n".join(lines) + "\n"


def gres_conf() -> str:
    return "NodeName=gpu1 Name=gpu Type=l4 File=/dev/null,/dev/zero\n"


def cgroup_conf() -> str:
    """cgroup.conf, which only a TaskPlugin of task/cgroup looks at."""
    return "CgroupPlugin=cgroup/v1\nConstrainRAMSpace=yes\n"


def slurmdbd_conf(folder: Path, ports: Ports) -> str:
    return "\n".join(
        [
            "DbdHost=localhost",
            "DbdAddr=127.0.0.1",
            f"DbdPort={ports.slurmdbd}",
            "SlurmUser=root",
            "AuthType=auth/munge",
            f"AuthInfo=socket={folder}/munge.socket",
            "StorageType=accounting_storage/mysql",
            "StorageHost=localhost",
            "StorageUser=root",
            "StorageLoc=slurm",
            f"LogFile={folder}/slurmdbd.log",
            f"PidFile={folder}/slurmdbd.pid",
            "CommitDelay=1",
            "",
        ]
    )


def database_options(folder: Path) -> list[str]:
    """mariadbd's options: no network, and as little work for the disk as a database of minutes deserves."""
    return [
        "--no-defaults",
        f"--datadir={folder}/database",
        f"--tmpdir={folder}",  # names in a shared one collide when two clusters come up at once
        "--innodb-log-file-size=8M",
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-flush-method=nosync",
        "--skip-innodb-doublewrite",
    ]
