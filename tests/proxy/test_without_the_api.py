"""What the proxy answers when the API is away, or turns the caller away."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.service import Service, call, clean_environment, free_ports


@pytest.fixture
def lonely(tmp_path: Path) -> Iterator[str]:
    """The address of a proxy whose API does not run."""
    api_port, port = free_ports(2)
    environment = clean_environment(
        ERS_DATA_DIR=str(tmp_path / "data"),
        ERS_PROXY_PORT=str(port),
        ERS_BASE_URL=f"http://127.0.0.1:{api_port}",
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "encrypted_records.cli.main", "proxy"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: _answers(url) or process.poll() is not None, "it answers")
        assert process.poll() is None
        yield url
    finally:
        process.terminate()
        process.wait(60)


def _answers(url: str) -> bool:
    try:
        call("GET", f"{url}/")
    except OSError:
        return False
    return True


def test_an_api_that_is_away_is_a_502_with_its_code_and_never_an_empty_answer(lonely: str) -> None:
    basic = "Basic YWRhQGV4YW1wbGUub3JnOnB3"
    answers = [
        call("GET", f"{lonely}/api/status/"),
        call("GET", f"{lonely}/api/datasets/", auth=basic),
        call("POST", f"{lonely}/api/token/", {"email": "a", "password": "b"}),
        call("POST", f"{lonely}/api/records/ingest/", [], auth=basic),
        call("POST", f"{lonely}/api/records/search/", {}, auth=basic),
    ]

    for answer in answers:
        assert (answer.status, answer.json()["code"]) == (502, "api_unreachable")
        assert answer.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(
    "auth",
    [
        None,
        "Basic",
        "Basic !",
        "Basic bm9jb2xvbg==",
        "Basic YWRhQGV4YW1wbGUub3JnOndyb25n",
        "Bearer x.y.z",
        "Digest x",
    ],
)
def test_bad_credentials_are_401_and_name_both_schemes(service: Service, auth: str | None) -> None:
    answer = call("POST", f"{service.proxy_url}/api/records/search/", {}, auth=auth)

    assert answer.status == 401
    schemes = " ".join(answer.headers.get_all("WWW-Authenticate", []))
    assert "Basic" in schemes
    assert "Bearer" in schemes
