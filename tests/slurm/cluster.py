"""A SLURM of one node for the tests: munge, MariaDB, slurmdbd, slurmctld, slurmd, two fake GPUs, a preemptible partition.

Every daemon runs in the foreground, as a child of the tests, with its state in one folder: nothing is left when they end.
Its configuration must lie in /etc/slurm, as the steps of Snakemake's executor drop SLURM_CONF: where one lies there
already, or a SLURM runs, :func:`obstacle` says so, and the tests skip.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

ETC = Path("/etc/slurm")
PROGRAMS = ["munged", "mariadbd", "mariadb-install-db", "slurmdbd", "slurmctld", "slurmd", "sbatch", "sacctmgr"]
DATABASE_PORT = 13306

SLURM_CONF = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={state}/munge/sock,cred_expire=5
StateSaveLocation={state}/ctld
SlurmdSpoolDir={state}/spool
SlurmctldPidFile={state}/slurmctld.pid
SlurmdPidFile={state}/slurmd.pid
MailProg=/bin/true
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmctldParameters=preempt_send_user_signal
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherParams=OverMemoryKill
JobAcctGatherFrequency=task=2
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=5,bf_interval=5
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PropagateResourceLimits=NONE
KillWait=5
MinJobAge=300
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePass={state}/munge/sock
AccountingStorageTRES=gres/gpu
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=64 RealMemory=2000000 Gres=gpu:2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES PriorityTier=5 PreemptMode=OFF DefMemPerCPU=500 DefaultTime=60 State=UP
PartitionName=low Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=20 DefMemPerCPU=500 State=UP
"""
DBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={state}/munge/sock
DbdHost=localhost
SlurmUser=root
PidFile={state}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={port}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
"""
SQL = """\
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS slurm@'127.0.0.1' IDENTIFIED BY 'slurm';
GRANT ALL ON slurm_acct_db.* TO slurm@'127.0.0.1';
CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED BY 'slurm';
GRANT ALL ON slurm_acct_db.* TO slurm@localhost;
"""


def obstacle() -> str | None:
    """Return why no cluster can be started here, None where one can."""
    if os.geteuid():
        return "only root can start SLURM's daemons"
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing:
        return f"{', '.join(missing)} not installed (tests/slurm/packages.sh installs them)"
    if (ETC / "slurm.conf").exists():
        return f"{ETC}/slurm.conf: this machine belongs to a SLURM already"
    if subprocess.run(["pgrep", "--exact", "slurmctld|slurmd"], capture_output=True, check=False).returncode == 0:
        return "a SLURM runs here already"
    return None


class Cluster:
    """The cluster, up after :meth:`up` and gone after :meth:`down`."""

    def __init__(self, state: Path) -> None:
        self.state, self.host = state, socket.gethostname().split(".")[0]
        self.daemons: list[subprocess.Popen] = []

    def up(self) -> None:
        for folder in ("munge", "ctld", "spool", "mysql", "dev"):
            (self.state / folder).mkdir(parents=True)
        self._configure()
        self._start("munged", "--foreground", "--force", f"--key-file={self.state}/munge.key",
                    f"--socket={self.state}/munge/sock", f"--pid-file={self.state}/munged.pid",
                    f"--log-file={self.state}/munged.log", f"--seed-file={self.state}/munge.seed")  # fmt: skip
        self._database()
        self._start("slurmdbd", "-D")
        wait_until(lambda: run("sacctmgr", "-nP", "list", "cluster").returncode == 0, "slurmdbd")
        for words in ("cluster tests", "account lab", "user root account=lab defaultaccount=lab"):
            done = run("sacctmgr", "-i", "add", *words.split())
            assert done.returncode == 0, done.stdout + done.stderr
        self._start("slurmctld", "-D")
        self._start("slurmd", "-D")
        wait_until(lambda: run("sinfo", "-h", "-p", "main", "-o", "%T").stdout.strip() == "idle", "an idle node")

    def down(self) -> None:
        run("scancel", "--me")
        time.sleep(1)
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        run("pkill", "--signal", "KILL", "--exact", "slurmstepd")
        for name in ("slurm.conf", "gres.conf", "slurmdbd.conf"):
            (ETC / name).unlink(missing_ok=True)

    def _configure(self) -> None:
        key = self.state / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        for i in range(2):
            device = self.state / f"dev/nvidia{i}"
            os.mknod(device, 0o20666, os.makedev(1, 3))  # /dev/null, which a job is given as its GPU
        ETC.mkdir(exist_ok=True)
        values = {"host": self.host, "state": self.state, "port": DATABASE_PORT}
        (ETC / "slurm.conf").write_text(SLURM_CONF.format(**values))
        gres = f"AutoDetect=off\nNodeName={self.host} Name=gpu File={self.state}/dev/nvidia[0-1]\n"
        (ETC / "gres.conf").write_text(gres)
        (ETC / "slurmdbd.conf").touch(mode=0o600)
        (ETC / "slurmdbd.conf").write_text(DBD_CONF.format(**values))

    def _database(self) -> None:
        data, sock = self.state / "mysql", self.state / "mysql.sock"
        done = run("mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}",
                   "--auth-root-authentication-method=normal", "--skip-test-db")  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        self._start("mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--socket={sock}",
                    "--bind-address=127.0.0.1", f"--port={DATABASE_PORT}", f"--pid-file={self.state}/mariadbd.pid",
                    "--innodb-flush-log-at-trx-commit=0", "--performance-schema=OFF")  # fmt: skip
        client = ["mariadb", "--no-defaults", f"--socket={sock}", "--user=root"]
        wait_until(lambda: run(*client, "-e", "SELECT 1").returncode == 0, "MariaDB")
        assert run(*client, "-e", SQL).returncode == 0

    def _start(self, *command: str) -> None:
        log = (self.state / f"{command[0]}.out").open("w")
        self.daemons.append(
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        )


def run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def wait_until(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come within {seconds} s"
        time.sleep(0.1)


def accounted(job: str) -> str:
    """Return the state of a job as the accounting has it."""
    return run("sacct", "-n", "-X", "-P", "-j", job, "-o", "State").stdout.strip().split(" ")[0]


def queued(job: str) -> str:
    """Return the state of a job in the queue; empty once it has left it."""
    return run("squeue", "-h", "-j", job, "-o", "%T").stdout.strip()
