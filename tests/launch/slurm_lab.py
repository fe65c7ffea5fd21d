"""A private, real SLURM from Debian's packages, in a temporary folder and on free ports.

The daemons run in the foreground on a leash, so they end with the process that started them even if it is killed.
Needs neither systemd nor cgroups nor root, and writes nothing elsewhere. By hand: `python slurm_lab.py [--accounting]`.
"""

import atexit
import getpass
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
from slurm_conf import Layout, gres_conf, slurm_conf, slurmdbd_conf

from unmask.launch.processes import has_ended, reap_group, start_worker

WITHOUT_ACCOUNTING = ("slurmctld", "slurmd", "munged", "munge", "sinfo", "sbatch", "srun", "squeue")
WITH_ACCOUNTING = (*WITHOUT_ACCOUNTING, "slurmdbd", "mariadbd", "mariadb-install-db", "sacctmgr", "sacct")


class SlurmLab:
    """Started with `up`, gone after `down`."""

    def __init__(self, accounting: bool = False) -> None:
        self.accounting = accounting
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._layout: Layout | None = None

    @staticmethod
    def missing(accounting: bool) -> list[str]:
        """Programs that are not installed."""
        return [name for name in (WITH_ACCOUNTING if accounting else WITHOUT_ACCOUNTING) if not _where(name)]

    @property
    def layout(self) -> Layout:
        assert self._layout is not None, "up() comes first"
        return self._layout

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.layout.conf)}

    def up(self) -> None:
        """Start everything and wait for the nodes; a port taken meanwhile is worth a second try."""
        atexit.register(self.down)
        try:
            self._start()
        except RuntimeError:
            self.down()
            self._start()

    def down(self) -> None:
        """Cancel jobs, end all daemons and whatever they left behind, delete the folder."""
        if self._layout is None:
            return
        with suppress(subprocess.SubprocessError):
            self.ask("scancel", "--user", getpass.getuser(), seconds=5)
            self._wait(lambda: not self.ask("squeue", "-h", seconds=5), "an empty queue", 8)
        for name in list(self._daemons):
            reap_group(self._daemons.pop(name))
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        shutil.rmtree(self._layout.root, ignore_errors=True)
        self._layout = None

    def kill_node(self, name: str) -> None:
        """As if the node had lost its power, except that jobs on it live on: the controller cannot know."""
        reap_group(self._daemons.pop(name))

    def start_node(self, name: str) -> None:
        self._daemon(name, "slurmd", "-D", "-f", str(self.layout.conf), "-N", name)

    def ask(self, *command: str, seconds: float = 20) -> str:
        """What a client program prints."""
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, env=self.environment, check=True
        )
        return answer.stdout.strip()

    def processes(self) -> list[psutil.Process]:
        """Every process of this SLURM: daemons, steps of jobs, and the jobs themselves."""
        return processes_of(self.layout.conf)

    def _start(self) -> None:
        # A short path: those of sockets end at 107 bytes.
        root = Path(tempfile.mkdtemp(prefix="slurm", dir="/tmp"))
        root.chmod(0o755)
        lab = self._layout = Layout(root=root, ports=_free_ports(5), accounting=self.accounting)
        for folder in ("state", "run", "log", "munge", *(f"spool/{node}" for node in lab.node_names)):
            (root / folder).mkdir(parents=True)
        for gpu in range(lab.gpus):
            (root / "run" / f"gpu{gpu}").symlink_to("/dev/null")
        lab.conf.write_text(slurm_conf(lab))
        (root / "gres.conf").write_text(gres_conf(lab))
        self._start_munge(root)
        if self.accounting:
            self._start_accounting(root)
        self._daemon("slurmctld", "slurmctld", "-D", "-f", str(lab.conf))
        for node in lab.node_names:
            self.start_node(node)
        self._wait(self._nodes_are_idle, "idle nodes", 30)

    def _start_munge(self, root: Path) -> None:
        key, munge_socket = root / "munge" / "key", str(self.layout.munge_socket)
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        paths = [f"--key-file={key}", f"--socket={munge_socket}", f"--pid-file={root}/munge/pid"]
        self._daemon("munged", "munged", "--foreground", *paths, f"--seed-file={root}/munge/seed")
        self._wait(lambda: self.ask("munge", "-n", "-S", munge_socket), "munged", 10)

    def _start_accounting(self, root: Path) -> None:
        data = f"--datadir={root / 'mysql'}"
        # Nothing here is worth a flush to disk.
        quick = [
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-flush-method=nosync",
            "--innodb-doublewrite=0",
        ]
        quick += [
            "--innodb-log-file-size=8M",
            "--innodb-buffer-pool-size=32M",
            "--skip-log-bin",
            "--sync-frm=0",
        ]
        install = [
            "mariadb-install-db",
            "--no-defaults",
            data,
            "--skip-test-db",
            "--skip-name-resolve",
            *quick,
        ]
        user = [f"--user={getpass.getuser()}"]
        self.ask(*install, *user, "--auth-root-authentication-method=normal", seconds=90)
        at = [f"--socket={root / 'run' / 'mysql'}", f"--port={self.layout.port('mariadbd')}"]
        at += ["--bind-address=127.0.0.1", f"--pid-file={root / 'run' / 'mysql.pid'}", "--skip-grant-tables"]
        wanted_by_slurmdbd = "--innodb-lock-wait-timeout=900"
        self._daemon("mariadbd", "mariadbd", "--no-defaults", data, *user, *at, *quick, wanted_by_slurmdbd)
        create = ["mariadb", "--no-defaults", at[0], "-e", "create database if not exists slurm_acct_db"]
        self._wait(lambda: self.ask(*create, seconds=5) == "", "mariadbd", 30)
        (root / "slurmdbd.conf").touch(mode=0o600)
        (root / "slurmdbd.conf").write_text(slurmdbd_conf(self.layout))
        self._daemon("slurmdbd", "slurmdbd", "-D")
        self._wait(lambda: self.ask("sacctmgr", "-n", "list", "cluster", seconds=5) == "", "slurmdbd", 60)
        self.ask("sacctmgr", "-i", "-Q", "add", "cluster", "lab")

    def _daemon(self, name: str, program: str, *arguments: str) -> None:
        log = self.layout.root / "log" / name
        argv = [_where(program) or program, *arguments]
        self._daemons[name] = start_worker(argv, log, self.environment, own_session=True)

    def _nodes_are_idle(self) -> bool:
        idle = self.ask("sinfo", "-h", "-N", "-p", "main", "-t", "idle", "-o", "%N", seconds=5)
        return len(idle.split()) == self.layout.nodes

    def _wait(self, ready: Callable[[], object], what: str, seconds: float) -> None:
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            with suppress(subprocess.SubprocessError):
                if ready():
                    return
            for name, process in self._daemons.items():
                if has_ended(process):
                    raise RuntimeError(f"{name} has ended: {self._log(name)}")
            time.sleep(0.1)
        logs = "\n".join(f"--- {name}\n{self._log(name)}" for name in self._daemons)
        raise RuntimeError(f"SLURM does not get to {what}.\n{logs}")

    def _log(self, name: str) -> str:
        return (self.layout.root / "log" / name).read_text(errors="replace")[-2000:]


def processes_of(conf: Path) -> list[psutil.Process]:
    """Living processes that know of a SLURM by their environment, other than this one."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            mine = process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE
            if not mine and process.environ().get("SLURM_CONF") == str(conf):
                found.append(process)
    return found


def _where(program: str) -> str | None:
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def _free_ports(count: int) -> tuple[int, ...]:
    """Ports that were free at the same time."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return tuple(each.getsockname()[1] for each in sockets)


if __name__ == "__main__":
    lab = SlurmLab(accounting="--accounting" in sys.argv)
    begin = time.monotonic()
    lab.up()
    print(f"export SLURM_CONF={lab.layout.conf}   # up in {time.monotonic() - begin:.1f} s; Ctrl-D ends it")
    sys.stdin.read()
    lab.down()
