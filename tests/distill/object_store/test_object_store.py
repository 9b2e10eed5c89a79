"""A folder and an S3 server keep the same promises; a proxy before the server plants faults."""

import errno
import itertools
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import boto3
import orjson
import pytest
from servers import store_servers
from servers.store_servers import BUCKET, StoreFaults

from distill.errors import StorageError
from distill.object_store import remote_store
from distill.object_store.interface import ObjectStore, StoredObject
from distill.object_store.local_store import LocalStore
from distill.object_store.open_store import open_store, require_commits
from distill.object_store.remote_store import RemoteStore
from distill.object_store.retrying_store import RetryingStore


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with store_servers.s3_server() as address:
        yield address


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, endpoint: str, tmp_path: Path) -> ObjectStore:
    if request.param == "local":
        return LocalStore(tmp_path / "run")
    return open_store(f"s3://{BUCKET}/{uuid.uuid4().hex}", config=store_servers.config(endpoint))


@pytest.fixture
def faults() -> StoreFaults:
    return StoreFaults()


@pytest.fixture
def proxy(endpoint: str, faults: StoreFaults) -> Iterator[str]:
    with store_servers.faulty_proxy(endpoint, faults) as address:
        yield address


@pytest.fixture
def faulty(proxy: str) -> RetryingStore:
    """A store behind the proxy, whose pauses take no time."""
    return behind(proxy)


def behind(address: str, *, timeout_s: float = 30.0, **options: float) -> RetryingStore:
    folder = f"s3://{BUCKET}/{uuid.uuid4().hex}"
    remote = RemoteStore(folder, config=store_servers.config(address), timeout_s=timeout_s, http=True)
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return RetryingStore(store=remote, sleep=sleep, clock=lambda: now[0], **options)


def test_what_is_written_is_read_whole_and_by_ranges(store: ObjectStore) -> None:
    store.put("a/b.bin", b"0123456789")
    store.put("a/b.bin", b"0123456789abc")
    assert store.read("a/b.bin") == b"0123456789abc"
    assert (store.read("a/b.bin", 10), store.read("a/b.bin", 2, 4), store.read("a/b.bin", 4, 4)) == (
        b"abc",
        b"23",
        b"",
    )
    assert (store.read("a/b.bin", 10, 99), store.read("a/b.bin", 13, 14), store.read("a/b.bin", 50, 99)) == (
        b"abc",
        b"",
        b"",
    )
    with pytest.raises(FileNotFoundError):
        store.read("a/none")


def test_a_listing_shows_every_object_below_a_folder_and_no_other(store: ObjectStore) -> None:
    for key in ("p/2", "p/1", "p/deep/3", "px", "q/1"):
        store.put(key, key.encode())
    assert [(found.key, found.bytes) for found in store.list_objects("p")] == [
        ("p/1", 3),
        ("p/2", 3),
        ("p/deep/3", 8),
    ]
    assert abs(store.list_objects("q")[0].modified_s - time.time()) < 60
    assert store.list_objects("nothing") == []
    store.delete(["p/1", "p/none"])
    assert [found.key for found in store.list_objects()] == ["p/2", "p/deep/3", "px", "q/1"]


def test_a_folder_above_an_object_is_no_object_and_nothing_is_below_one(store: ObjectStore) -> None:
    store.put("a/b", b"1")
    for key in ("a", "a/b/c"):
        with pytest.raises(FileNotFoundError):
            store.read(key)
        with pytest.raises(FileNotFoundError):
            store.look_up(key)
    store.delete(["a", "a/b/c"])
    assert store.list_objects("a/b") == []
    assert [found.key for found in store.list_objects()] == ["a/b"]


@pytest.mark.parametrize("key", ["a\tb", "a//b", "x/../y", "n\0l", "k" * 1100, "a/" * 600 + "b"])
def test_a_key_that_a_store_cannot_hold_is_an_object_that_is_not_there(store: ObjectStore, key: str) -> None:
    store.put("other", b"")
    with pytest.raises(FileNotFoundError):
        store.read(key)
    with pytest.raises(FileNotFoundError):
        store.look_up(key)


def test_a_key_that_a_server_finds_too_long_is_an_object_that_is_not_there(
    faulty: RetryingStore, faults: StoreFaults
) -> None:
    body = b"<Error><Code>KeyTooLongError</Code><Message>Your key is too long</Message></Error>"
    faults.refuse = lambda method: (400, body)
    with pytest.raises(FileNotFoundError):
        faulty.read("k")


