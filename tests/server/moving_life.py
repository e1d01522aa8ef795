"""``ers storage move`` under SIGKILL at each of its steps, as a program of its own.

Rows and pages of the database, and objects of an old store, move to a new one. For each step there
is a move, from the same beginning, that dies before it; then everything must be readable, and the
next move must finish. To a store that speaks S3 each move goes on from where the one before died,
one step later.

Arguments: data folder, URL of the new store or nothing, path of a file with the members of an
account. How many steps there were goes to stdout, as JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encrypted_records.model.records import Page, SealedRow
from tests.server.api import Account
from tests.server.bulk_life import Forks, Killed, left, sweep_all
from tests.server.staged import Job
from tests.server.writer import Writer, person, segment_over

#: More than a block holds.
MANY = 70
#: Statements that find records by their ids, however many they are.
MOST_ASKED = 8
#: A group in each place, and two pages.
_OBJECTS, _PAGES = 2, 2


def stored(forks: Forks, writer: Writer, url: str) -> tuple[Job, list[SealedRow], Job, list[Page]]:
    """A job's rows and the pages of a merge, in the store of this URL."""
    from django.conf import settings

    from encrypted_records.server.objects import choice

    settings.BULK_URL, settings.BULK_BEFORE = url, ""
    choice.chosen.cache_clear()
    rows = [person() for _ in range(MANY)]
    job = Job(writer)
    job.stage(job.adding(0, rows))
    commit = job.commit()
    assert job.publish(commit).status == 201
    writer.follow(commit)
    groups = {uid: group.count for uid, group in job.groups.items()}
    merge = Job(writer)
    merged = segment_over(groups.items(), "paged", pages=_PAGES)
    pages = [
        Page(merged.uid, number, b"\x01" + os.urandom((16 << 10) - 1)) for number in range(_PAGES)
    ]
    merge.stage(merge.part(0, [], [merged], [], pages))
    commit = merge.commit(replaced=list(job.segments))
    assert merge.publish(commit).status in (200, 201)
    writer.follow(commit)
    forks.fork(sweep_all)
    return job, rows, merge, pages


def move() -> None:
    from encrypted_records.server.inventory import moving

    one = moving.Move()
    one.run()
    assert one.damaged == []


def flaws() -> list[Any]:
    from encrypted_records.server.inventory import verifying

    done = verifying.Verification()
    found = list(done.flaws())
    assert (done.rows, done.pages) == (2 * MANY, 2 * _PAGES), vars(done)
    assert done.unknown == []
    return found


@dataclass
class Moves(Forks):
    """Forks whose looks are those of a move."""

    look: Callable[[], None] = lambda: None

    def check(self) -> dict[str, int]:
        self.look()
        return {}


def live(account: Account, forks: Moves, data: Path, url: str) -> dict[str, Any]:
    from django.conf import settings

    from encrypted_records.server.objects import choice

    old, new = (f"file://{forks.objects}/{name}?least=0" for name in ("old", "new"))
    new = url or new
    writer = Writer(account, account.new_schema())
    every = [stored(forks, writer, url) for url in ("database://", old)]
    settings.BULK_URL, settings.BULK_BEFORE = new, old
    choice.chosen.cache_clear()

    def check() -> None:
        sweep_all()
        assert flaws() == []
        for job, rows, merge, pages in every:
            read(next(iter(job.groups)), rows, next(iter(merge.segments)), pages)

    def check_whole() -> None:
        check()
        assert counts() == (0, 0)
        assert [path for path in (forks.objects / "old").rglob("*") if path.is_file()] == []
        assert left(forks.objects) == {"named": 2 * _OBJECTS}

    def go_on() -> None:
        check()
        move()
        check_whole()

    if url:
        forks.look, forks.dies_at = check, 1
        forks.live_through("move", move)
        forks.fork(check_whole)
        return {"steps": len(forks.deaths["move"])}
    begin = data.with_name("begin")
    folders = (data / "api", forks.objects)
    for folder in folders:
        shutil.copytree(folder, begin / folder.name)
    steps = 0
    while died(forks, move, steps + 1):
        steps += 1
        forks.fork(go_on)
        for folder in folders:
            shutil.rmtree(folder)
            shutil.copytree(begin / folder.name, folder)
    forks.fork(check_whole)
    return {"steps": steps}


def read(group: bytes, rows: list[SealedRow], segment: bytes, pages: list[Page]) -> None:
    """Everything is there, by place and by id, as requests are answered."""
    from encrypted_records.server.records.models import IndexSegment, RecordGroup
    from encrypted_records.server.rows import contents

    one = RecordGroup.objects.get(uid=group)
    found = contents.live_rows(one, offset=0, limit=MANY)
    assert [(row.record_id, row.fields) for row in found] == [
        (row.record_id, row.fields) for row in rows
    ]
    wanted = [row.record_id for row in rows]
    with counting() as asked:
        by_id = contents.live_rows_of(wanted)
    assert {name: len(own) for name, own in by_id.items()} == dict.fromkeys(wanted, 1)
    assert len(asked) <= MOST_ASKED, asked
    number = IndexSegment.objects.get(uid=segment).pk
    got = contents.pages_at([(number, page.number) for page in pages])
    assert [got[number, page.number] for page in pages] == [page.data for page in pages]


@contextmanager
def counting() -> Iterator[list[str]]:
    """The statements that Django is given meanwhile."""
    from django.db import connection

    asked: list[str] = []

    def note(execute: Any, sql: str, *rest: Any) -> Any:
        asked.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(note):
        yield asked


def died(forks: Forks, function: Callable[[], None], step: int) -> bool:
    try:
        forks.fork(function, step, checks=False)
    except Killed:
        return True
    return False


def counts() -> tuple[int, int]:
    from encrypted_records.server.records.models import IndexPage, RecordRow

    return RecordRow.objects.count(), IndexPage.objects.count()


def main(data_dir: str, url: str, credentials: str) -> None:
    objects = Path(data_dir).parent / "objects"
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "encrypted_records.server.settings",
        "ERS_DATA_DIR": data_dir,
        "ERS_BULK_URL": "database://",
    }
    import django
    from django.db import connections

    django.setup()
    # So that no child has to load it.
    from django.test import Client

    from encrypted_records.server.erasure import sweeping  # noqa: F401
    from encrypted_records.server.inventory import moving, verifying  # noqa: F401
    from encrypted_records.server.rows import contents  # noqa: F401

    assert Client(SERVER_NAME="127.0.0.1").get("/api/status/").status_code == 200
    connections.close_all()
    if url:
        import obstore  # noqa: F401  as of :mod:`.bulk_life`
    forks = Moves(objects)
    api: Any = forks
    account = Account(api, **json.loads(Path(credentials).read_text()))
    sys.stdout.write(json.dumps(live(account, forks, Path(data_dir), url)))


if __name__ == "__main__":
    main(*sys.argv[1:])
