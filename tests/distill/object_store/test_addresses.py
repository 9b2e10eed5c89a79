"""Addresses of stores and endpoints that cannot be meant are refused with the next step, before any request."""

import pytest

from distill.errors import InputError
from distill.local_paths import address_problem
from distill.object_store.open_store import open_store


@pytest.mark.parametrize(
    "address",
    [
        "ftp://user:abcdef@host/run",
        "file://localhost/run",
        "s3:///run",
        "s3://key:abcdef@bucket/run",
        "s3://abcdef@bucket/run",
        "az://c/run?sig=abcdef",
    ],
)
def test_an_address_that_is_no_store_or_holds_credentials_is_refused(address: str) -> None:
    with pytest.raises(InputError, match=r"not a store|no bucket is named|credentials do not belong") as raised:
        open_store(address)
    assert "abcdef" not in str(raised.value)


@pytest.mark.parametrize(
    "address", ["s3://bucket/a/../b", "s3://bucket/%2e%2e/b", "s3://bucket/./b", "s3://bucket/b\n"]
)
def test_an_address_that_means_another_place_than_it_shows_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="no part of an address; write the name of each folder"):
        open_store(address)


@pytest.mark.parametrize(
    "endpoint", ["localhost:9000", "store", "http://", "http://h:99999", "http://a b", "ftp://h"]
)
def test_an_endpoint_that_is_no_url_is_an_error_in_one_line(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library of the store panics, which no handler of errors sees."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(InputError, match="not an endpoint of a store; write https://host"):
        open_store("s3://bucket/run", read_only=True)


@pytest.mark.parametrize("address", ["s3://bucket/run#2", "file:///data/run#2", "file:///data/run?2"])
def test_an_address_of_which_a_store_drops_the_end_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="two runs would share one place; write %23"):
        open_store(address)


@pytest.mark.parametrize("address", ["S3://bucket/run", "s3:/bucket/run", "s3a://bucket/run", "s3n://bucket/run"])
def test_an_address_in_another_spelling_is_told_how_it_is_written(address: str) -> None:
    assert "An address of a store is s3://bucket/folder, in small letters" in address_problem(address)