def test_what_other_programs_put_to_mark_a_folder_is_no_object(endpoint: str) -> None:
    address = f"s3://{BUCKET}/{uuid.uuid4().hex}"
    store = open_store(address, config=store_servers.config(endpoint))
    store.put("p/deep/3", b"333")
    store.put("p/empty", b"")
    for mark in ("", "p/", "p/deep/"):
        put_object(endpoint, f"{address.removeprefix(f's3://{BUCKET}/')}/{mark}")
    assert [found.key for found in store.list_objects()] == ["p/deep/3", "p/empty"]
    assert [found.key for found in store.list_objects("p")] == ["p/deep/3", "p/empty"]


def put_object(endpoint: str, key: str) -> None:
    """An empty object, also of a name that ends in a slash, as consoles put it."""
    keys = {"aws_access_key_id": store_servers.KEY, "aws_secret_access_key": store_servers.SECRET}
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **keys)
    client.put_object(Bucket=BUCKET, Key=key, Body=b"")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_a_folder_that_cannot_be_read_is_an_error_of_storage_and_holds_no_fewer_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    store = LocalStore(tmp_path)
    store.put("a/b", b"1")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    patched = {"scandir": lambda: store.list_objects("a"), "unlink": lambda: store.delete(["a/b"])}
    for name, ask in patched.items():
        with monkeypatch.context() as patch:
            patch.setattr(os, name, refuse)
            with pytest.raises(StorageError, match=rf"cannot .*/a.*: {os.strerror(number)}; .*(fix|see) "):
                ask()
    for name, ask in {"open": lambda: store.read("a/b"), "stat": lambda: store.look_up("a/b")}.items():
        with monkeypatch.context() as patch:
            patch.setattr(Path, name, refuse)
            with pytest.raises(StorageError, match=rf"cannot read .*/a/b: {os.strerror(number)}; "):
                ask()


def test_a_disk_without_hard_links_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StorageError, match=r"no hard links, .*; choose another place for --run"):
        require_commits(LocalStore(tmp_path))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_one_of_eight_writers_at_once_creates_an_object(store: ObjectStore) -> None:
    start, won = threading.Barrier(8), []

    def write(number: int) -> None:
        start.wait()
        if store.create("commit.json", b"writer %d" % number):
            won.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert store.read("commit.json") == b"writer %d" % won[0]
    assert store.create("commit.json", b"writer %d" % won[0]), "asked again with its own bytes, a writer has won"
    assert [found.key for found in store.list_objects()] == ["commit.json"]


def test_every_store_that_keeps_its_promises_passes_the_probe_and_nothing_is_left(store: ObjectStore) -> None:
    require_commits(store)
    assert store.list_objects() == []


def test_the_probe_takes_six_requests(faulty: RetryingStore, faults: StoreFaults) -> None:
    require_commits(faulty)
    assert sum(faults.seen.values()) == 6


@pytest.mark.skipif(
    store_servers.is_real(), reason="a store that checks signatures misses the header that is taken away"
)
def test_a_store_that_ignores_conditions_is_refused(faulty: RetryingStore, faults: StoreFaults) -> None:
    faults.ignore_conditions = True
    with pytest.raises(StorageError, match=r"cannot hold a run: .*If-None-Match"):
        require_commits(faulty)
    assert faulty.list_objects() == []


def test_a_store_that_ignores_ranges_is_refused(faulty: RetryingStore, faults: StoreFaults) -> None:
    faults.ignore_ranges = True
    with pytest.raises(StorageError, match="cannot read"):
        require_commits(faulty)


