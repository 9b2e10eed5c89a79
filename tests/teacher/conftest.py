"""What holds for the tests of teachers."""

from collections.abc import Iterator

import pytest

from teacher.engines import outage
from teacher.engines.http import exchange, http_client


@pytest.fixture(autouse=True, scope="module")
def short_pauses() -> Iterator[None]:
    """A failed request is tried again soon: the servers of tests recover as soon as they are told to.

    How long a user's run waits is a matter of these numbers and of tests with the clock of their own.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outage, "_BACKOFF_S", outage._BACKOFF_S / 10)
        patch.setattr(outage, "_REFUSED_BACKOFF_S", outage._REFUSED_BACKOFF_S / 10)
        patch.setattr(outage, "MAX_WAIT_S", 0.2)
        patch.setattr(http_client, "_CHECK_S", (http_client._CHECK_S[0] / 10, http_client._CHECK_S[1]))
        patch.setattr(http_client, "_POLL_S", http_client._POLL_S / 10)
        for module in (exchange, http_client):
            patch.setattr(module, "CONTROL_AFTER_S", exchange.CONTROL_AFTER_S / 10)
        yield
