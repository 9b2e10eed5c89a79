"""Everything that may fail while several processes generate over a store: is anything lost, doubled or changed?

    python benchmarks/scale/failures.py [kill split ...] [--moments 20] [--agents 3] [--questions 500] [--seed 0]

Every process is the same command, `distill generate RECIPE --run s3://...`, with a scratch folder of its own as
another machine has, and a way of its own to the store. Each row below does something to one process, or to all, at
random moments, until it has happened `--moments` times; where a run ends before, another one begins. At the end of
each run its traces are compared with those of a run in a folder that nothing disturbed. Store: a test server (moto)
on this machine, behind proxies that plant faults; with S3_SERVER=ceph in the environment a real one (Ceph, which
`make scale` installs). Teacher: the stub of the tests.

    kill         SIGKILL; another process takes its place, by turns in a new scratch folder and in the same one
    stop         SIGSTOP for up to three leases, so others take over, then SIGCONT: two agents believe in one unit
    split        one process does not reach the store for up to three leases
    outage       no process reaches the store for --outage seconds
    refuse       for five seconds every second request to the store is answered by 503, and some writes by 409
    hang         three requests of one process get no answer for 65 seconds
    lost         up to four writes of one process are carried out, but their answers are lost
    race         every agent believes that every unit is its own
    disk         the disk of a machine is full (a tmpfs; needs the right to mount): its process ends, others go on
    clock        clocks are an hour early or late; also SIGKILL
    version      a process with another version of the package joins, and is refused
    gateway      SIGKILL of the gateway of Ceph, which starts again after --outage seconds (only with S3_SERVER=ceph)
    credentials  the store says to all processes for five seconds that their credentials have expired

Takes 38 s with `kill --moments 1 --questions 60` (two shared cores).
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from servers import ceph_gateway, store_servers, stub_server
from worlds.generate_world import World, asked_of
from worlds.store_worlds import lines_of

from distill.artifacts.files import file_sha256
from distill.object_store.interface import ObjectStore
from distill.object_store.open_store import open_store
from distill.recipe.recipe import Recipe
from distill.units.stored_run import pull_generate

ROWS, SEAL_S, LATENCY_S, TRACES = 20, 0.3, 1.0, 2
EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
COMMAND = "import sys, time; sys.argv[0] = 'distill'; {patch}; from distill.cli import main; main()"
RACE = (
    "from distill.units.agent_record import AgentRecord; "
    "AgentRecord.claim = lambda agent, work, *_, **__: agent._claimed.setdefault(work, 1)"
)
CLOCK = "clock = time.time; time.time = lambda: clock() + {shift}"
VERSION = "from importlib import metadata; metadata.version = lambda name: '0.0.0'"


@dataclass(eq=False)
class Machine:
    """A scratch folder, a way to the store, and the process that works there."""

    scratch: Path
    faults: store_servers.StoreFaults
    endpoint: str
    process: "subprocess.Popen[bytes]"


class Run:
    """The command again and again on several machines, and what happens to them."""

    def __init__(
        self, row: str, world: World, recipe: Recipe, upstream: str, options: argparse.Namespace, number: int
    ) -> None:
        self.row, self.world, self.recipe, self.options = row, world, recipe, options
        self.address = f"s3://{store_servers.BUCKET}/{row}-{number}"
        self.folder = world.folder / f"{row}-{number}"
        self.folder.mkdir()
        self.rng = random.Random(f"{options.seed} {row} {number}")
        self.machines: list[Machine] = []
        self.started = self.moments = 0
        self._upstream, self._ways = upstream, ExitStack()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        for machine in self.machines:
            machine.process.kill()
            machine.process.wait()
        self._ways.close()

    def start(self, scratch: Path | None = None, patch: str = "") -> Machine:
        """Another process, in a new scratch folder unless one is given."""
        self.started += 1
        scratch = scratch or self.folder / f"machine-{self.started}"
        faults = store_servers.StoreFaults()
        endpoint = self._ways.enter_context(store_servers.faulty_proxy(self._upstream, faults))
        if self.row == "race":
            patch = RACE
        if self.row == "clock":
            patch = CLOCK.format(shift=3600 * (-1) ** self.started)
        command = [sys.executable, "-c", COMMAND.format(patch=patch or "pass"), "generate", str(self.recipe.path)]
        command += ["--run", self.address, "--set", f"engine.scratch={scratch}"]
        command += ["--set", f"store.endpoint={endpoint}"]
        with self.log(self.started).open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        self.machines.append(Machine(scratch, faults, endpoint, process))
        return self.machines[-1]

    def store(self) -> ObjectStore:
        """The store itself, without a proxy."""
        return open_store(self.address, config=self.recipe.store.client_options() | {"endpoint": self._upstream})

    def log(self, number: int) -> Path:
        return self.folder / f"log-{number}"

    def living(self) -> list[Machine]:
        """Machines whose process works. Raises SystemExit where one has ended with an error."""
        for number, machine in enumerate(self.machines, 1):
            if machine.process.poll():
                raise SystemExit(f"{self.row}: process {number} ended with an error:\n{self.log(number).read_text()}")
        return [machine for machine in self.machines if machine.process.poll() is None]

    def forget(self, machine: Machine) -> None:
        """Take note that a process has ended as it should."""
        self.machines.remove(machine)

    def disturb(self, event: Callable[["Run", Machine], None], moments: int) -> None:
        """Let something happen at random moments until the run has ended."""
        for _ in range(self.options.agents):
            self.start()
        store = self.store()
        while len(store.list_objects("agents")) < self.options.agents and self.living():
            time.sleep(0.2)  # a store that is away when a process starts ends it
        while self.living():
            self.sleep(self.rng.uniform(0.5, self.options.pause))
            if (living := self.living()) and self.moments < moments:
                event(self, self.rng.choice(living))
                self.moments += 1

    def sleep(self, seconds: float) -> None:
        """Wait, but not longer than the run lasts."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s and any(each.process.poll() is None for each in self.machines):
            time.sleep(0.05)


