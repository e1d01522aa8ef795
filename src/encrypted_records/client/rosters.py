"""The API's endpoints for rosters, as the proxy uses them: one method each.

``auth`` is always the caller's Authorization value. Answers are not trusted here;
:mod:`encrypted_records.index.roster` verifies them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from encrypted_records.client.api import ApiCalls, all_frames, read_list
from encrypted_records.errors import NotFound
from encrypted_records.model import resources, wire
from encrypted_records.model.ids import reference, to_text
from encrypted_records.model.roster import AccessRequest, Answer, Grant, RosterEntry

#: Schemas and datasets in one answer.
_PAGE = 100


class RosterApi(ApiCalls):
    stored_rate = 256 << 10

    async def entries(self, organization: bytes, since: int, auth: str) -> list[RosterEntry]:
        """The entries after number ``since``, at most a thousand."""
        path = f"{reference('organizations', organization)}roster/"
        params = {"since": str(since)}
        return await self._all(RosterEntry, path, auth, params)

    async def send(
        self,
        organization: bytes,
        entries: Sequence[RosterEntry],
        grants: Sequence[Grant],
        auth: str,
    ) -> None:
        """Add entries and grants, all or none. Repeating is safe: the API recognises
        its entries.
        """
        path = f"{reference('organizations', organization)}roster/"
        await self._frames(path, wire.encode([*entries, *grants]), auth)

    async def grants(self, organization: bytes, auth: str) -> list[Grant]:
        """The caller's newest grant of each dataset."""
        path = f"{reference('organizations', organization)}grants/"
        return await self._all(Grant, path, auth)

    async def grants_of(self, organization: bytes, member: bytes, auth: str) -> list[Grant]:
        """The sealed grants of another member, for owners."""
        path = f"{reference('organizations', organization)}grants/"
        params = {"member": to_text(member)}
        return await self._all(Grant, path, auth, params)

    async def answers(self, organization: bytes, auth: str) -> list[Answer]:
        """Answers of invited people, for owners."""
        path = f"{reference('organizations', organization)}answers/"
        return await self._all(Answer, path, auth)

    async def answer(self, invitation: bytes, auth: str) -> Answer | None:
        """The caller's answer to an invitation; None if there is none."""
        path = f"{reference('invitations', invitation)}answer/"
        try:
            given = await self._all(Answer, path, auth)
        except NotFound:
            return None
        return given[0] if given else None

    async def give_answer(self, invitation: bytes, answer: Answer, auth: str) -> None:
        path = f"{reference('invitations', invitation)}answer/"
        await self._frames(path, wire.encode([answer]), auth, method="PUT")

    async def requests(self, organization: bytes, auth: str) -> list[AccessRequest]:
        """Requests for access: all pending ones, for owners; otherwise the caller's."""
        path = f"{reference('organizations', organization)}requests/"
        return await self._all(AccessRequest, path, auth)

    async def ask(self, organization: bytes, request: AccessRequest, auth: str) -> None:
        """Store a request of the caller. Repeating is safe: the API keeps one request
        per dataset.
        """
        path = f"{reference('organizations', organization)}requests/"
        await self._frames(path, wire.encode([request]), auth, method="PUT")

    async def end_request(
        self, organization: bytes, dataset: bytes, member: bytes, auth: str
    ) -> None:
        """Withdraw the caller's request, or decline that of another member."""
        path = (
            f"{reference('organizations', organization)}requests/{to_text(dataset)}"
            f"/{to_text(member)}/"
        )
        await self.transport.request("DELETE", path, auth=auth)

    async def invitation(self, invitation: bytes, auth: str) -> resources.InvitationResource | None:
        """The caller's pending invitation with this id, as the API returns it; None if there is
        none.
        """
        path, wanted = f"/api/invitations/?limit={_PAGE}", to_text(invitation)
        listed = await read_list(self.transport, path, resources.InvitationResource, auth)
        return next((entry for entry in listed if entry.id == wanted), None)

    async def invitations_of(self, organization: bytes, auth: str) -> set[str]:
        """The ids of pending invitations, neither declined nor replaced, for owners. The API states
        this; no entry does.
        """
        path = f"{reference('organizations', organization)}invitations/?limit={_PAGE}"
        listed = await read_list(self.transport, path, resources.InvitationResource, auth)
        return {entry.id for entry in listed}

    async def make_service(self, organization: bytes, body: dict[str, Any], auth: str) -> None:
        """Create a service; docs/http-api.md describes ``body``. Repeating is safe."""
        path = f"{reference('organizations', organization)}services/"
        await self.transport.request("POST", path, json=body, auth=auth, repeatable=True)

    async def services(self, organization: bytes, auth: str) -> dict[str, datetime | None]:
        """The time of the last use of each service by its id, for owners, as reported by the
        API.
        """
        path = f"{reference('organizations', organization)}services/?limit={_PAGE}"
        listed = await read_list(self.transport, path, resources.ServiceResource, auth)
        return {entry.id: entry.last_used for entry in listed}

    async def accounts_of(self, organization: bytes, auth: str) -> dict[str, str]:
        """The addresses of the organization's accounts by id. The API states this; no entry does.
        Deleted accounts are missing.
        """
        path = f"{reference('organizations', organization)}members/?limit={_PAGE}"
        listed = await read_list(self.transport, path, resources.MemberResource, auth)
        return {member.user.rstrip("/").rpartition("/")[2]: member.email for member in listed}

    async def organizations(self, auth: str) -> list[resources.OrganizationResource]:
        """All organizations of the caller."""
        path = f"/api/organizations/?limit={_PAGE}"
        return await read_list(self.transport, path, resources.OrganizationResource, auth)

    async def dataset(self, dataset: bytes, auth: str) -> resources.DatasetResource:
        return await self._json(resources.DatasetResource, reference("datasets", dataset), auth)

    async def datasets(self, organization: bytes, auth: str) -> list[resources.DatasetResource]:
        """All datasets of an organization that the caller can access."""
        path = (
            f"/api/datasets/?limit={_PAGE}&organization={reference('organizations', organization)}"
        )
        return await read_list(self.transport, path, resources.DatasetResource, auth)

    async def schemas(self, organization: bytes, auth: str) -> list[resources.SchemaResource]:
        """All schemas of an organization that the caller can access."""
        path = (
            f"/api/schemas/?limit={_PAGE}&organization={reference('organizations', organization)}"
        )
        return await read_list(self.transport, path, resources.SchemaResource, auth)

    async def _all(
        self, kind: type[wire.T], path: str, auth: str, params: Mapping[str, str] | None = None
    ) -> list[wire.T]:
        answer = await self.transport.request("GET", path, params=params, auth=auth)
        return all_frames(answer, kind)
