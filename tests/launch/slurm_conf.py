"""The configuration of a private SLURM: two nodes that are one machine, with GPUs that are none.

Lines that look odd have their reason beside them. Knows text, starts nothing.
"""

import getpass
import socket
from dataclasses import dataclass
from pathlib import Path

GPU_TYPE = "rtx_6000"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where the daemons are and what they claim."""

    root: Path
    ports: tuple[int, ...]
    accounting: bool
    nodes: int = 2
    cpus: int = 4
    gpus: int = 2
    largest_array: int = 9

    @property
    def conf(self) -> Path:
        return self.root / "slurm.conf"

    @property
    def munge_socket(self) -> Path:
        return self.root / "munge" / "socket"

    @property
    def node_names(self) -> list[str]:
        return [f"n{number}" for number in range(1, self.nodes + 1)]

    def port(self, daemon: str) -> int:
        return self.ports[["slurmctld", "slurmdbd", "mariadbd", *self.node_names].index(daemon)]


def slurm_conf(lab: Layout) -> str:
    """For all daemons and client programs."""
    user, host = getpass.getuser(), socket.gethostname().split(".")[0]
    lines = {
        "ClusterName": "lab",
        "SlurmctldHost": f"{host}(127.0.0.1)",
        "SlurmctldPort": lab.port("slurmctld"),
        "SlurmUser": user,
        "SlurmdUser": user,
        "AuthType": "auth/munge",
        "CredType": "cred/munge",
        # cred_expire is also how long a requeued job waits: two minutes if not set or below 5.
        "AuthInfo": f"socket={lab.munge_socket},cred_expire=5",
        "StateSaveLocation": lab.root / "state",
        "SlurmdSpoolDir": lab.root / "spool" / "%n",
        "SlurmctldPidFile": lab.root / "run" / "slurmctld.pid",
        "SlurmdPidFile": lab.root / "run" / "%n.pid",
        # By process group: cgroups would need privileges that a container seldom has.
        "ProctrackType": "proctrack/pgid",
        "TaskPlugin": "task/none",
        "MpiDefault": "none",
        "SwitchType": "switch/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "SchedulerParameters": "batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1",
        "PreemptType": "preempt/partition_prio",
        "PreemptMode": "REQUEUE",
        "JobRequeue": 1,
        "ReturnToService": 2,
        "SlurmdTimeout": 10,
        "KillWait": 2,
        "MaxArraySize": lab.largest_array,
        # Nodes may claim more cores than the machine has.
        "SlurmdParameters": "config_overrides",
        "GresTypes": "gpu",
        "AccountingStorageType": "accounting_storage/none",
    }
    if lab.accounting:
        lines |= {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "127.0.0.1",
            "AccountingStoragePort": lab.port("slurmdbd"),
            # The munge socket, not a password: without it sacct looks for the system's socket and hangs.
            "AccountingStoragePass": lab.munge_socket,
        }
    text = [f"{name}={value}" for name, value in lines.items()]
    text += [
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={lab.port(node)} CPUs={lab.cpus} "
        f"RealMemory=64000 Gres=gpu:{GPU_TYPE}:{lab.gpus} State=UNKNOWN"
        for node in lab.node_names
    ]
    text += [
        "PartitionName=main Nodes=ALL Default=YES DefaultTime=10 DefMemPerCPU=100 PriorityTier=1 GraceTime=20",
        "PartitionName=urgent Nodes=ALL DefaultTime=10 DefMemPerCPU=100 PriorityTier=10 PreemptMode=OFF",
    ]
    return "\n".join(text) + "\n"


def gres_conf(lab: Layout) -> str:
    """A GPU wants a device file; any will do."""
    files = lab.root / "run" / f"gpu[0-{lab.gpus - 1}]"
    return f"NodeName=n[1-{lab.nodes}] Name=gpu Type={GPU_TYPE} File={files}\n"


def slurmdbd_conf(lab: Layout) -> str:
    """For the daemon between SLURM and its database."""
    host = socket.gethostname().split(".")[0]
    lines = {
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={lab.munge_socket}",
        "DbdHost": host,
        "DbdAddr": "127.0.0.1",
        "DbdPort": lab.port("slurmdbd"),
        "SlurmUser": getpass.getuser(),
        "PidFile": lab.root / "run" / "slurmdbd.pid",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "127.0.0.1",
        "StoragePort": lab.port("mariadbd"),
        "StorageUser": "slurm",
        "StoragePass": "slurm",
        "StorageLoc": "slurm_acct_db",
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())
