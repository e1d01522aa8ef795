"""OPTIONS says what is spoken here."""

from __future__ import annotations

import pytest

from tests.proxy.tus.client import FILES, Client


@pytest.fixture(params=["the creation URL", "an upload", "without the final slash"])
def path(request: pytest.FixtureRequest, tus: Client) -> str:
    if request.param == "the creation URL":
        return FILES
    upload = tus.create(5)
    return upload + "/" if request.param == "an upload" else upload


def test_versions_extensions_algorithms_and_the_largest_size_are_named(
    tus: Client, path: str
) -> None:
    answer = tus.send("OPTIONS", path)
    assert answer.status in (200, 204)
    assert answer.body == b""
    assert answer.headers["Tus-Version"] == "1.0.0"
    assert answer.headers["Tus-Resumable"] == "1.0.0"
    assert set(answer.headers["Tus-Extension"].split(",")) == {
        "creation",
        "creation-with-upload",
        "creation-defer-length",
        "checksum",
        "termination",
        "expiration",
        "concatenation",
    }
    assert answer.headers["Tus-Checksum-Algorithm"].split(",") == ["sha256", "sha1", "md5"]
    assert int(answer.headers["Tus-Max-Size"]) > 2**31


@pytest.mark.parametrize("version", [None, "0.2.2", "nonsense"])
def test_the_version_of_the_client_does_not_matter(tus: Client, version: str | None) -> None:
    headers = {} if version is None else {"Tus-Resumable": version}
    asking = Client(tus.service, tus.account, headers)
    assert asking.send("OPTIONS", FILES).status == 204