def kill(run: Run, machine: Machine) -> None:
    machine.process.kill()
    machine.process.wait()
    run.forget(machine)
    run.start(machine.scratch if run.started % 2 else None)


def stop(run: Run, machine: Machine) -> None:
    machine.process.send_signal(signal.SIGSTOP)
    time.sleep(run.rng.uniform(0.5, 3.0) * run.options.lease)
    machine.process.send_signal(signal.SIGCONT)


def split(run: Run, machine: Machine) -> None:
    machine.faults.away = True
    time.sleep(run.rng.uniform(0.5, 3.0) * run.options.lease)
    machine.faults.away = False


def outage(run: Run, _: Machine) -> None:
    for each in run.machines:
        each.faults.away = True
    time.sleep(run.options.outage)
    for each in run.machines:
        each.faults.away = False


def gateway(run: Run, _: Machine) -> None:
    server = ceph_gateway.of_this_process()
    server.kill_gateway()
    time.sleep(run.options.outage)
    server.start_gateway()


@contextmanager
def refusing(run: Run, answer: Callable[[str], tuple[int, bytes] | None]) -> Iterator[None]:
    for each in run.machines:
        each.faults.refuse = answer
    yield
    for each in run.machines:
        each.faults.refuse = lambda _: None


def refuse(run: Run, _: Machine) -> None:
    def answer(method: str) -> tuple[int, bytes] | None:
        if run.rng.random() < 0.5:
            return 503, b""
        return (409, b"") if method == "PUT" and run.rng.random() < 0.2 else None

    with refusing(run, answer):
        time.sleep(5.0)


def credentials(run: Run, _: Machine) -> None:
    with refusing(run, lambda _: (400, EXPIRED)):
        time.sleep(5.0)


def hang(_: Run, machine: Machine) -> None:
    machine.faults.slow_s += [65.0] * 3


def lost(run: Run, machine: Machine) -> None:
    machine.faults.cut_after += ["PUT"] * run.rng.randint(1, 4)


def race(_: Run, __: Machine) -> None:
    """Nothing: the agents themselves race."""


def disk(run: Run, machine: Machine) -> None:
    """A new machine, of which the disk is full some seconds later."""
    scratch = run.folder / f"full-{run.moments}"
    scratch.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(scratch)], check=True)
    machine = run.start(scratch)
    number = run.started
    run.sleep(run.rng.uniform(3.0, 10.0))
    while machine.process.poll() is None:
        try:
            with (scratch / "filler").open("ab", buffering=0) as file:
                while file.write(bytes(4096)):
                    pass
        except OSError:
            time.sleep(0.2)
    run.forget(machine)
    text = run.log(number).read_text()
    if machine.process.returncode and "No space left" not in text:
        raise SystemExit(f"disk: the process ended with {machine.process.returncode}:\n{text}")
    subprocess.run(["umount", str(scratch)], check=True)