class OtherRanges(LocalStore):
    def read(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        return super().read(key, start, end and end + 1)


class NoListing(LocalStore):
    def list_objects(self, folder: str = "") -> list[StoredObject]:
        return []


@pytest.mark.parametrize(
    ("broken", "reason"),
    [(OtherRanges, "range of bytes"), (NoListing, "a listing right after a write shows nothing")],
)
def test_a_store_with_wrong_ranges_or_late_listings_is_refused(
    broken: type[LocalStore], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(StorageError, match=reason):
        require_commits(broken(tmp_path))


@pytest.mark.parametrize("status", [500, 503, 429, 409])
def test_a_request_that_the_store_refuses_for_now_is_sent_again(
    faulty: RetryingStore, faults: StoreFaults, status: int
) -> None:
    faults.statuses = {"PUT": [status] * 5, "GET": [status] * 2 if status != 409 else []}
    assert faulty.create("commit", b"ours")
    assert faulty.read("commit") == b"ours"
    assert faults.seen["PUT"] == 6
    faults.statuses = {"PUT": [status] * 2, "POST": [status] * 2}
    faulty.put("file", b"data")
    faulty.delete(["commit"])
    assert [stored.key for stored in faulty.list_objects()] == ["file"] and faults.seen["PUT"] == 9


def test_a_lost_answer_to_our_own_commit_is_recognised(faulty: RetryingStore, faults: StoreFaults) -> None:
    faults.cut_after = ["PUT"]
    assert faulty.create("commit", b"ours")
    assert (faults.seen["PUT"], faulty.read("commit")) == (2, b"ours")


def test_a_commit_that_another_writer_made_while_our_request_was_lost_is_not_ours(
    faulty: RetryingStore, faults: StoreFaults
) -> None:
    def pause(_: float) -> None:
        assert faulty.store.create("commit", b"theirs")

    faults.statuses = {"PUT": [503]}
    assert not replace(faulty, sleep=pause).create("commit", b"ours")
    assert faulty.read("commit") == b"theirs"


def test_an_answer_that_ends_in_the_middle_is_asked_for_again(faulty: RetryingStore, faults: StoreFaults) -> None:
    faulty.put("key", b"0123456789")
    faults.cut_within = 2
    assert faulty.read("key") == b"0123456789"
    assert faults.seen["GET"] == 3


def test_a_slow_answer_is_waited_for_and_one_that_never_comes_is_asked_for_again(
    faulty: RetryingStore, proxy: str, faults: StoreFaults
) -> None:
    faults.slow_s = [0.3]
    assert faulty.create("slow", b"ours")
    assert faults.seen["PUT"] == 1
    faults.slow_s = [1.2]
    hasty = behind(proxy, timeout_s=0.8)
    assert hasty.create("hangs", b"ours")
    assert faults.seen["PUT"] >= 3 and hasty.read("hangs") == b"ours"


def test_a_long_outage_is_reported_at_growing_intervals_and_ends_with_the_next_step(endpoint: str) -> None:
    reports: list[str] = []
    with store_servers.faulty_proxy(endpoint, StoreFaults()) as gone:
        pass
    outage = behind(gone, patience_s=600.0)
    patient = replace(outage, report_wait=reports.append)
    with pytest.raises(
        StorageError, match=r"no request has succeeded for \d+ s.*run the same command again"
    ) as raised:
        patient.put("key", b"data")
    assert 5 <= len(reports) <= 10
    assert all("waiting for the store since" in report and patient.address in report for report in reports)
    assert store_servers.SECRET not in str(raised.value) + "".join(reports)


@pytest.mark.parametrize(
    ("status", "what"),
    [(403, "refuses the credentials"), (401, "refuses the credentials"), (501, "check address")],
)
def test_what_waiting_does_not_mend_ends_at_once(
    faulty: RetryingStore, faults: StoreFaults, status: int, what: str
) -> None:
    said = b'<?xml version="1.0"?>\n<Error><Code>Denied</Code><Message>Not for you.</Message></Error>'
    faults.refuse = lambda method: (status, said)
    for request in (lambda: faulty.put("key", b"data"), lambda: faulty.list_objects("folder")):
        with pytest.raises(StorageError, match=rf"{what}|{status} Denied: Not for you") as raised:
            request()
        assert what in str(raised.value) and f"{status} Denied: Not for you." in str(raised.value)
    assert faults.seen == {"PUT": 1, "GET": 1}


@pytest.mark.parametrize("status", [400, 403])
def test_credentials_that_have_expired_are_waited_for(
    faulty: RetryingStore, faults: StoreFaults, status: int
) -> None:
    reports: list[str] = []
    expired = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
    faults.refuse = lambda method: (status, expired) if len(reports) < 2 else None
    renewed = replace(faulty, report_wait=reports.append, clock=itertools.count(0, 1.0).__next__)
    renewed.put("key", b"data")
    assert renewed.read("key") == b"data" and len(reports) == 2
    assert "the credentials of this process have expired; waiting for the store" in reports[0]


def test_a_bucket_that_is_not_there_is_named(endpoint: str) -> None:
    with pytest.raises(StorageError, match=r"s3://nothing/run.*no such bucket"):
        open_store("s3://nothing/run", config=store_servers.config(endpoint))
    with pytest.raises(StorageError, match="no such bucket; create it"):
        RemoteStore("s3://nothing/run", config=store_servers.config(endpoint), http=True).list_objects()


def test_without_credentials_the_message_names_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library asks the machine for a role, and its error is about that address alone."""
    for name in store_servers.KEYS:
        monkeypatch.delenv(name, raising=False)
    with answering(lambda handler: handler.send_error(403)) as role:
        monkeypatch.setattr(remote_store, "_OF_THE_MACHINE", role)
        store = RemoteStore("s3://bucket/run", config={"metadata_endpoint": role, "region": "us-east-1"}, http=True)
        with pytest.raises(StorageError, match=r"no credentials are set.*AWS_SECRET_ACCESS_KEY"):
            store.list_objects()


@contextmanager
def answering(answer: Callable[[BaseHTTPRequestHandler], object]) -> Iterator[str]:
    """The endpoint of a server that answers every request so."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    for method in ("GET", "DELETE"):
        setattr(Handler, f"do_{method}", answer)
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def google_store(endpoint: str) -> RemoteStore:
    key = {
        "gcs_base_url": endpoint,
        "disable_oauth": True,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
    }
    return RemoteStore(f"gs://{BUCKET}/run", config={"service_account_key": orjson.dumps(key).decode()}, http=True)


def test_keys_that_are_gone_do_not_matter_where_the_store_refuses_to_delete_them() -> None:
    """GCS and Azure do, and leave the rest: two agents may end the same claims."""
    there, code = {"first", "last"}, "NoSuchKey"

    def delete(request: BaseHTTPRequestHandler) -> None:
        key = request.path.rpartition("%2F")[2]
        request.send_response(204 if key in there else 404)
        text = b"" if key in there else f"<Error><Code>{code}</Code></Error>".encode()
        there.discard(key)
        request.send_header("Content-Length", str(len(text)))
        request.end_headers()
        request.wfile.write(text)

    with answering(delete) as endpoint:
        google_store(endpoint).delete(["gone"])
        google_store(endpoint).delete(["first", "gone", "last"])
        assert not there
        code = "NoSuchBucket"
        with pytest.raises(StorageError, match="no such bucket"):
            google_store(endpoint).delete(["gone"])


def test_the_environment_says_where_a_store_answers(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    for name, value in store_servers.config(endpoint).items():
        monkeypatch.setenv(f"AWS_{name.upper()}", str(value))
    open_store(f"s3://{BUCKET}/{uuid.uuid4().hex}").put("key", b"data")


def test_without_the_extra_one_line_says_how_to_install_it() -> None:
    program = (
        "import sys; sys.modules['obstore'] = None\n"
        "from distill.object_store.open_store import open_store\n"
        "open_store('here'); print(open_store('s3://bucket/run'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "obstore, which is not installed: pip install 'cot-distill[store]'" in done.stderr


def test_the_clock_of_a_store_is_the_date_of_its_answers_and_else_that_of_the_machine(endpoint: str) -> None:
    ahead_s = time.time() + 3600

    def refuse(request: BaseHTTPRequestHandler) -> None:
        request.send_response_only(403)
        request.send_header("Date", request.date_time_string(ahead_s))
        request.end_headers()

    def garble(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"no answer of a server\r\n\r\n")

    def misdate(request: BaseHTTPRequestHandler) -> None:
        request.send_response_only(200)
        request.send_header("Date", "today")
        request.end_headers()

    def at(address: str) -> float:
        return RemoteStore("s3://bucket/run", config=store_servers.config(address), http=True).now_s()

    with answering(refuse) as address:
        assert at(address) == int(ahead_s)
    with answering(garble) as garbled, answering(misdate) as misdated:
        for each in (
            address,
            garbled,
            misdated,
            endpoint,
        ):  # nothing answers at the first, the last has the right time
            before = int(time.time())
            assert before <= at(each) <= time.time(), each
