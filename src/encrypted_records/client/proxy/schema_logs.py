"""Logs of schemas and rosters of organizations, compared with those that the proxy has seen: accept
another log, salvage records, and repair a schema after the API has lost data.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from encrypted_records.client.proxy.connection import Connection, encode
from encrypted_records.client.proxy.jobs import BegunJob
from encrypted_records.client.proxy.keyring import Proof, proof_member
from encrypted_records.model.resources import Count, Uuid


class Head(msgspec.Struct, frozen=True):
    """A version of the log, and in hex the digest of all commits up to it."""

    version: int
    digest: str


class Fault(msgspec.Struct, frozen=True):
    """The fault of a log; ``code`` is explained in docs/errors.md."""

    code: str
    detail: str


class Acceptance(msgspec.Struct, frozen=True):
    """The acceptance, by a user of the proxy, of a log with this head instead of another.

    Attributes:
        seen: head of the log that the proxy had seen.
        writer: whether the user might write the schema.
    """

    user: str
    version: int
    digest: str
    seen: Head
    writer: bool
    time: str


class LogStanding(msgspec.Struct, frozen=True, omit_defaults=True):
    """The validity of a log, and its relation to the log that the proxy has seen.

    Attributes:
        seen: head of the log that the proxy has seen.
        common: newest version that both are known to have.
        accepted: acceptance of the log by this user, instead of another log.
        accepted_by_others: acceptances by other users of the proxy.
        at: head at the version that was asked for; absent without one.
    """

    state: Literal["whole", "older", "forked", "unclear", "broken"]
    version: int
    digest: str
    records: int
    changed: str | None
    seen: Head | None
    common: int
    fault: Fault | None
    accepted: Acceptance | None
    accepted_by_others: list[Acceptance]
    at: Head | None = None


class Placed(msgspec.Struct, frozen=True):
    """The names of a schema; ``definition`` is the digest of its definition, in hex."""

    slug: str
    name: str
    definition: str


class SchemaSigned(msgspec.Struct, frozen=True):
    """The signature of a schema, or what it would change.

    Attributes:
        changes: names of the members in which ``signed`` and ``shown`` differ.
        signed: names that were signed before; None if none were.
    """

    changes: list[str]
    signed: Placed | None
    shown: Placed
    applied: bool


class PlannedChange(msgspec.Struct, frozen=True):
    """A difference between two definitions, and what it takes.

    Attributes:
        pointer: JSON pointer into the new definition.
        records: number of records that prevent it; absent if none does.
        where: condition that finds these records; None finds all.
    """

    field: str
    code: str
    detail: str
    pointer: str
    takes: Literal["commit", "proof", "reseal"]
    records: Count | UnsetType = UNSET
    where: dict[str, Any] | UnsetType | None = UNSET


class SchemaChange(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A change of a definition: what it takes, and whether it is applied.

    Attributes:
        takes: the most that one of the changes takes.
        possible: whether no stored records prevent it.
        records: number of stored records.
        seconds: time that comparing or re-encrypting them takes.
        old_enough: number of records that would expire at once under a new retention rule.
        job_id: id of the job that re-encrypts all records; absent if there is none.
    """

    changes: list[PlannedChange]
    takes: Literal["nothing", "commit", "proof", "reseal"]
    possible: bool
    records: Count
    seconds: float
    applied: bool
    old_enough: Count | None = None
    job_id: Uuid | None = None


