"""What those do who meet in :mod:`.erasure_life`, with Django in this process."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from encrypted_records.model.records import RowRef, SealedRow
from tests.server.api import Account
from tests.server.bulk_life import Forks
from tests.server.staged import Job
from tests.server.writer import Writer, person
from tests.support.eventually import eventually

OLD = "2001-01-01 00:00:00+00:00"
#: More than a block holds, and so many that one of them is few.
MANY = 70
#: Seconds after which something hangs.
HANGS = 60.0


class Here(Forks):
    """The API in this process: nobody is killed here."""

    def fork(self, function: Callable[[], Any], dies_at: int = 0, *, checks: bool = True) -> Any:
        return function()


def prepare(data_dir: str, database_url: str, credentials: str) -> tuple[Here, Account]:
    """Have Django ready for the data of an API that is not running, and an account that it has."""
    objects = Path(data_dir).parent / "objects"
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "encrypted_records.server.settings",
        "ERS_DATA_DIR": data_dir,
        "ERS_BULK_URL": f"file://{objects}?least=0",
    }
    if database_url:
        os.environ["ERS_DATABASE_URL"] = database_url
    import django

    django.setup()
    here = Here(objects)
    api: Any = here
    return here, Account(api, **json.loads(Path(credentials).read_text()))


class Scenes:
    """What is there before somebody meets."""

    def __init__(self, forks: Here, account: Account) -> None:
        self._forks, self._account = forks, account

    def _writer(self) -> Writer:
        return Writer(self._account, self._account.new_schema())

    def _staged(self, writer: Writer, count: int = MANY) -> tuple[bytes, list[SealedRow]]:
        """Rows in an object."""
        rows = [person() for _ in range(count)]
        job = Job(writer)
        job.stage(job.adding(0, rows))
        commit = job.commit()
        assert job.publish(commit).status == 201
        writer.follow(commit)
        return next(iter(job.groups)), rows

    def _killed(self, writer: Writer, group: bytes, *ordinals: int) -> None:
        writer.send(writer.make(killed=[RowRef(group, at) for at in ordinals]))

    def _dead(self, *ordinals: int, rows: int = MANY) -> tuple[str, bytes]:
        """A schema with a group in an object of which rows are dead."""
        writer = self._writer()
        group, _ = self._staged(writer, rows)
        self._killed(writer, group, *ordinals)
        return str(writer.schema["id"]), group


def place(module: object, name: str, function: Callable[..., Any]) -> None:
    """Have a module call this in place of a function of its own."""
    setattr(module, name, function)


def no_room(*_: Any) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def ask(schema: str) -> None:
    from django.db import transaction

    from encrypted_records.server.datasets.models import Schema
    from encrypted_records.server.erasure import erasing

    with transaction.atomic():
        erasing.ask(Schema.objects.select_for_update().get(pk=schema))


def left(schema: str) -> Any:
    from encrypted_records.server.datasets.models import Schema
    from encrypted_records.server.erasure import erasing

    one = Schema.objects.get(pk=schema)
    return erasing.left_of(one, one.version)


def until_quiet() -> int:
    """Sweep until nothing is due; how many pieces that took."""
    from encrypted_records.server.erasure import erasing

    for pieces in range(100):
        if not erasing.sweep():
            return pieces
    raise AssertionError("there is always more")


def due(group: bytes) -> None:
    """The group is to be looked at now, before any other."""
    from encrypted_records.server.erasure import erasing
    from encrypted_records.server.records.models import RecordGroup

    own = RecordGroup.objects.get(uid=group).schema_id
    before = RecordGroup.objects.filter(schema__lt=own).order_by("-schema")
    last = before.values_list("schema_id", flat=True).first()
    erasing.turn.of_requested = erasing.turn.of_all = last
    assert RecordGroup.objects.filter(uid=group).update(erase_at=OLD) == 1


def wait_of(group: bytes) -> float:
    """Seconds until the group is looked at again."""
    from django.utils import timezone

    from encrypted_records.server.records.models import RecordGroup

    at = RecordGroup.objects.get(uid=group).erase_at
    return 0.0 if at is None else float((at - timezone.now()).total_seconds())


def long_dead(schema: str) -> None:
    """What died in a schema died before the grace time."""
    from encrypted_records.server.records.models import CommitLog

    assert CommitLog.objects.filter(schema=schema).update(created=OLD)


def rewrite(group: bytes) -> None:
    """Have another row of the group die and go, as one that died long ago."""
    from encrypted_records.server.erasure import erasing
    from encrypted_records.server.records import store
    from encrypted_records.server.records.models import RecordGroup

    number = RecordGroup.objects.get(uid=group).pk
    at = 10 + len(store.dead_of(number))
    store.add_dead([(number, at, 1)])
    due(group)
    assert erasing.sweep()


def object_of(group: bytes) -> str:
    from encrypted_records.server.records.models import BulkObject, RecordGroup, RowPart

    part = RowPart.objects.get(group_id=RecordGroup.objects.get(uid=group).pk)
    return str(BulkObject.objects.get(pk=part.object_id).name)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def flaws() -> list[Any]:
    from encrypted_records.server.inventory import verifying

    return list(verifying.Verification().flaws())


def states(little: int = 0) -> dict[str, str]:
    from encrypted_records.server.inventory import examining

    return {result.check: result.state for result in examining.check_all(little)}


def until_one_waits() -> None:
    """Until a session of PostgreSQL waits for a lock."""
    from django.db import connection

    def one_waits() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid IN"
                " (SELECT pid FROM pg_stat_activity WHERE datname = current_database())"
            )
            return bool(cursor.fetchone() != (0,))

    eventually(one_waits, "a session waits for a lock", HANGS)
