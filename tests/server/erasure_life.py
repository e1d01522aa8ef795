"""Erasures that meet sweeps, moves, deletions and readers, as a program of its own.

Who comes in between, and where, is said exactly, so that no meeting is left to luck.

Arguments: data folder, URL of the database or nothing, path of a file with the members of an
account. The names of the meetings go to stdout, as JSON.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.server.erasure_steps import (
    HANGS,
    MANY,
    OLD,
    Scenes,
    ask,
    due,
    flaws,
    left,
    long_dead,
    names,
    no_room,
    object_of,
    place,
    prepare,
    rewrite,
    states,
    until_one_waits,
    until_quiet,
    wait_of,
)
from tests.server.writer import body_of, person

#: More values than an older SQLite takes in a statement.
MOST_VALUES = 1000


class Meetings(Scenes):
    """Each method is one; it returns what has to be done with Django."""

    def asked_for_while_a_sweep_looks_at_the_group(self) -> Callable[[], None]:
        schema, group = self._dead(5)

        def meet() -> None:
            from encrypted_records.server.erasure import erasing

            due(group)
            original = erasing._rewrite_one

            def with_asking(*arguments: Any) -> bool:
                place(erasing, "_rewrite_one", original)
                ask(schema)
                return original(*arguments)

            place(erasing, "_rewrite_one", with_asking)
            until_quiet()
            assert wait_of(group) < 60
            due(group)
            until_quiet()
            assert left(schema).nothing

        return meet

    def asked_for_while_an_object_is_written_again(self) -> Callable[[], None]:
        schema, group = self._dead(*range(MANY // 2))

        def meet() -> None:
            from encrypted_records.server.erasure import erasing, sweeping
            from encrypted_records.server.records.models import AskedErasure, BulkObject

            own = object_of(group)
            long_dead(schema)
            due(group)
            original = erasing._limits

            def with_asking(of: str) -> Any:
                found = original(of)
                place(erasing, "_limits", original)
                ask(schema)
                return found

            place(erasing, "_limits", with_asking)
            done = False
            for _ in range(5):
                sweeping.look()
                asked = AskedErasure.objects.get(schema=schema)
                done = asked.done == asked.up_to
                there = BulkObject.objects.filter(name=own).exists()
                assert not (done and there), "the bytes are there, and it says that they are gone"
            assert done
            assert own not in names(self._forks.objects)

        return meet

    def a_store_without_room(self) -> Callable[[], None]:
        schema, group = self._dead(5)
        other, gone = self._dead(*range(MANY))

        def meet() -> None:
            from encrypted_records.server.erasure import sweeping

            ask(other)
            own = object_of(gone)
            ask(schema)
            due(group)  # before the other one
            original = os.write
            os.write = no_room  # as a full disk has it
            try:
                sweeping.look()
                assert left(schema).rows == 1
                sweeping.look()
            finally:
                os.write = original
            assert own not in names(self._forks.objects)
            due(group)
            sweeping.look()
            assert left(schema).nothing

        return meet

    def a_sweep_between_the_steps_of_a_move(self) -> Callable[[], None]:
        schema, group = self._dead(5)
        objects_folder = self._forks.objects

        def meet() -> None:
            from django.conf import settings

            from encrypted_records.server.inventory import moving, walk
            from encrypted_records.server.objects import choice, objects
            from encrypted_records.server.records.models import BulkObject

            settings.BULK_BEFORE = settings.BULK_URL
            settings.BULK_URL = f"file://{objects_folder.with_name('new')}?least=0"
            choice.chosen.cache_clear()
            own = object_of(group)
            original = os.open

            def with_sweep(path: Any, flags: int, *more: Any, **options: Any) -> int:
                if flags & os.O_CREAT and Path(path).stem == own:
                    os.open = original
                    ask(schema)
                    until_quiet()
                    held = choice.chosen().store
                    assert held is not None
                    held.delete([own])  # which the sweep does before it forgets the object
                return original(path, flags, *more, **options)

            os.open = with_sweep
            move = moving.Move()
            move.run()
            assert os.open is original
            assert move.damaged == []
            assert BulkObject.objects.get(name=own).state == objects.DOOMED
            BulkObject.objects.filter(name=own).delete()  # the rest of that sweep
            assert own not in names(objects_folder.with_name("new"))
            assert list(walk.strangers()) == []
            # Back again, for whoever comes next.
            settings.BULK_URL, settings.BULK_BEFORE = settings.BULK_BEFORE, settings.BULK_URL
            choice.chosen.cache_clear()
            again = moving.Move()
            again.run()
            assert again.objects > 0
            settings.BULK_BEFORE = ""
            choice.chosen.cache_clear()
            assert flaws() == []

        return meet

    def a_schema_that_is_deleted_while_its_rows_go(self) -> Callable[[], None]:
        schema, group = self._dead(5)

        def meet() -> None:
            from django.db import connection, connections, transaction

            from encrypted_records.server.datasets.models import Schema
            from encrypted_records.server.datasets.views import erase
            from encrypted_records.server.erasure import erasing
            from encrypted_records.server.objects import objects
            from encrypted_records.server.records import store

            own = object_of(group)
            ask(schema)
            due(group)
            failed: list[BaseException] = []

            def delete() -> None:
                try:
                    with transaction.atomic():
                        erase(Schema.objects.select_for_update().get(pk=schema))
                except BaseException as error:
                    failed.append(error)
                finally:
                    connections.close_all()

            deleting = threading.Thread(target=delete)
            original = objects.replace

            def with_deletion(*arguments: Any, **options: Any) -> None:
                deleting.start()
                if connection.vendor == "postgresql":
                    until_one_waits()
                original(*arguments, **options)

            objects.replace = with_deletion
            erasing.sweep()
            deleting.join(HANGS)
            objects.replace = original
            assert not deleting.is_alive()
            assert failed == []
            until_quiet()
            while objects.sweep(store.kept_for()):
                pass
            assert own not in names(self._forks.objects)
            assert not Schema.objects.filter(pk=schema).exists()

        return meet

    def somebody_who_deletes_from_many_groups_and_another_from_one(self) -> Callable[[], None]:
        much, little = self._writer(), self._writer()
        for _ in range(4):
            group, _ = self._staged(much)
            self._killed(much, group, *range(20))
        group, _ = self._staged(little)
        self._killed(little, group, 3)
        busy, schema = str(much.schema["id"]), str(little.schema["id"])

        def meet() -> None:
            from encrypted_records.server.erasure import erasing

            until_quiet()
            ask(busy)
            ask(schema)
            for _ in range(4):
                assert erasing.sweep()
            assert left(schema).nothing
            assert left(busy).rows >= 20

        return meet

    def somebody_who_reads_while_the_log_of_sqlite_is_emptied(self) -> Callable[[], None]:
        self._writer()

        def meet() -> None:
            from django.db import connection, connections

            from encrypted_records.server.erasure import sweeping

            if connection.vendor != "sqlite":
                assert sweeping.empty_log()
                return
            reading, stop = threading.Event(), threading.Event()

            def read() -> None:
                with connection.cursor() as cursor:
                    cursor.execute("BEGIN")
                    cursor.execute("SELECT count(*) FROM record_group")
                    cursor.fetchall()
                    reading.set()
                    stop.wait(HANGS)
                    cursor.execute("ROLLBACK")
                connections.close_all()

            reader = threading.Thread(target=read)
            reader.start()
            assert reading.wait(HANGS)
            with connection.cursor() as cursor:
                cursor.execute("UPDATE record_group SET erased = erased")
                cursor.execute("PRAGMA busy_timeout")
                usual = cursor.fetchone()
            assert not sweeping.empty_log()  # while the reader goes on
            with connection.cursor() as cursor:
                cursor.execute("PRAGMA busy_timeout")
                assert cursor.fetchone() == usual
            stop.set()
            reader.join()
            assert sweeping.empty_log()

        return meet

    def a_walk_through_what_was_erased(self) -> Callable[[], None]:
        writer = self._writer()
        group, _ = self._staged(writer)
        upload = writer.adding([person() for _ in range(MANY)])
        writer.send(upload)
        [small] = body_of(upload).groups
        for one in (group, small.uid):
            self._killed(writer, one, 0, 5, 64)
        schema = str(writer.schema["id"])

        def meet() -> None:
            from django.db import connection

            from encrypted_records.server.erasure import sweeping
            from encrypted_records.server.inventory import moving, verifying

            ask(schema)
            until_quiet()
            assert left(schema).nothing
            assert flaws() == []
            # Rows move without those that are gone.
            move = moving.Move()
            move.run()
            assert move.rows >= MANY - 3
            assert move.damaged == []
            assert flaws() == []
            # Written again twice while it is looked at.
            original = verifying.row_runs_of
            times = iter(range(3))

            def with_erasure(*arguments: Any) -> Any:
                if arguments[3] == group and next(times, None) is not None:
                    rewrite(group)
                    sweeping.look()
                return original(*arguments)

            place(verifying, "row_runs_of", with_erasure)
            assert flaws() == []
            assert next(times, None) is None
            place(verifying, "row_runs_of", original)
            with connection.cursor() as cursor:
                cursor.execute(
                    "UPDATE erased_row SET digest = %s WHERE ordinal = 5 AND group_id ="
                    " (SELECT id FROM record_group WHERE uid = %s)",
                    [bytes(32), group],
                )
            assert [flaw.state for flaw in flaws()] == ["altered"]

        return meet

    def more_rows_than_a_statement_has_values(self) -> Callable[[], None]:
        schema, group = self._dead(*range(MOST_VALUES), rows=MOST_VALUES + MANY)

        def meet() -> None:
            from django.db import connection

            if connection.vendor == "sqlite":  # as built by default before 2020
                most = connection.connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 999)
            ask(schema)
            due(group)
            until_quiet()
            if connection.vendor == "sqlite":
                connection.connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, most)
            assert left(schema).nothing

        return meet

    def a_list_by_a_log_from_before_an_erasure(self) -> Callable[[], None]:
        schema, group = self._dead(5)

        def meet() -> None:
            from encrypted_records.server.datasets.models import Schema
            from encrypted_records.server.records.models import DeadRow, RecordGroup
            from encrypted_records.server.rows import queries

            ask(schema)
            due(group)
            until_quiet()
            # As after the restoration of a database, and ers storage reconcile.
            of_group = RecordGroup.objects.filter(uid=group)
            assert DeadRow.objects.filter(group_id=of_group.get().pk).delete()[0] == 1
            of_group.update(live=MANY)
            listed = queries.list_live(Schema.objects.get(pk=schema), offset=0, limit=1000)
            assert [record.ordinal for record in listed] == [*range(5), *range(6, MANY)]

        return meet

    def a_move_that_finds_no_room_in_the_middle_of_a_group(self) -> Callable[[], None]:
        writer = self._writer()
        upload = writer.adding([person() for _ in range(MANY)])
        writer.send(upload)
        [group] = body_of(upload).groups

        def meet() -> None:
            from encrypted_records.errors import StoreFull
            from encrypted_records.server.inventory import moving
            from encrypted_records.server.objects import layout
            from encrypted_records.server.records.models import RecordGroup, RecordRow, RowPart

            number = RecordGroup.objects.get(uid=group.uid).pk
            parts = RowPart.objects.filter(group_id=number).order_by("first")
            rows = RecordRow.objects.filter(group_id=number)
            flawed, most, original = flaws(), layout.MOST_BYTES, os.write
            layout.MOST_BYTES = 1  # a run of rows is as long as an object

            def room_for_the_first(descriptor: int, data: Any) -> int:
                last = layout.row_head(group.uid, 64, MANY - 64)
                return no_room() if data[: len(last)] == last else original(descriptor, data)

            os.write = room_for_the_first
            try:
                moving.Move().run()
            except StoreFull:
                pass
            else:
                raise AssertionError("there was room")
            os.write = original
            # It takes no more than an object at a time, and keeps what it has moved.
            assert list(parts.values_list("first", flat=True)) == [0]
            assert rows.count() == MANY - 64
            move = moving.Move()
            move.run()
            assert move.rows == MANY - 64
            assert list(parts.values_list("first", flat=True)) == [0, 64]
            assert rows.count() == 0
            layout.MOST_BYTES = most
            assert flaws() == flawed

        return meet

    def a_walk_over_objects_that_come_and_go(self) -> Callable[[], None]:
        gone, group = self._dead(5)
        for _ in range(3):
            self._staged(self._writer())

        def meet() -> None:
            from django.utils import timezone

            from encrypted_records.server.inventory import walk
            from encrypted_records.server.objects import choice, objects
            from encrypted_records.server.records import store
            from encrypted_records.server.records.models import BulkObject

            while until_quiet():
                pass
            objects.hurry()
            objects.sweep(store.kept_for())
            held = choice.chosen().store
            assert held is not None
            flawed = flaws()  # of a meeting before
            held.put("0-stray", b"?")
            BulkObject.objects.create(
                name="0-lost", state=objects.STORED, since=timezone.now(), size=1
            )
            walk.PAGE, own = 2, object_of(group)
            every = dict(held.listing())
            entries = list(walk.walk(held))
            assert [entry.name for entry in entries] == sorted([*every, "0-lost"])
            assert {entry.name: entry.size for entry in entries} == every | {"0-lost": None}
            assert [entry.name for entry in entries if entry.stored is None] == ["0-stray"]
            [missing] = [entry.stored for entry in entries if entry.size is None]
            assert missing is not None and walk.is_missing(held, missing)
            BulkObject.objects.filter(pk=missing.pk).delete()
            # From here on the database's page is older than the listing. New objects are known all
            # the same, and an object that was deleted is not lost.
            under_way = walk.walk(held)
            assert next(under_way).name == "0-stray"
            with objects.written([b"new"] * 20) as numbers:
                new = set(BulkObject.objects.filter(pk__in=numbers).values_list("name", flat=True))
                ask(gone)
                until_quiet()
                objects.sweep(store.kept_for())
                assert own not in dict(held.listing())
                rest = list(under_way)
                assert new & {entry.name for entry in rest}
                assert all(entry.stored is not None for entry in rest)
                absent = [entry.stored for entry in rest if entry.size is None]
                assert not any(walk.is_missing(held, one) for one in absent if one is not None)
                objects.give_up(numbers)
            objects.hurry()
            objects.sweep(store.kept_for())
            # A store that lists in another order costs time, and nothing is reported wrongly.
            listing = type(held).listing
            place(type(held), "listing", lambda own: reversed(list(listing(own))))
            assert list(walk.strangers()) == ["0-stray"]
            assert flaws() == flawed
            place(type(held), "listing", listing)
            held.delete(["0-stray"])
            walk.PAGE = 5000

        return meet

    def a_clock_that_is_set_ahead(self) -> Callable[[], None]:
        def meet() -> None:
            from django.utils import timezone

            from encrypted_records.server.objects import objects
            from encrypted_records.server.records import store
            from encrypted_records.server.records.models import BulkObject

            right = timezone.now
            with objects.written([b"replaced"]) as numbers:
                objects.give_up(numbers)
            doomed = BulkObject.objects.filter(pk__in=numbers)
            objects.sweep(store.kept_for())
            place(timezone, "now", lambda: right() + timedelta(days=35))
            for _ in range(3):
                objects.sweep(store.kept_for())
                assert doomed.exists()
                store._clock = store._CertainClock()  # the API starts again
            elapsed = time.clock_gettime
            objects.sweep(store.kept_for())
            place(time, "clock_gettime", lambda kind: elapsed(kind) + 86_401)
            objects.sweep(store.kept_for())
            assert not doomed.exists(), "nobody has corrected the clock for a day"
            place(time, "clock_gettime", elapsed)
            place(timezone, "now", right)
            with objects.written([b"replaced"]) as numbers:
                objects.give_up(numbers)
            doomed = BulkObject.objects.filter(pk__in=numbers)
            objects.sweep(store.kept_for())
            doomed.update(since=right() - timedelta(days=35))
            objects.sweep(store.kept_for())
            assert not doomed.exists()

        return meet

    def an_api_that_runs_for_days(self) -> Callable[[], None]:
        def meet() -> None:
            from encrypted_records.server import serve
            from encrypted_records.server.erasure import sweeping as module
            from encrypted_records.server.organizations.models import AuditEntry

            sweeping: Any = module
            old = AuditEntry.objects.filter(pk=AuditEntry.objects.all()[0].pk)
            clock, look = SimpleNamespace(now=0.0), sweeping.look
            sweeping.time = SimpleNamespace(monotonic=lambda: clock.now)

            def a_day_later() -> None:
                clock.now += 24 * 3600
                sweeping.look_soon()
                if clock.now > 24 * 3600:
                    raise KeyboardInterrupt
                assert old.update(created=OLD)

            place(sweeping, "look", a_day_later)
            with suppress(KeyboardInterrupt):
                sweeping.sweep_for_ever(serve.chores())
            sweeping.time = time
            place(sweeping, "look", look)
            assert not old.exists()

        return meet

    def an_operator_who_looks(self) -> Callable[[], None]:
        schema, group = self._dead(5)

        def meet() -> None:
            from django.db import connection

            from encrypted_records.server.inventory import examining
            from encrypted_records.server.records.models import BulkObject

            while until_quiet():
                pass
            assert states() == {"database": "ok", "bulk store": "ok", "sweeps": "ok"}
            assert states(little=1 << 60)["bulk store"] == "warning"
            before = names(self._forks.objects)
            due(group)
            assert states()["sweeps"] == "warning"
            ask(schema)
            until_quiet()
            assert names(self._forks.objects) >= before  # what it stores itself goes again
            # Few enough that the sample has all of them.
            path = next(self._forks.objects.rglob(object_of(group)))
            whole = path.read_bytes()
            examining.SAMPLE = 10_000
            path.write_bytes(whole[:-1])
            assert states()["bulk store"] == "failed"
            found = [result.message for result in examining.check_all(0)]
            named = BulkObject.objects.filter(state="named").count()
            assert any(f"1 of {named} objects are lost" in message for message in found), found
            path.write_bytes(whole)
            original = os.write
            os.write = no_room
            assert states()["bulk store"] == "failed"
            os.write = original
            sqlite = connection.vendor == "sqlite"
            only_reads = (
                "PRAGMA query_only = %d" if sqlite else "SET default_transaction_read_only = %d"
            )
            with connection.cursor() as cursor:
                cursor.execute(only_reads % 1)
                assert states() == {"database": "failed"}
                cursor.execute(only_reads % 0)

        return meet


def main(data_dir: str, database_url: str, credentials: str) -> None:
    meetings = Meetings(*prepare(data_dir, database_url, credentials))
    every = [name for name in vars(Meetings) if not name.startswith("_")]
    for name in every:
        sys.stderr.write(f"{name}\n")
        getattr(meetings, name)()()
    sys.stdout.write(json.dumps(every))


if __name__ == "__main__":
    main(*sys.argv[1:])
