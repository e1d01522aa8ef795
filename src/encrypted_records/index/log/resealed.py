"""Commits after which nothing is left of what was sealed before (docs/SPEC.md, sections 7.5, 7.7).

Tails of index keys, and the ids of requests that may be repeated, follow from one key of a log. A
commit that ends everything may bring another: that of its own version.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.crypto.log_keys import LogKeys
from encrypted_records.errors import KeyMissing
from encrypted_records.model.ids import milliseconds
from encrypted_records.model.records import CommitBody
from encrypted_records.rules.commits.judging import KeyName


@dataclass(frozen=True, slots=True)
class Resealed:
    """The newest time that everything was sealed again.

    Attributes:
        version: of the log; 0 if it never was.
        moment: when the key of tails and requests last became another, in milliseconds since 1970;
            0 if it never did.
        former: those that it was before, as (version, id), the oldest first.
    """

    version: int = 0
    moment: int = 0
    former: tuple[KeyName, ...] = ()

    def then(self, body: CommitBody, version: int, before: KeyName | None) -> Resealed:
        """After a commit that became ``version``; ``before`` names the key before."""
        if before is None or before == (body.key_version, body.key_id):
            return Resealed(version, self.moment, self.former)
        return Resealed(version, milliseconds(body.id), (*self.former, before))

    def held(self, keys: LogKeys) -> list[SchemaKey]:
        """The former keys that are here, the newest first."""
        held: list[SchemaKey] = []
        for version, key_id in reversed(self.former):
            with suppress(KeyMissing):
                held.append(keys.find(version, key_id))
        return held


def seals_everything_again(body: CommitBody, live: Collection[bytes]) -> bool:
    """Whether a commit ends all groups that live, and none can have come in between.

    Args:
        live: the groups before it, by uid.
    """
    return bool(body.ended and body.exact) and set(body.ended) == set(live)
