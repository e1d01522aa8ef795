"""What deploy/ has for a service that runs: nginx and Caddy in front of it, and what watches it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import pytest
from websockets.sync.client import connect

from encrypted_records.model import wire
from encrypted_records.server.gateway.admission import MAX_FRAMES_BYTES
from tests.deploy.files import documents, needed
from tests.deploy.fronts import NAMES, Front, running_caddy, running_nginx
from tests.deploy.watching import MONITORING, expressions, told, unknown
from tests.support.eventually import eventually
from tests.support.jobs import as_json, completed, messages
from tests.support.service import Service, call, free_ports, running_service
from tests.support.store import Store, new_store

#: Bytes of half an upload that must have come through.
LEAST = 1 << 20
#: Ports of both sides' figures, since the service was started.
METRICS: dict[str, int] = {}
SERVERS = {"nginx": running_nginx, "caddy": running_caddy}
COMMITS = "/api/commits/"
DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 1000},
    },
}


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that goes by both names, and believes who forwards on this machine."""
    METRICS.update(zip(NAMES, free_ports(2), strict=True))
    told = {
        "ERS_ALLOWED_HOSTS": ",".join(NAMES.values()),
        "ERS_TRUSTED_PROXIES": "127.0.0.1",
        "ERS_ACCESS": "api",
        **{f"ERS_{side.upper()}_METRICS_PORT": str(port) for side, port in METRICS.items()},
    }
    folder = tmp_path_factory.mktemp("behind") / "data"
    with running_service(folder, environment=told) as service:
        yield service


@pytest.fixture(scope="module", params=SERVERS)
def fronts(
    request: pytest.FixtureRequest, behind: Service, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Front]]:
    if shutil.which(request.param, path="/usr/sbin:/usr/bin:/usr/local/bin") is None:
        pytest.skip(f"there is no {request.param} on this machine")
    upstreams = {
        "api": behind.base_url.removeprefix("http://"),
        "proxy": behind.proxy_url.removeprefix("http://"),
    }
    with SERVERS[request.param](tmp_path_factory.mktemp(request.param), upstreams) as running:
        yield running


@pytest.fixture(scope="module")
def store(behind: Service) -> Store:
    return new_store(behind, DEFINITION)


def test_both_sides_answer_and_know_that_it_was_https(fronts: dict[str, Front]) -> None:
    for side, front in fronts.items():
        answer, body = front.ask("GET", "/api/status/", {})
        assert answer.status == 200, body
        assert json.loads(body).get("behind_proxy", False) is (side == "proxy")
    answer, _ = fronts["api"].ask("GET", "/api/status/", {})
    assert answer.headers["Strict-Transport-Security"]


def test_operators_do_not_come_by_the_public_name(fronts: dict[str, Front]) -> None:
    answer, body = fronts["api"].ask("GET", "/admin/login/", {})
    assert answer.status == 404
    assert b"application/problem+json" not in (answer.headers["Content-Type"] or "").encode()
    assert b"csrf" not in body


def test_the_largest_commit_reaches_the_api(fronts: dict[str, Front], store: Store) -> None:
    """It is none, so the API refuses it for what it is, and no web server for its size."""
    headers = {"Authorization": store.account.auth, "Content-Type": wire.MEDIA_TYPE}
    answer, told = fronts["api"].ask("POST", COMMITS, headers, bytes(MAX_FRAMES_BYTES))
    assert answer.status in (400, 415, 422), told
    assert json.loads(told)["code"]


