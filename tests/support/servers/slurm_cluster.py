"""A real Slurm on this machine (Debian: slurmctld, slurmd, slurm-client, munge): a controller and some nodes.

All daemons listen on ports that were free, and keep their files in one folder. No resolver knows the names of the
nodes, as in many clusters; only Slurm has their addresses. `make scale` installs the packages.
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "sinfo")
_LIMIT_S, _STEP_S = 600.0, 0.1
_NODE = "SLURM_CLUSTER_NODE"
"""Tells which node a daemon belongs to, with all that it starts for itself."""
_SETTINGS = """\
ClusterName=cot
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
SlurmdTimeout=10
KillWait=10
KillOnBadExit=1
MinJobAge=3600
ReturnToService=1
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> list[str]:
    """Programs of Slurm that this machine lacks."""
    return [name for name in PROGRAMS if _found(name) == name]


def _found(program: str) -> str:
    """The path of a program. Debian keeps daemons where the PATH of a user does not look."""
    return shutil.which(program, path=os.pathsep.join((os.environ["PATH"], "/usr/sbin"))) or program


class SlurmCluster:
    """The daemons of a cluster in a folder."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder = folder
        self.nodes = [f"cot-node{number}" for number in range(1, nodes + 1)]
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}
        # Below those that Linux gives to outgoing connections: a daemon that starts again finds its own free. Jobs of
        # training meet above 20,000.
        controller, *ports = _free_ports(1 + nodes, range(12_000, 20_000))
        host = subprocess.run(["hostname", "-s"], capture_output=True, text=True, check=True).stdout.strip()
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        lines = [
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 State=UNKNOWN"
            for name, port in zip(self.nodes, ports, strict=True)
        ]
        text = _SETTINGS.format(host=host, port=controller, user=user, folder=folder, nodes="\n".join(lines))
        (folder / "slurm.conf").write_text(text)
        (folder / "state").mkdir()
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o600)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start all daemons and wait until all nodes are idle."""
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{option}={self.folder}/munge.{end}" for option, end in files.items()]
        self._spawn("munged", "munged", "--foreground", "--force", *options)
        self.wait_until(lambda: (self.folder / "munge.socket").exists())
        self._spawn("slurmctld", "slurmctld", "-D", "-c")
        for name in self.nodes:
            self.start_node(name)
        self.wait_until(lambda: all(self.state_of(name) == "idle" for name in self.nodes))

    def start_node(self, name: str) -> None:
        (self.folder / name).mkdir(exist_ok=True)
        self._spawn(name, "slurmd", "-D", "-N", name, **{_NODE: name})

    def kill_node(self, name: str) -> None:
        """SIGKILL to the daemon of a node and all that it has started, as when the power fails."""
        daemon = self._processes.pop(name)
        daemon.kill()
        daemon.wait()
        while pids := self._started_by(name):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def state_of(self, node: str) -> str:
        return self.run("sinfo", "--noheader", "--nodes", node, "--format=%T")

    def node_of(self, job: str) -> str:
        """The node on which a job of one node works, or has worked last."""
        text = self.run("scontrol", "--oneliner", "show", "job", job)
        return next(word.removeprefix("NodeList=") for word in text.split() if word.startswith("NodeList="))

    def state_of_job(self, job: str) -> set[str]:
        """The states of a job, or of all elements of an array."""
        text = self.run("scontrol", "--oneliner", "show", "job", job)
        return {word.removeprefix("JobState=") for word in text.split() if word.startswith("JobState=")}

    def wait_for_job(self, job: str, *, limit_s: float = _LIMIT_S) -> set[str]:
        """The states of a job or array when it waits and works no more."""
        working = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED", "SUSPENDED"}
        self.wait_until(lambda: not self.state_of_job(job) & working, limit_s=limit_s)
        return self.state_of_job(job)

    def wait_until(self, is_so: Callable[[], bool], *, limit_s: float = _LIMIT_S) -> None:
        ends = time.monotonic() + limit_s
        while not is_so():
            if time.monotonic() > ends:
                logs = [path.read_text()[-2000:] for path in sorted(self.folder.glob("*.out"))]
                raise TimeoutError("\n".join([self.run("sinfo", "--Node"), self.run("squeue"), *logs]))
            time.sleep(_STEP_S)

    def run(self, *command: str) -> str:
        """What a program of Slurm prints; empty where it fails, for example before the controller answers."""
        environment = os.environ | self.environment
        done = subprocess.run(
            [_found(command[0]), *command[1:]], env=environment, capture_output=True, text=True, timeout=_LIMIT_S
        )
        return done.stdout.strip()

    def stop(self) -> None:
        for name in self.nodes:
            if name in self._processes:
                self.kill_node(name)
        for name in list(self._processes):
            self._processes[name].kill()
            self._processes.pop(name).wait()

    def _started_by(self, node: str) -> list[int]:
        """Steps of a node and all their processes: its name is in their environment."""
        conf = f"SLURM_CONF={self.environment['SLURM_CONF']}".encode()
        names = {f"{variable}={node}".encode() for variable in ("SLURMD_NODENAME", _NODE)}
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                environment = (folder / "environ").read_bytes().split(b"\0")
            except OSError:  # it has ended, or is another user's
                continue
            if conf in environment and names & set(environment):
                found.append(int(folder.name))
        return found

    def _spawn(self, name: str, *command: str, **more: str) -> None:
        ends_with_us = ["setpriv", "--pdeathsig", "KILL", _found(command[0])]
        environment = os.environ | self.environment | more
        with (self.folder / f"{name}.out").open("ab") as out:
            self._processes[name] = subprocess.Popen(
                [*ends_with_us, *command[1:]], stdout=out, stderr=out, env=environment
            )


def _free_ports(count: int, among: Sequence[int]) -> list[int]:
    found: list[int] = []
    for port in random.sample(among, len(among)):
        with suppress(OSError), socket.create_server(("", port)):
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"fewer than {count} of {len(among)} ports are free")


@contextmanager
def running(nodes: int) -> Iterator[SlurmCluster]:
    """A cluster that lives as long as the block."""
    with TemporaryDirectory(prefix="slurm-") as folder:
        cluster = SlurmCluster(Path(folder), nodes)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
