"""``ers proxy accept-rollback``: after the API's database was put back under a proxy that has seen
more."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.command import Ers, environment, run_here
from tests.cli.test_share import SCHEMA, Two
from tests.support.service import Service, clean_environment, free_ports, running_service, state_of


class Before(Two):
    """Two people of an organization, as its API had them once."""

    def store(self, name: str) -> None:
        record = f'{{"name": "{name}"}}'
        self.as_ada().done("record", "create", "--schema", "patient", "--file", "-", typed=record)

    def names(self) -> list[str]:
        found = self.as_ada().done("record", "search", "--schema", "patient").lines
        return sorted(one["data"]["name"] for one in found)


@contextmanager
def put_back(service: Service, folder: Path) -> Iterator[Service]:
    """The database and objects of a backup, under the proxy's folder as it is now."""
    restored = folder / "restored"
    service.stop()
    told = clean_environment()
    assert run_here(told, "restore", str(folder / "backup"), "--data-dir", str(restored)).code == 0
    shutil.rmtree(restored / "proxy")
    shutil.copytree(service.data_dir / "proxy", restored / "proxy")
    # What commands keep, they keep by the place of the proxy.
    shutil.copytree(service.state_dir, state_of(restored))
    ports = [int(url.rpartition(":")[2]) for url in (service.base_url, service.proxy_url)]
    with running_service(restored, ports=ports) as again:
        yield again


def test_roster_and_logs_are_taken_back_together_and_what_is_lost_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_service(tmp_path / "data", ports=free_ports(2)) as service:
        ada, grace = service.new_account(), service.new_account()
        ers = Ers(monkeypatch, capsys, **environment(service, ada))
        place = Before(ers, service, ada, grace)
        place.join()
        made = ("schema", "create", "--dataset", "medical", "--name", "Patient")
        ers.done(*made, "--slug", "patient", "--file", "-", typed=SCHEMA)
        place.store("Ada")
        told = clean_environment()
        backup = ("backup", str(tmp_path / "backup"), "--data-dir", str(service.data_dir))
        assert run_here(told, *backup).code == 0
        place.store("Alan")
        place.as_ada().done("organization", "member", "delete", grace.email, "--yes")

        with put_back(service, tmp_path) as restored:
            place.running = restored
            refused = place.as_ada()("record", "search", "--schema", "patient")
            assert (refused.code, "accept-rollback" in refused.err) == (4, True), refused.err
            doctor = ers("doctor").out
            assert "accept-rollback" in doctor
            assert "keyring restore" not in doctor
            unasked = ers("proxy", "accept-rollback")
            assert (unasked.code, "--yes" in unasked.err) == (2, True)
            said = ers.done("proxy", "accept-rollback", "--yes")
            assert f"Lost: {grace.email} was removed, and is a member again, on 20" in said.err
            assert "has not kept" not in said.err
            assert "Accepting it gives up the changes in version 2" in said.err
            assert "Accepted: the roster of" in said.out
            assert "Accepted: patient is at version 1." in said.out
            assert place.names() == ["Ada"]
            assert set(place.people()) == {ada.email, grace.email}
            assert "accepts another roster of organization" in restored.log
            # It goes on from there, and the lost removal can be made again.
            place.store("Alan")
            place.as_ada().done("organization", "member", "delete", grace.email, "--yes")
            assert set(place.people()) == {ada.email}
            assert place.names() == ["Ada", "Alan"]
            assert "nothing to accept" in ers.done("proxy", "accept-rollback").out


def test_a_file_whose_records_a_restored_api_has_lost_is_stored_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, lost = tmp_path / "kept.csv", tmp_path / "lost.csv"
    kept.write_text("name\nAda\n")
    lost.write_text("name\nAlan\n")
    with running_service(tmp_path / "data", ports=free_ports(2)) as service:
        ada = service.new_account()
        ers = Ers(monkeypatch, capsys, **environment(service, ada))
        ers.done("dataset", "create", "--name", "Medical", "--slug", "medical")
        made = ("schema", "create", "--dataset", "medical", "--name", "Patient")
        ers.done(*made, "--slug", "patient", "--file", "-", typed=SCHEMA)
        store = ("import", "--exact", "--schema", "patient")
        ers.done(*store, kept)
        backup = ("backup", str(tmp_path / "backup"), "--data-dir", str(service.data_dir))
        assert run_here(clean_environment(), *backup).code == 0
        ers.done(*store, lost)
        with put_back(service, tmp_path) as restored:
            ers.set(**environment(restored, ada))
            unaccepted = ers(*store, lost)
            assert (unaccepted.code, "accept-rollback" in unaccepted.err) == (4, True)
            ers.done("proxy", "accept-rollback", "--yes")
            ers.done(*store, lost)
            for path in (kept, lost):
                repeated = ers(*store, path)
                assert (repeated.code, "stored this file at" in repeated.err) == (4, True)
            found = ers.done("record", "search", "--schema", "patient").lines
            assert sorted(one["data"]["name"] for one in found) == ["Ada", "Alan"]
