"""How an organization's roster stands to what the proxy has seen of it, and accepting another."""

from __future__ import annotations

import msgspec

from encrypted_records.client.proxy.connection import Connection, convert
from encrypted_records.client.proxy.devices import Proof, proof_member


class RosterHead(msgspec.Struct, frozen=True):
    """An entry's number, and in hex the digest of it and all before it."""

    number: int
    digest: str


class LostEntry(msgspec.Struct, frozen=True):
    """An entry that the API's roster does not have. ``what`` is founded, invited, stood, removed,
    dataset or schema; ``who`` the person, service or dataset; ``by`` who signed it."""

    number: int
    time: str | None
    what: str
    who: str | None
    by: str | None


class RosterStanding(msgspec.Struct, frozen=True):
    """``state`` is ``whole``, ``older``, ``forked`` or ``unclear``; ``common`` the newest entry of
    which it is known that both have it; ``lost`` are those behind it that the proxy has kept."""

    state: str
    number: int
    digest: str
    members: int
    seen: RosterHead | None
    common: int
    lost: list[LostEntry]


class RollbackCalls(Connection):
    async def roster_standing(self, organization: str) -> RosterStanding:
        """How the API's roster of an organization, a path, stands."""
        return convert(await self._ask("GET", f"{organization}rollback/"), RosterStanding)

    async def accept_rollback(
        self,
        organization: str,
        *,
        number: int,
        digest: str,
        forked: bool = False,
        proof: Proof | None = None,
    ) -> RosterStanding:
        """Have the proxy go on with a roster that lacks what it has seen; how it stood before.

        Args:
            number, digest: the head, as :meth:`roster_standing` showed it.
            forked: whether it may have other entries.

        Raises:
            Conflict: ``nothing_to_accept``, ``roster_moved`` or ``roster_forked``; nothing has
                changed.
        """
        body = {"number": number, "digest": digest, "forked": forked, **proof_member(proof)}
        return convert(await self._ask("POST", f"{organization}rollback/", body), RosterStanding)
