"""Mirrors of data that is merged, compacted and sealed again; and mirrors in a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from encrypted_records.errors import Locked
from encrypted_records.index.segments.merge_policy import CrowdSizes, Tier
from encrypted_records.mirror.copy import MirrorCopy
from encrypted_records.mirror.layout import open_store, read_head
from encrypted_records.mirror.serving import serving_inline
from encrypted_records.mirror.verifying import MirrorVerifier
from encrypted_records.proxy.settings import MirrorPlace, Overrides
from tests.mirror.conftest import DEFINITION
from tests.mirror.copies import Place
from tests.mirror.test_reading_a_mirror import people
from tests.support.fixtures import at
from tests.support.proxies import running_proxy
from tests.support.service import Service
from tests.support.store import Store, new_store
from tests.support.swift import Swift

#: Segments merge early, and small groups become one.
EARLY = Overrides(tiers=(Tier(4096, 2),), crowds=CrowdSizes(few=3, small=(64,), rows=64, groups=64))


def test_what_is_compacted_and_merged_is_followed_from_copy_to_copy(
    service: Service, tmp_path: Path
) -> None:
    place = Place(tmp_path / "mirror", tmp_path / "data")
    made = new_store(service, DEFINITION)
    with running_proxy(service.base_url, place.data_dir, overrides=EARLY) as proxy:
        store = at(made, proxy)
        records: list[str] = []
        groups: set[bytes] = set()
        for person in people(14):
            records += store.ingest([person])
            if len(records) % 3 == 0:
                assert store.proxy("DELETE", f"/api/records/{records[-2]}/").status == 204
            if len(records) % 5 == 0:
                proxy.settle()
            if len(records) % 4 == 0:
                place.copy(store)
                assert place.flaws() == []
                copy = MirrorCopy(place.folder, read_head(place.folder))
                snapshot = copy.log(store.schema_id).ledger.snapshot()
                groups |= set(snapshot.groups)
        proxy.settle()
        place.copy(store)
        expected = store.everything()
    copy = MirrorCopy(place.folder, read_head(place.folder))
    left = copy.log(store.schema_id).ledger.snapshot().groups

    assert place.flaws() == []
    assert groups - set(left), "groups have become one"
    with place.read(store) as mirrored:
        assert mirrored.everything() == expected
        for record in expected[:3]:
            answer = mirrored.proxy("GET", f"/api/records/{record['id']}/")
            assert answer.json()["data"] == record["data"]


def test_a_reader_goes_on_to_a_newer_copy_by_itself(store: Store, place: Place) -> None:
    records = store.ingest(people(20))
    place.copy(store)

    with place.read(store) as mirrored:
        assert mirrored.found() == records
        assert store.proxy("DELETE", f"/api/records/{records[4]}/").status == 204
        more = store.ingest(people(2))
        place.copy(store)
        assert mirrored.found() == [*(one for one in records if one != records[4]), *more]


def test_two_runs_do_not_write_into_one_folder_at_once(store: Store, place: Place) -> None:
    store.ingest(people(1))
    with place.folder.alone(), pytest.raises(Locked) as raised:
        place.copy(store)
    assert raised.value.reason == "mirror_in_use"
    place.copy(store)
    assert place.flaws() == []


def test_a_mirror_lies_in_a_bucket_as_well(
    store: Store, place: Place, swift: Swift, monkeypatch: pytest.MonkeyPatch
) -> None:
    swift.make_bucket("mirrors")
    for name, value in swift.credentials.items():
        monkeypatch.setenv(name, value)
    bucket = open_store(f"s3://mirrors/of/ours?endpoint={swift.endpoint}")
    records = store.ingest(people(30))
    place.copy(store, bucket)
    assert store.proxy("DELETE", f"/api/records/{records[0]}/").status == 204
    copied = place.copy(store, bucket)
    assert copied.deleted > 0

    proof = MirrorVerifier(bucket, lambda _line: None).run()
    assert (proof.flaws, proof.rows) == ([], 29)
    with (
        serving_inline(bucket) as (url, secret),
        running_proxy(url, place.data_dir, mirror=MirrorPlace("s3://mirrors", secret)) as proxy,
    ):
        assert at(store, proxy).found() == records[1:]
    (rows,) = [name for name in bucket.names() if name.endswith("/0-29")]
    bucket.write(rows, bucket.read(rows)[:-1])
    assert rows in " ".join(MirrorVerifier(bucket, lambda _line: None).run().flaws)
