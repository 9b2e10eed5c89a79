"""The addresses of a host: a literal address, or those of a name server."""

import asyncio
import socket
import threading
from contextlib import suppress
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

    In a thread that no code waits for: a name server may be silent for half a minute, and the end of an event loop
    waits for the threads of its executor.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[AddrInfoType]] = loop.create_future()

    def tell(addresses: list[AddrInfoType] | None, error: Exception | None) -> None:
        if error is not None and not found.done():
            found.set_exception(error)
        elif addresses is not None and not found.done():
            found.set_result(addresses)

    def ask() -> None:
        addresses: Any = None
        failure: Exception | None = None
        try:
            addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except Exception as error:
            failure = error
        with suppress(RuntimeError):  # the loop is closed: no code waits any more
            loop.call_soon_threadsafe(tell, addresses, failure)

    threading.Thread(target=ask, name=f"resolve {host}", daemon=True).start()
    return await found
