"""Groups that ended, swept piece by piece, as a program of its own with Django in this process.

Arguments: data folder, URL of the database or nothing, path of a file with the members of an
account. What each piece took goes to stdout, as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.server.erasure_steps import prepare
from tests.server.standing_model import Model
from tests.server.test_compactions import compact, merge
from tests.server.test_standing import assert_is
from tests.server.writer import Writer, person

#: Groups of some rows, and one of many.
GROUPS, ROWS, MANY = 15, 3, 45
#: Of one piece.
MOST_ROWS, MOST_GROUPS = 20, 5


def main(data_dir: str, database_url: str, credentials: str) -> None:
    _, account = prepare(data_dir, database_url, credentials)
    model = Model(Writer(account, account.new_schema()))
    for count in (MANY, *[ROWS] * GROUPS):
        model.add([person() for _ in range(count)])
    merge(model)
    model.kill([model.groups[0].rows[1][0], model.groups[2].rows[1][0]])
    compact(model, 0, 1 + GROUPS)
    pieces = [state()]
    assert not sweep(), "what has ended just now stays"
    age()
    while sweep():
        pieces.append(state())
    assert_is(model)
    sys.stdout.write(json.dumps(pieces))


def age() -> None:
    """All that ended did so long ago, the group of many rows first."""
    from datetime import UTC, datetime, timedelta

    from encrypted_records.server.records.models import RecordGroup

    for at, group in enumerate(RecordGroup.objects.exclude(ended_at=None).order_by("pk")):
        group.ended_at = datetime(2001, 1, 1, tzinfo=UTC) + timedelta(seconds=at)
        group.save()


def sweep() -> bool:
    from encrypted_records.server.erasure import sweeping

    sweeping.MOST_ROWS, sweeping.MOST_GROUPS = MOST_ROWS, MOST_GROUPS
    return sweeping.sweep_rows()


def state() -> dict[str, int]:
    """Of groups that ended: those that have rows, those that say what rows are like, their rows,
    and what is known of dead ones."""
    from encrypted_records.server.records.models import DeadRow, RecordGroup, RecordRow

    ended = RecordGroup.objects.exclude(ended_at=None)
    numbers: Any = ended.values("pk")
    return {
        "groups": ended.filter(count__gt=0).count(),
        "described": ended.exclude(fields="[]", holes="[]", key_id=b"").count(),
        "rows": RecordRow.objects.filter(group_id__in=numbers).count(),
        "dead": DeadRow.objects.filter(group_id__in=numbers).count(),
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