class SchemaLogs(Connection):
    async def log_standing(self, schema_url: str, *, version: int | None = None) -> LogStanding:
        """The state of the API's log of a schema; ``schema_url`` is its path.

        Args:
            version: a version whose digest is requested, too.
        """
        params = None if version is None else {"version": str(version)}
        return (await self._ask("GET", f"{schema_url}log/", params=params)).convert(LogStanding)

    async def accept_log(
        self,
        schema_url: str,
        *,
        version: int,
        digest: str,
        forked: bool = False,
        proof: Proof | None = None,
    ) -> LogStanding:
        """Accept, for this user only, a log that lacks changes seen by the proxy; returns its
        previous state.

        Args:
            version, digest: the head, as :meth:`log_standing` showed it.
            forked: whether the log may have diverged.
            proof: a fresh proof of the caller's identity.

        Raises:
            NotAllowed: ``proof_needed``, ``proof_wrong``.
            Conflict: ``nothing_to_accept``, ``log_moved`` or ``log_forked``; nothing has changed.
        """
        body = {"version": version, "digest": digest, "forked": forked, **proof_member(proof)}
        return (await self._ask("POST", f"{schema_url}accept-log/", body)).convert(LogStanding)

    async def change_schema(
        self,
        schema_url: str,
        definition: Any,
        *,
        renames: Mapping[str, str] | None = None,
        drops: Sequence[str] = (),
        replaces: Any = None,
        dry_run: bool = False,
    ) -> SchemaChange:
        """Change the definition of a schema, or with ``dry_run`` only report what the change would
        take.

        Args:
            renames: the new name of each renamed field, and its present name.
            drops: present fields whose values may be deleted.
            replaces: the definition from which the new one was made; None accepts any present
                definition.

        Raises:
            Conflict: ``needs_reencryption``; stored records do not fit, nothing has changed;
                ``reseal_under_way``.
            PreconditionFailed: the present definition is not ``replaces``.
        """
        body = {"schema": definition, "renames": dict(renames or {}), "dry_run": dry_run}
        body |= {"drops": list(drops)} if drops else {}
        body |= {} if replaces is None else {"replaces": replaces}
        return (await self._ask("POST", f"{schema_url}change/", body)).convert(SchemaChange)

    async def reseal_schema(self, schema_url: str) -> str:
        """Re-encrypt all records of a schema under its present key and definition; returns the
        job's id.

        Raises:
            Conflict: ``reseal_under_way``, ``nothing_to_reseal``.
        """
        return (await self._ask("POST", f"{schema_url}reseal/", {})).convert(BegunJob).job_id

    def salvage(
        self, /, schema_url: str, form: str = "ndjson", **members: Any
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Every record that can be decrypted, whatever the state of the log, streamed in pieces.

        For NDJSON, the last line is the report, and there are empty lines. An interrupted stream
        raises an error.

        Args:
            members: ``ended``, ``safe_cells``, ``with_schema_id``, see docs/http-api.md; None
                values are left out.
        """
        given = {name: value for name, value in members.items() if value is not None}
        return self._transport.stream(
            "POST",
            f"{schema_url}salvage/",
            data=encode({"format": form, **given}),
            headers={"Content-Type": "application/json"},
        )

    def verify_schema(self, schema_url: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Verify all stored data of a schema against its log. The stream is NDJSON in pieces: a
        line for each altered place, empty lines, and finally the report. An interrupted stream
        raises an error.
        """
        return self._transport.stream("POST", f"{schema_url}verify/")

    async def sign_schema(
        self, schema_url: str, *, dry_run: bool = False, seen: Placed | None = None
    ) -> SchemaSigned:
        """Sign the API's present data of a schema.

        Args:
            dry_run: only report what signing would change.
            seen: the ``shown`` data of an earlier answer; other data is not signed.

        Raises:
            NotAllowed: ``owners_only``, ``not_writer``, ``not_admitted``.
            Conflict: the API's data has changed.
            Closed: ``schema_unsigned``, ``roster_missing``; it cannot be signed.
        """
        body: dict[str, Any] = {"dry_run": dry_run}
        if seen is not None:
            body["seen"] = msgspec.to_builtins(seen)
        return (await self._ask("POST", f"{schema_url}sign/", body)).convert(SchemaSigned)


#: Rebuilding a segment of 2**24 records fetches and decrypts all its rows.
REPAIR_SECONDS = 24 * 3600.0


class Loss(msgspec.Struct, frozen=True):
    """Data of a schema that the API reports as lost.

    Attributes:
        records: number of records of which nothing is left.
        segments: number of lost segments of the index.
        rows: number of rows of these segments.
        done: whether nothing is lost.
    """

    records: int
    segments: int
    rows: int
    done: bool


class RepairCalls(Connection):
    async def lost_of(self, schema_url: str) -> Loss:
        """The parts of a schema that the API has lost; ``schema_url`` is its path."""
        return (await self._ask("GET", f"{schema_url}repair/")).convert(Loss)

    async def repair(self, schema_url: str, *, confirm: int = 0) -> Loss:
        """Run the next step of a repair: delete lost records, or rebuild one segment; returns the
        losses before the step.

        Args:
            confirm: the number of records that may be deleted.

        Raises:
            Conflict: ``confirm_count``; more records are lost.
        """
        answer = await self._transport.request(
            "POST",
            f"{schema_url}repair/",
            params={"confirm": str(confirm)},
            timeout=REPAIR_SECONDS,
        )
        return answer.convert(Loss)


class RosterHead(msgspec.Struct, frozen=True):
    """An entry's number, and in hex the digest of it and all before it."""

    number: int
    digest: str


class LostEntry(msgspec.Struct, frozen=True):
    """An entry that the API's roster does not have.

    Attributes:
        what: kind of the entry: founded, invited, stood, removed, dataset or schema.
        who: name of the person, service or dataset; None if unknown.
        by: name of the member who signed it; None if unknown.
    """

    number: int
    time: str | None
    what: str
    who: str | None
    by: str | None


class RosterStanding(msgspec.Struct, frozen=True):
    """The API's roster, and its relation to the roster that the proxy has seen.

    Attributes:
        seen: head of the roster that the proxy has seen.
        common: number of the newest entry that both are known to have.
        lost: entries after that which the proxy has kept.
    """

    state: Literal["whole", "older", "forked", "unclear"]
    number: int
    digest: str
    members: int
    seen: RosterHead | None
    common: int
    lost: list[LostEntry]


class RollbackCalls(Connection):
    async def roster_standing(self, organization: str) -> RosterStanding:
        """The state of the API's roster of an organization, given as a path."""
        return (await self._ask("GET", f"{organization}rollback/")).convert(RosterStanding)

    async def accept_rollback(
        self,
        organization: str,
        *,
        number: int,
        digest: str,
        forked: bool = False,
        proof: Proof | None = None,
    ) -> RosterStanding:
        """Accept a roster that lacks entries seen by the proxy; returns its previous state.

        Args:
            number, digest: the head, as :meth:`roster_standing` showed it.
            forked: whether it may have other entries.

        Raises:
            Conflict: ``nothing_to_accept``, ``roster_moved`` or ``roster_forked``; nothing has
                changed.
        """
        body = {"number": number, "digest": digest, "forked": forked, **proof_member(proof)}
        return (await self._ask("POST", f"{organization}rollback/", body)).convert(RosterStanding)
