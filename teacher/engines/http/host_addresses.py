"""The addresses of a host: a literal address, or the addresses from a name server."""

import asyncio
import socket
import threading
from contextlib import suppress
from functools import partial
from typing import Any

from aiohappyeyeballs import AddrInfoType


def written_address(host: str, port: int) -> list[AddrInfoType]:
    """The address that a host is written as; empty where it is a name."""
    for family, more in ((socket.AF_INET, ()), (socket.AF_INET6, (0, 0))):
        with suppress(OSError):
            socket.inet_pton(family, host)
            return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port, *more))]
    return []


async def resolve(host: str, port: int) -> list[AddrInfoType]:
    """The addresses of a host. Raises OSError.

    The look-up runs in a separate daemon thread: a name server may take half a minute, and an event loop waits at its
    end for the threads of its executor.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Any] = loop.create_future()

    def ask() -> None:
        try:
            tell = partial(found.set_result, socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except Exception as error:
            tell = partial(found.set_exception, error)
        with suppress(RuntimeError):  # the loop is closed: no code waits any more
            loop.call_soon_threadsafe(lambda: found.done() or tell())

    threading.Thread(target=ask, name=f"resolve {host}", daemon=True).start()
    addresses: list[AddrInfoType] = await found
    return addresses
