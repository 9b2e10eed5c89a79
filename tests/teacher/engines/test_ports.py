"""A port of a server that a run starts belongs to no other run, also before the server listens."""

import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from distill.errors import TeacherError
from teacher.engines.processes import ports

HOLD = """
from teacher.engines.processes.ports import reserve_port
import random
random.seed(0)
port = reserve_port()
print(port.number, flush=True)
input()
"""


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> range:
    """Two free ports, where systems choose none by themselves."""
    number = random.SystemRandom().choice([each for each in range(12000, 18000) if _free(each) and _free(each + 1)])
    monkeypatch.setattr(ports.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(ports, "_PORTS", range(number, number + 2))
    monkeypatch.setattr(ports, "_TRIES", 2)
    return range(number, number + 2)


def _free(number: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", number))
        except OSError:
            return False
    return True


def test_a_port_is_reserved_until_it_is_closed(few: range):
    first, second = ports.reserve_port(), ports.reserve_port()
    assert {first.number, second.number} == {*few}
    with pytest.raises(TeacherError, match="none of 2 ports"):
        ports.reserve_port()
    first.close()
    again = ports.reserve_port()
    assert again.number == first.number
    again.close()
    second.close()


def test_a_port_that_a_server_shares_with_others_is_not_free(few: range):
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as vLLM listens
        server.bind(("127.0.0.1", few[0]))
        server.listen()
        port = ports.reserve_port()
        assert port.number == few[1]
        port.close()


def test_a_process_that_inherits_the_lock_keeps_the_port(few: range):
    port = ports.reserve_port()
    server = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[port.fileno()])
    port.close()
    other = ports.reserve_port()
    assert other.number != port.number
    with pytest.raises(TeacherError):
        ports.reserve_port()
    server.communicate(b"\n")
    again = ports.reserve_port()
    assert again.number == port.number
    again.close()
    other.close()


def test_two_commands_with_one_seed_choose_ports_of_their_own():
    held = [
        subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    numbers = [process.stdout.readline() for process in held if process.stdout]
    for process in held:
        process.communicate("\n")
    assert len({*numbers}) == 2

    random.seed(0)
    state = random.getstate()
    ports.reserve_port().close()
    assert random.getstate() == state
