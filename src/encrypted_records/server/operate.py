"""Commands of operators on a database and a bulk store; an API may run at the same time."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from encrypted_records.server import serve

if TYPE_CHECKING:
    from encrypted_records.server.inventory.examining import CheckResult as CheckResult  # noqa: PLC0414 - exported


@contextmanager
def at_database(settings: serve.ApiSettings) -> Iterator[None]:
    """Set up Django for the database of an API. Ctrl-C ends the process at once: the client of a
    bulk store in a bucket would take note of it only when the store answers, or after a minute. A
    killed command does no harm, and can be repeated.

    Raises:
        Startup: there is no API in the data folder, or its database cannot be used.
    """
    serve.prepare_operator(settings)
    from django.db import DatabaseError, connections  # noqa: PLC0415 - as all that needs Django

    os.umask(0o077)
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    except DatabaseError as error:
        raise serve.unusable(error) from None
    finally:
        signal.signal(signal.SIGINT, before)
        connections.close_all()


def verify(settings: serve.ApiSettings, say: Callable[[str], None]) -> bool:
    """Verify all stored data, and report all differences; returns whether there are none.

    Raises:
        Startup: as :func:`at_database`.
        StoreUnavailable: the bulk store is away or fails.
    """
    with at_database(settings):
        from encrypted_records.server.inventory import verifying  # noqa: PLC0415

        done = verifying.Verification()
        count = 0
        for flaw in done.flaws():
            count += 1
            say(f"{flaw.state}: {flaw.what}")
        for name in done.unknown:
            say(f"unknown: object {name}")
        say(
            f"{done.rows} rows, {done.pages} pages and {done.objects} objects were checked;"
            f" {count} are damaged"
        )
        return count == 0


def reconcile(settings: serve.ApiSettings, say: Callable[[str], None]) -> bool:
    """Reconcile database and bulk store after one of them was restored; returns whether nothing is
    lost.

    Raises:
        Startup: as :func:`at_database`.
        InvalidSetting: there is no bulk store.
        StoreFull, StoreUnavailable: the bulk store has no room, is away or fails.
    """
    with at_database(settings):
        from encrypted_records.server.inventory import verifying  # noqa: PLC0415

        outcome = verifying.Reconciliation()
        outcome.run()
        say(
            f"{outcome.taken} objects of rows were found under other names and recovered;"
            f" {outcome.dropped} are no longer needed and will be deleted"
        )
        if outcome.pages or outcome.rows:
            say(
                f"lost: {outcome.pages} objects of the index, {outcome.rows} of rows; run"
                " ers proxy accept-rollback, or ers schema repair for each schema"
            )
        return not (outcome.pages or outcome.rows)


def examine(settings: serve.ApiSettings, little_space: int) -> list[CheckResult]:
    """Check whether the database and the bulk store do what an API needs of them.

    Raises:
        Startup: as :func:`at_database`.
    """
    with at_database(settings):
        from encrypted_records.server.inventory import examining  # noqa: PLC0415

        return list(examining.check_all(little_space))


def move(settings: serve.ApiSettings, say: Callable[[str], None]) -> bool:
    """Move all data to the configured bulk store; returns whether nothing was damaged or missing.

    Raises:
        Startup: as :func:`at_database`.
        StoreFull, StoreUnavailable: a bulk store has no room, is away or fails.
    """
    with at_database(settings):
        from encrypted_records.server.inventory import moving  # noqa: PLC0415

        move = moving.Move()
        move.run()
        for damaged in move.damaged:
            say(f"damaged, and left in place: {damaged}")
        say(
            f"{move.objects} objects, {move.rows} rows and {move.pages} pages were moved;"
            f" {len(move.damaged)} are damaged"
        )
        if move.waiting:
            say(
                f"{move.waiting} objects of the old store are still kept for readers: APIs"
                " with --bulk-before delete them; move again before you remove the old store"
            )
        if move.missing:
            say(
                f"{move.missing} objects are not in the configured stores; if they are in another"
                " one, name it with --bulk-before and move again, otherwise run ers verify --stored"
            )
        return not (move.damaged or move.missing)
