"""Sharing as other parts of the proxy use it, built once."""

from __future__ import annotations

from dataclasses import dataclass

from encrypted_records.client.rosters import RosterApi
from encrypted_records.client.transport import Transport
from encrypted_records.proxy.keyrings.store import Keyrings
from encrypted_records.proxy.process import Background
from encrypted_records.proxy.rosters import Rosters
from encrypted_records.proxy.sharing.changes import OwnGrants, RosterChanges
from encrypted_records.proxy.sharing.founding import Founding, Naming
from encrypted_records.proxy.sharing.joining import Inviting, Recovering
from encrypted_records.proxy.sharing.members import Asking, Forgetting, Members, ServiceMaking
from encrypted_records.proxy.sharing.reading import Rollbacks, RosterFinder, RosterReader
from encrypted_records.proxy.sharing.settling import EVERY_SECONDS, Attending, LogHeads, Settling
from encrypted_records.proxy.sharing.shown_names import ShownNames


@dataclass(frozen=True, slots=True)
class Sharing:
    api: RosterApi
    reader: RosterReader
    changes: RosterChanges
    grants: OwnGrants
    founding: Founding
    asking: Asking
    inviting: Inviting
    members: Members
    naming: Naming
    settling: Settling
    forgetting: Forgetting
    recovering: Recovering
    services: ServiceMaking
    attending: Attending
    rollbacks: Rollbacks
    shown_names: ShownNames
    finder: RosterFinder

    @classmethod
    def of(
        cls,
        transport: Transport,
        keyrings: Keyrings,
        rosters: Rosters,
        heads: LogHeads,
        background: Background,
        attend_seconds: float = EVERY_SECONDS,
    ) -> Sharing:
        """Args:
        heads: heads of logs, at which an epoch ends them.
        attend_seconds: minimum time between two checks for pending changes.
        """
        api = RosterApi(transport)
        reader = RosterReader(api, keyrings, rosters)
        changes = RosterChanges(api, reader)
        grants = OwnGrants(api, reader)
        founding = Founding(api, keyrings, reader, changes, grants)
        finder = RosterFinder(reader)
        settling = Settling(api, keyrings, reader, changes, grants, heads)
        return cls(
            api=api,
            reader=reader,
            changes=changes,
            grants=grants,
            founding=founding,
            asking=Asking(api, reader, changes, finder),
            inviting=Inviting(api, keyrings, reader, changes),
            members=Members(changes, grants),
            naming=Naming(changes),
            settling=settling,
            forgetting=Forgetting(reader, changes, grants),
            recovering=Recovering(api, keyrings, reader),
            services=ServiceMaking(api, changes, grants),
            attending=Attending(api, reader, settling, background, attend_seconds),
            rollbacks=Rollbacks(reader, keyrings),
            shown_names=ShownNames(api, reader),
            finder=finder,
        )

    def forget_user(self, user: bytes) -> None:
        """Drop what was read and decrypted for a user whose keyring has changed."""
        self.reader.forget_user(user)
        self.grants.forget_user(user)