def test_what_came_of_an_upload_that_broke_off_is_on_the_proxys_disk(
    fronts: dict[str, Front], store: Store
) -> None:
    """It passed through as it came: a web server that collects bodies would have dropped it."""
    front, length = fronts["proxy"], 16 << 20
    path, _ = created(front, store, length)
    half = b'[{"name": "' + b"x" * (length // 2)
    with front.connected() as connection:
        head = f"PATCH {path} HTTP/1.1\r\nHost: {front.name}:{front.port}\r\n"
        lines = {**part(store, 0), "Content-Length": str(length)}
        head += "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        connection.sendall(head.encode() + b"\r\n" + half)
        spool = store.service.data_dir / "proxy" / "spool"
        eventually(lambda: max((one.stat().st_size for one in spool.rglob("*")), default=0) > LEAST)
    eventually(lambda: offset_of(front, store, path) > LEAST)
    assert offset_of(front, store, path) <= len(half)


def test_an_upload_in_parts_becomes_records_while_a_socket_tells_of_it(
    fronts: dict[str, Front], store: Store
) -> None:
    front = fronts["proxy"]
    name = f"through {front.port}"
    body = as_json(store, [{"name": name, "n": number} for number in range(500)])
    path, told = created(front, store, len(body))
    job = told["X-Job-Id"]
    address = told["X-Job-Websocket-Url"]
    assert address == f"wss://{front.name}:{front.port}/api/ws/jobs/{job}/"
    half = len(body) // 2
    with connect(
        address,
        ssl=front.context,
        sock=front.connected_plain(),
        server_hostname=front.name,
        additional_headers={"Authorization": store.account.auth},
        proxy=None,
    ) as socket:
        for offset, piece in ((0, body[:half]), (half, body[half:])):
            answer, said = front.ask("PATCH", path, part(store, offset), piece)
            assert answer.status == 204, said
        last = [message["status"] for message in messages(socket)][-1]
    assert last == "completed"
    completed(store, f"/api/jobs/{job}/")
    assert len(store.everything({"field": "name", "op": "eq", "value": name})) == 500


def created(front: Front, store: Store, length: int) -> tuple[str, Message]:
    """The path of a new upload, and the headers that tell of it; its address must be one that the
    client can reach."""
    kind = b64encode(b"application/json").decode()
    headers = {
        "Authorization": store.account.auth,
        "Tus-Resumable": "1.0.0",
        "Upload-Length": str(length),
        "Upload-Metadata": f"filetype {kind}",
    }
    answer, body = front.ask("POST", "/api/files/", headers, b"")
    assert answer.status == 201, body
    location = answer.headers["Location"]
    assert location.startswith(f"{front.url}/api/files/"), location
    return location.removeprefix(front.url), answer.headers


def part(store: Store, offset: int) -> dict[str, str]:
    return {
        "Authorization": store.account.auth,
        "Tus-Resumable": "1.0.0",
        "Upload-Offset": str(offset),
        "Content-Type": "application/offset+octet-stream",
    }


def offset_of(front: Front, store: Store, path: str) -> int:
    """What the proxy has of an upload; -1 as long as another request holds it."""
    headers = {"Authorization": store.account.auth, "Tus-Resumable": "1.0.0"}
    answer, _ = front.ask("HEAD", path, headers)
    return int(answer.headers["Upload-Offset"]) if answer.status == 200 else -1


def test_the_service_does_not_go_by_other_names(behind: Service) -> None:
    answer = call("GET", f"{behind.proxy_url}/api/status/", headers={"Host": "other.example.org"})
    assert answer.status == 421


def test_alerts_and_dashboard_ask_for_nothing_but_what_the_two_sides_tell(
    behind: Service, store: Store
) -> None:
    assert store.send([{"name": "Ada", "n": 1}]).status == 201
    eventually(lambda: len(store.everything()) > 0)
    names: dict[str, set[str]] = {"ers_closed_connections_total": {"reason"}}
    for port in METRICS.values():
        answer = call("GET", f"http://127.0.0.1:{port}/metrics")
        assert answer.status == 200
        for name, labels in told(answer.body.decode()).items():
            names.setdefault(name, set()).update(labels)
    asked = list(expressions())
    assert len(asked) > 20
    assert {title: unknown(expression, names) for title, expression in asked} == {
        title: [] for title, _ in asked
    }
    assert unknown('ers_jobs{kind="x"} / ers_none', names) == ["ers_jobs.kind", "ers_none"]
    # Nothing that is told is left out of sight.
    seen = " ".join(expression for _, expression in asked)
    gauges = {re.sub("_(total|bucket|count|sum|created)$", "", name) for name in names}
    assert {name for name in gauges if name not in seen} == set()


def test_the_alerts_are_raised_by_what_they_are_for() -> None:
    promtool = needed("promtool")
    for arguments in (
        ["check", "config", "prometheus.yaml"],
        ["check", "rules", "alerts.yaml"],
        ["test", "rules", "alerts.test.yaml"],
    ):
        done = subprocess.run(
            [promtool, *arguments], cwd=MONITORING, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    rules = documents(MONITORING / "alerts.yaml")[0]["groups"][0]["rules"]
    tested = (MONITORING / "alerts.test.yaml").read_text()
    for rule in rules:
        assert f"alertname: {rule['alert']}\n" in tested, rule["alert"]
        assert {"summary", "action"} == set(rule["annotations"])


def test_every_expression_of_the_dashboard_can_be_read(tmp_path: Path) -> None:
    promtool = needed("promtool")
    rules = [{"record": f"r:{at}", "expr": one} for at, (_, one) in enumerate(expressions())]
    path = tmp_path / "rules.json"  # JSON is YAML
    path.write_text(json.dumps({"groups": [{"name": "all", "rules": rules}]}))
    done = subprocess.run(
        [promtool, "check", "rules", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
