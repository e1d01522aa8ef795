"""Entries of an audit log as lines that people read: names instead of paths, equal ones together.

Actors and objects are shown as the API names them. A path becomes a link only if it is that of a
dataset or a schema that the visitor can reach.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from encrypted_records.proxy.pages.page import Visit

#: Every action of docs/http-api.md, in the words of a line: "who <words> what".
ACTIONS: Mapping[str, str] = {
    "login": "logged in",
    "logout": "logged out",
    "password.changed": "changed the password",
    "password.reset": "reset the password",
    "account.deleted": "deleted their account",
    "email.changed": "changed the e-mail address",
    "factor.added": "added a second factor",
    "factor.removed": "removed the second factor",
    "token.created": "created an API token",
    "token.revoked": "revoked an API token",
    "organization.changed": "changed the organization",
    "organization.founded": "founded the signed member list of",
    "service.created": "created a service account",
    "member.invited": "invited a person",
    "member.uninvited": "withdrew an invitation",
    "member.joined": "joined",
    "member.changed": "changed a member's role",
    "member.removed": "removed a member",
    "dataset.created": "created the dataset",
    "dataset.changed": "changed the dataset",
    "dataset.deleted": "deleted the dataset",
    "dataset.key": "created a new key for the dataset",
    "dataset.forgot": "deleted older keys of the dataset",
    "dataset.listed": "let members ask for the dataset",
    "dataset.unlisted": "ended requests for the dataset",
    "access.requested": "asked for access to the dataset",
    "access.withdrawn": "withdrew a request for the dataset",
    "access.declined": "declined a member's request",
    "schema.created": "created the schema",
    "schema.changed": "changed the schema",
    "schema.deleted": "deleted the schema",
    "schema.key": "created a new key for",
    "records.stored": "stored records in",
    "records.changed": "changed records of",
    "records.deleted": "deleted records of",
    "records.expired": "deleted expired records of",
    "records.read": "read records of",
    "records.erased": "erased deleted records of",
    "records.resealed": "re-encrypted records in",
    "records.compacted": "joined small groups of",
    "index.merged": "merged the index of",
}


@dataclass(frozen=True, slots=True)
class AuditLine:
    """
    Attributes:
        since: when the oldest of them was; ``until``, the newest.
        name: of what; empty where it is gone, or not known here.
        path: the page of it; empty where there is none.
        count: how many equal entries it stands for.
    """

    since: str
    until: str
    who: str
    did: str
    name: str
    path: str
    subject: str
    source: str
    count: int = 1


async def names_of(visit: Visit) -> dict[str, str]:
    """Names of the datasets, schemas and organizations that the visitor can see, by URL."""
    names: dict[str, str] = {}
    for kind in ("datasets", "schemas", "organizations"):
        names |= {entry["url"]: entry["name"] for entry in await visit.every(f"/api/{kind}/")}
    return names


def lines_of(entries: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> list[AuditLine]:
    """The newest first, as they come; those that follow each other and differ in time alone are
    one line."""
    lines: list[AuditLine] = []
    for entry in entries:
        line = _line(entry, names)
        before = lines[-1] if lines else None
        if before is not None and _key(before) == _key(line):
            lines[-1] = replace(before, since=line.since, count=before.count + 1)
        else:
            lines.append(line)
    return lines


def _line(entry: Mapping[str, Any], names: Mapping[str, str]) -> AuditLine:
    subject, action = str(entry["subject"] or ""), str(entry["action"])
    leads = subject in names and subject.startswith(("/api/datasets/", "/api/schemas/"))
    return AuditLine(
        since=entry["created"],
        until=entry["created"],
        who=str(entry["email"] or "somebody"),
        did=ACTIONS.get(action, action.replace(".", " ")),
        name=names.get(subject, ""),
        path=subject.removeprefix("/api") if leads else "",
        subject=subject,
        source=str(entry["source"] or ""),
    )


def _key(line: AuditLine) -> Iterable[str]:
    return line.who, line.did, line.subject, line.source
