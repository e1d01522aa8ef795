"""What Prometheus is told: figures of both sides, and nothing of what they are about."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from encrypted_records.index.segments.merge_policy import Tier
from tests.support import jobs
from tests.support.proxies import running_proxy
from tests.support.service import call, free_ports, running_service
from tests.support.store import Store, new_store

DEFINITION = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
    },
}
_SAMPLE = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Told:
    """What one side tells, as ``name`` and labels with their values."""

    port: int

    @property
    def text(self) -> str:
        answer = call("GET", f"http://127.0.0.1:{self.port}/metrics")
        assert answer.status == 200, answer.body
        return answer.body.decode()

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples that have these labels."""
        found = [
            float(match["value"])
            for line in self.text.splitlines()
            if (match := _SAMPLE.fullmatch(line)) and match["name"] == name
            if labels.items() <= dict(_LABEL.findall(match["labels"] or "")).items()
        ]
        return sum(found)


@dataclass(frozen=True)
class Place:
    store: Store
    api: Told
    proxy: Told


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    api, proxy = free_ports(2)
    with running_service(
        tmp_path_factory.mktemp("metrics") / "data",
        environment={"ERS_API_METRICS_PORT": str(api), "ERS_PROXY_METRICS_PORT": str(proxy)},
    ) as service:
        yield Place(new_store(service, DEFINITION), Told(api), Told(proxy))


@pytest.mark.parametrize("side", ["api", "proxy"])
def test_requests_are_counted_by_the_template_of_their_path_and_their_status(
    place: Place, side: str
) -> None:
    (record,) = place.store.ingest([{"city": "Rome"}])
    told, ask, route = {
        "api": (place.api, place.store.api, "/api/records/{pk}/"),
        "proxy": (place.proxy, place.store.proxy, "/api/records/{id}/"),
    }[side]
    series = {"method": "GET", "route": route}
    found = told.value("ers_requests_total", **series, status="200")
    missing = told.value("ers_requests_total", **series, status="404")
    timed = told.value("ers_request_seconds_count", **series)
    assert ask("GET", f"/api/records/{record}/").status == 200
    assert ask("GET", f"/api/records/{place.store.schema_id}/").status == 404
    assert told.value("ers_requests_total", **series, status="200") == found + 1
    assert told.value("ers_requests_total", **series, status="404") == missing + 1
    assert told.value("ers_request_seconds_count", **series) == timed + 2


def test_a_method_or_path_of_somebody_s_own_makes_no_series_of_its_own(place: Place) -> None:
    for told, url in (
        (place.api, place.store.service.base_url),
        (place.proxy, place.store.service.proxy_url),
    ):
        call("PROPFIND", f"{url}/secret-path/")
        text = told.text
        assert "PROPFIND" not in text and "secret-path" not in text
        assert told.value("ers_requests_total", method="other") >= 1


def test_jobs_segments_and_caches_are_told_and_nothing_of_what_is_in_them(place: Place) -> None:
    store = place.store.another_schema(DEFINITION)
    live = place.proxy.value("ers_live_segments")
    rows = [{"city": "Nowhere-on-Sea", "age": 93}, {"city": "Elsewhere", "age": 94}]
    (record, _) = store.ingest(rows)
    job = jobs.started(store, jobs.as_json(store, rows))
    jobs.completed(store, job)
    for _ in range(2):
        assert len(store.found({"field": "age", "op": "eq", "value": 93})) == 2
    assert place.proxy.value("ers_jobs", state="completed") == 1
    assert place.proxy.value("ers_jobs", state="failed") == 0
    assert place.proxy.value("ers_live_segments") == live + 2
    assert place.api.value("ers_live_segments") == place.proxy.value("ers_live_segments")
    assert place.api.value("ers_live_records") >= 4
    assert place.proxy.value("ers_cache_lookups_total", cache="segments", outcome="hit") >= 2
    assert place.proxy.value("ers_cache_lookups_total", cache="segments", outcome="miss") >= 2
    assert place.proxy.value("ers_cache_entries", cache="segments") >= 2
    assert place.proxy.value("ers_cache_bytes", cache="segments") > 0
    private = ("Nowhere-on-Sea", "Elsewhere", record, store.schema_id, job.split("/")[-2])
    account = (store.account.email, store.account.organization.split("/")[-2])
    for text in (place.api.text, place.proxy.text):
        assert [one for one in (*private, *account) if one in text] == []


def test_pending_merges_are_told(place: Place, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    base_url = place.store.service.base_url
    with running_proxy(base_url, tmp_path, metrics_port=port) as proxy:
        service = dataclasses.replace(place.store.service, proxy_url=proxy.url)
        told, store = Told(port), new_store(service, DEFINITION)
        for _ in range(3):
            store.ingest([{"age": 1}])
        assert (told.value("ers_live_segments"), told.value("ers_pending_merges")) == (3, 0)
        proxy.services.merger.tiers = (Tier(1 << 12, 2),)
        assert told.value("ers_pending_merges") == 1
        assert store.proxy("POST", f"{store.schema}merge/", {}).json()["merged"] == 3
        assert (told.value("ers_live_segments"), told.value("ers_pending_merges")) == (1, 0)


def test_only_this_machine_is_told_and_only_under_its_own_name(place: Place) -> None:
    listening = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    addresses = re.findall(r"\d+: (\w+):(\w{4}) \w+:0000 0A", listening)
    for told in (place.api, place.proxy):
        assert [at for at, port in addresses if int(port, 16) == told.port] == ["0100007F"]
        url = f"http://127.0.0.1:{told.port}"
        assert call("GET", f"{url}/metrics", headers={"Host": "rebound.example"}).status == 403
        assert call("GET", f"{url}/").status == 404