def version(run: Run, machine: Machine) -> None:
    machine = run.start(patch=VERSION)
    code = machine.process.wait()
    run.forget(machine)
    if not code and any(each.process.poll() is None for each in run.machines):
        raise SystemExit("version: another version was not refused")


EVENTS = {
    "kill": kill,
    "stop": stop,
    "split": split,
    "outage": outage,
    "refuse": refuse,
    "hang": hang,
    "lost": lost,
    "race": race,
    "disk": disk,
    "clock": kill,
    "version": version,
    "credentials": credentials,
}
if store_servers.is_real():
    EVENTS["gateway"] = gateway


class Campaign:
    """The world of all runs, and the traces that each of them must have."""

    def __init__(self, folder: Path, endpoint: str, url: str, options: argparse.Namespace) -> None:
        self.endpoint, self.url, self.options = endpoint, url, options
        self.world = World(folder)
        self.world.add_rows(options.questions, images=options.questions // 3)
        self.world.head = f"[engine]\nunit_rows = {ROWS}\nseal_s = {SEAL_S}\nlease_s = {options.lease}\n"
        self.world.head += '[store]\nregion = "us-east-1"\nallow_http = true\n[generate]'
        # Requests at once are no part of a trace; the undisturbed run takes seconds so.
        self.world.add_teacher(url, samples=TRACES, max_in_flight=64)
        self.world.generate()
        self.wanted, self.plan = set(self.world.ids()), self.world.run / "generate" / "plan.parquet"
        self.lines = lines_of(self.world, self.world.run)
        self.world.teachers[0]["max_in_flight"] = 4
        self.recipe = self.world.recipe()

    def row(self, name: str) -> bool:
        """Let something happen until it has happened often enough. Returns whether all runs are right."""
        began, asked, moments, runs, started, faults = time.monotonic(), asked_of(self.url), 0, 0, 0, Counter[str]()
        while moments < self.options.moments:
            with Run(name, self.world, self.recipe, self.endpoint, self.options, runs) as run:
                run.disturb(EVENTS[name], 1 if name == "race" else self.options.moments - moments)
                runs, moments, started = runs + 1, moments + run.moments, started + run.started
                faults += self.compare(run)
        wanted = runs * len(self.wanted)
        print(
            f"{name:12} {moments} moments in {runs} runs, {started} processes, {time.monotonic() - began:.0f} s: "
            f"traces {wanted - faults['lost']} of {wanted}, lost {faults['lost']}, doubled {faults['doubled']}, "
            f"not wanted {faults['other']}, runs that differ {faults['unequal']}; "
            f"requests a trace {(asked_of(self.url) - asked) / wanted:.3f}; "
            f"left: {faults['segments']} segments, {faults['claims']} claims",
            flush=True,
        )
        return not any(faults.values())

    def compare(self, run: Run) -> Counter[str]:
        """What is wrong with a finished run."""
        store = run.store()
        pulled = World(self.world.folder)
        pulled.run = run.folder / "pulled"
        pull_generate(store, pulled.run)
        ids = Counter(pulled.ids())
        equal_plan = file_sha256(pulled.run / "generate" / "plan.parquet") == file_sha256(self.plan)
        equal = equal_plan and lines_of(self.world, pulled.run) == self.lines
        return Counter(
            lost=len(self.wanted - set(ids)),
            doubled=sum(ids.values()) - len(ids),
            other=len(set(ids) - self.wanted),
            unequal=int(not equal),
            segments=sum("/segment-" in found.key for found in store.list_objects("generate/p")),
            claims=len(store.list_objects("claims")),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", choices=[[], *EVENTS])
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--lease", type=float, default=3.0)
    parser.add_argument("--pause", type=float, default=6.0, help="most seconds between two moments")
    parser.add_argument("--outage", type=float, default=15.0, help="seconds of an outage")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ |= store_servers.KEYS
    with (
        tempfile.TemporaryDirectory() as name,
        store_servers.s3_server() as endpoint,
        stub_server.serve(latency_s=LATENCY_S) as url,
    ):
        campaign = Campaign(Path(name), endpoint, url, options)
        right = [campaign.row(row) for row in options.rows or EVENTS]
    if not all(right):
        raise SystemExit("some runs are not as they should be")


if __name__ == "__main__":
    main()
