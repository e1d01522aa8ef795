"""The proxy's interface for Python: one method per endpoint, plaintext in and out.

Numbers keep their exact value in both directions: they are sent as JSON numbers and returned as
``int`` or ``Decimal``, never as ``float``. Only reads are repeated on failure.
"""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from encrypted_records import runtime
from encrypted_records.client.messages import Response
from encrypted_records.client.proxy.changes import ChangeCalls, WebhookCalls
from encrypted_records.client.proxy.connection import Resources, ShownDataset, ShownSchema, encode
from encrypted_records.client.proxy.credentials import ApiTokens, SecondFactorCalls, with_code
from encrypted_records.client.proxy.erasure import Erasures, Retentions
from encrypted_records.client.proxy.jobs import Jobs
from encrypted_records.client.proxy.keyring import KeyringCalls
from encrypted_records.client.proxy.records import Record, Records, SearchPage, StoredRecord
from encrypted_records.client.proxy.schema_logs import RepairCalls, RollbackCalls, SchemaLogs
from encrypted_records.client.proxy.sharing import SharingCalls
from encrypted_records.client.proxy.sql import SqlCalls
from encrypted_records.client.proxy.uploads import Uploads, head_of
from encrypted_records.errors import BadInput, Conflict
from encrypted_records.model.ids import from_reference, reference
from encrypted_records.model.record_formats import Format
from encrypted_records.model.resources import Deletion, Tokens, UserResource
from encrypted_records.model.samples import CostEstimate, FileReading, Preview, ProposedSchema

#: A merge of 2**24 records takes minutes on a slow machine, and may wait for another merge.
MERGE_SECONDS = 3600.0
#: A path without dots and escapes, which could lead to another path.
_PATH = re.compile(r"/api/(?:[A-Za-z0-9_-]+/)*")


class Merge(msgspec.Struct, frozen=True):
    """A merge of index segments into a single one.

    Attributes:
        merged: number of segments that were merged.
        records: number of records of the new segment.
        segments: number of segments that are left.
        done: whether there was nothing to merge.
    """

    merged: int
    records: int
    segments: int
    done: bool


class ProxyClient(
    Resources,
    Records,
    ChangeCalls,
    WebhookCalls,
    Erasures,
    Retentions,
    SchemaLogs,
    SecondFactorCalls,
    Jobs,
    Uploads,
    KeyringCalls,
    ApiTokens,
    SharingCalls,
    RollbackCalls,
    RepairCalls,
    SqlCalls,
):
    """A proxy at ``proxy_url``, used by one account or by none.

    Every method raises the :class:`~encrypted_records.errors.ErsError` for the answer's problem
    document, or an ``Unavailable`` if no answer came. Before the client sends a secret, it verifies
    that a proxy answers there, and raises ``NoProxy`` otherwise.
    """

    async def status(self, *, seconds: float = 5.0) -> Mapping[str, Any]:
        """Whether proxy and API answer. It makes a single attempt; callers that wait repeat it."""
        answer = await self._transport.request(
            "GET", "/api/status/", timeout=seconds, repeatable=False
        )
        return answer.convert(dict[str, Any])

    async def clock(self) -> float | None:
        """The API's time, in seconds since 1970; None if it states none."""
        answer = await self._transport.request("GET", "/api/status/")
        if answer.date is None:
            return None
        # The date is the proxy's.
        ahead: int = answer.convert(dict[str, Any]).get("clock_ahead", 0)
        return answer.date - ahead

    async def register(self, *, email: str, password: str, organization_name: str) -> None:
        """Create an account with a new organization. A message is sent to ``email``."""
        body = {
            "email": email,
            "password": password,
            "password_confirm": password,
            "organization_name": organization_name,
        }
        await self._transport.request("POST", "/api/accounts/register/", json=body)

    async def verify_registration(self, *, user_id: str, timestamp: int, signature: str) -> None:
        """Confirm the address with the three values from the message."""
        body = {"user_id": user_id, "timestamp": timestamp, "signature": signature}
        await self._transport.request("POST", "/api/accounts/verify-registration/", json=body)

    async def tokens(self, *, email: str, password: str, code: str = "") -> Tokens:
        """Log in with a password.

        Args:
            code: of the account's second factor, if it has one.

        Raises:
            NotAuthenticated: ``second_factor_required``, if the password is right and ``code`` is
                missing; ``wrong_code``; ``bad_credentials``.
        """
        body = {"email": email, "password": password, **with_code(code)}
        answer = await self._transport.request("POST", "/api/token/", json=body)
        return answer.convert(Tokens)

    async def refresh_tokens(self, refresh: str) -> Tokens:
        """A new pair for a refresh token, which becomes invalid."""
        body = {"refresh": refresh}
        # The API treats a repetition within half a minute as the same request.
        answer = await self._transport.request(
            "POST", "/api/token/refresh/", json=body, timeout=20.0, repeatable=True
        )
        return answer.convert(Tokens)

    async def verify_token(self, token: str) -> None:
        """
        Raises:
            NotAuthenticated: it is not a token, or expired or revoked.
        """
        await self._transport.request("POST", "/api/token/verify/", json={"token": token})

    async def log_out(self, auth: str) -> None:
        """End the login behind an Authorization value, with all its tokens."""
        await self._transport.request("POST", "/api/accounts/logout/", auth=auth)

    async def change_password(self, old: str, new: str, code: str = "") -> None:
        """Change the password. All logins of the account end."""
        body = {"old_password": old, "password": new, "password_confirm": new, **with_code(code)}
        await self._transport.request("POST", "/api/accounts/change-password/", json=body)

    async def change_email(self, email: str, password: str, code: str = "") -> None:
        """Request a message with a link to a new address. The account keeps its address until the
        link is used (:meth:`confirm_email`).

        Args:
            code: of the account's second factor, if it has one.

        Raises:
            BadInput: ``wrong_password``, ``second_factor_required`` or ``wrong_code``.
        """
        body = {"email": email, "password": password, **with_code(code)}
        await self._transport.request("POST", "/api/accounts/change-email/", json=body)

    async def confirm_email(self, *, user_id: str, timestamp: int, signature: str) -> None:
        """Give an account its new address by the three values from the message. All logins and API
        tokens end."""
        body = {"user_id": user_id, "timestamp": timestamp, "signature": signature}
        await self._transport.request("POST", "/api/accounts/confirm-email/", json=body)

    async def deletion(self) -> Deletion:
        """The effects of deleting the account on each of its organizations, or the obstacles."""
        return (await self._ask("GET", "/api/accounts/delete/")).convert(Deletion)

    async def delete_account(
        self, password: str, code: Callable[[], str] | None = None, *, unsigned: bool = False
    ) -> None:
        """Delete the account: it leaves its organizations, by an entry that the proxy signs if
        there is a roster, and then its address, names, password, logins and tokens are deleted.

        Password and code are checked before the account leaves any organization.

        Args:
            code: called for a code of the account's second factor, if it has one.
            unsigned: leave rosters unchanged, because the keys are lost; an owner of each has to
                remove the account from it.

        Raises:
            BadInput: ``wrong_password``, ``second_factor_required`` or ``wrong_code``.
            Conflict: ``last_owner``, ``has_datasets``; ``account_moved``, which may be repeated.
            ErsError: the proxy cannot sign that the account leaves; nothing was deleted.
        """
        body: dict[str, Any] = {"password": password, "unsigned": unsigned}
        while True:
            try:
                await self._ask("POST", "/api/accounts/delete/", body)
            except (BadInput, Conflict) as error:
                reasons = {error.reason, *(flaw.code for flaw in error.flaws)}
                if "in_roster" in reasons:
                    break
                if "second_factor_required" not in reasons or code is None or "code" in body:
                    raise
                body["code"] = code()
            else:
                return
        deletion = await self.deletion()
        if not unsigned and not deletion.obstacles:
            for organization in deletion.organizations:
                if organization.signed:
                    await self._leave(organization.organization)
        await self._ask("POST", "/api/accounts/delete/", body)

    async def _leave(self, organization: str) -> None:
        """Have the proxy sign that the account leaves. The proxy determines the member, so that an
        API cannot have another member removed.
        """
        named = from_reference(organization, "organizations", pointer="/organization")
        path = reference("organizations", named)
        for person in (await self.people(path)).people:
            if person.you:
                await self.remove_person(path, person.id)

    async def send_reset_link(self, email: str) -> None:
        """Request a message with a reset link, if the address has an account."""
        body = {"email": email}
        await self._transport.request("POST", "/api/accounts/send-reset-password-link/", json=body)

    async def reset_password(
        self, *, user_id: str, timestamp: int, signature: str, password: str
    ) -> None:
        """Set a new password by the three values from the message. All logins and API
        tokens end."""
        body = {
            "user_id": user_id,
            "timestamp": timestamp,
            "signature": signature,
            "password": password,
        }
        await self._transport.request("POST", "/api/accounts/reset-password/", json=body)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> Response:
        """Send any request, for endpoints without a method here; returns the raw answer.

        Args:
            path: below ``/api/``, literally: no dots, no escapes.

        Raises:
            BadInput: the path has another form.
        """
        if not _PATH.fullmatch(path):
            raise BadInput(
                "this is not a path of the HTTP API",
                hint="such as /api/datasets/, from docs/http-api.md",
            )
        return await self._transport.request(
            method, path, data=body, headers=headers, params=params
        )

    async def infer(self, /, sample: bytes, media_type: str, **wishes: bool) -> ProposedSchema:
        """A proposed definition for a sample of records.

        Args:
            wishes: rules that it may contain beyond names and types: ``enum``, ``unique``,
                ``required``, ``tight``.
        """
        answer = await self._transport.request(
            "POST",
            "/api/schemas/infer/",
            data=sample,
            headers={"Content-Type": media_type},
            params={name: "true" for name, wanted in wishes.items() if wanted},
            repeatable=True,
        )
        return answer.convert(ProposedSchema)

    async def detect(
        self,
        head: bytes,
        size: int | None,
        choices: bytes = b"",
        *,
        tight: bool = False,
        schema: str | None = None,
        kept: bool = True,
    ) -> FileReading:
        """Detect how a file is read, and propose a definition.

        Args:
            head: its first bytes; the whole file if ``size`` is None or not larger.
            choices: known parts of the reading, as JSON.
            schema: id or path of the target schema, whose stored reading is used unless ``kept`` is
                False.
        """
        headers = {"Content-Type": "application/octet-stream"}
        headers |= {} if size is None else {"X-File-Size": str(size)}
        headers |= {"X-Reading": base64.b64encode(choices).decode()} if choices else {}
        answer = await self._transport.request(
            "POST",
            "/api/readings/detect/",
            data=head,
            headers=headers,
            params=({"tight": "true"} if tight else {})
            | ({} if schema is None else {"schema": schema})
            | ({} if kept else {"kept": "false"}),
            repeatable=True,
        )
        return answer.convert(FileReading)

    async def look_at_file(
        self,
        path: Path,
        choices: Mapping[str, Any] | None = None,
        *,
        tight: bool = False,
        schema: str | None = None,
        kept: bool = True,
    ) -> FileReading:
        """Detect how a file of this machine is read, like :meth:`detect`.

        Raises:
            InvalidSetting: the file cannot be read, is a pipe, or has a columnar format.
        """
        head, size = await head_of(path)
        encoded = encode(choices) if choices else b""
        return await self.detect(head, size, encoded, tight=tight, schema=schema, kept=kept)

    async def preview(
        self,
        head: bytes,
        size: int | None,
        definition: Any,
        reading: Mapping[str, Any],
        *,
        rows: int = 0,
    ) -> Preview:
        """Check the first rows of a file under a definition, like an upload.

        Args:
            head, size: as for :meth:`detect`.
            rows: number of rows in the answer.
        """
        body = {
            "schema": definition,
            "sample": base64.b64encode(head).decode(),
            "format": Format.CSV.value,  # not used: the reading has the file's form
            "rows": rows,
            "reading": reading,
            "whole": size is None or size <= len(head),
        }
        answer = await self._transport.request(
            "POST", "/api/schemas/preview/", json=body, repeatable=True
        )
        return answer.convert(Preview)

    async def preview_file(self, path: Path, found: FileReading) -> Preview:
        """Check the first rows of a file of this machine as it is read.

        Raises:
            InvalidSetting: the file cannot be read.
        """
        head, size = await head_of(path)
        return await self.preview(head, size, found.schema, found.reading)

    async def kept_reading(self, schema: str) -> Mapping[str, Any]:
        """The stored reading of a schema, given by its id.

        Raises:
            NotFound: there is none.
        """
        answer = await self._transport.request("GET", f"/api/schemas/{schema}/reading/")
        return answer.convert(dict[str, Any])

    async def keep_reading(self, schema: str, reading: Mapping[str, Any]) -> None:
        """Store a reading for a schema, given by its id, replacing an earlier one."""
        await self._transport.request("PUT", f"/api/schemas/{schema}/reading/", json=reading)

    async def forget_reading(self, schema: str) -> None:
        """Delete the stored reading of a schema, given by its id.

        Raises:
            NotFound: there is none.
        """
        await self._transport.request("DELETE", f"/api/schemas/{schema}/reading/")

    async def estimate(
        self,
        definition: Any,
        records: int,
        string_bytes: Mapping[str, int],
        sample: tuple[bytes, str] | None = None,
    ) -> CostEstimate:
        """The estimated cost of ``records`` records of a definition, and what they reveal.

        Args:
            sample: similar rows, and their media type.
        """
        body = {"schema": definition, "records": records, "string_bytes": string_bytes}
        if sample is not None:
            rows, media_type = sample
            body["sample"] = {"type": media_type, "text": rows.decode(errors="replace")}
        answer = await self._ask("POST", "/api/schemas/estimate/", body, repeatable=True)
        return answer.convert(CostEstimate)

    async def merge(self, schema_url: str) -> Merge:
        """Run the next merge of a schema's index; ``schema_url`` is its path."""
        answer = await self._transport.request("POST", f"{schema_url}merge/", timeout=MERGE_SECONDS)
        return answer.convert(Merge)

    async def user(self) -> UserResource:
        answer = await self._transport.request("GET", "/api/users/self/")
        return answer.convert(UserResource)

    async def create_dataset(
        self,
        *,
        name: str,
        organization: str,
        slug: str | None = None,
        description: str | None = None,
    ) -> ShownDataset:
        members = {"organization": organization, "slug": slug, "description": description}
        return await self._write(ShownDataset, "POST", "/api/datasets/", name=name, **members)

    async def create_schema(
        self,
        *,
        name: str,
        dataset: str,
        definition: Mapping[str, Any],
        slug: str | None = None,
        description: str | None = None,
    ) -> ShownSchema:
        members = {"name": name, "slug": slug, "description": description, "schema": definition}
        return await self._write(ShownSchema, "POST", "/api/schemas/", dataset=dataset, **members)

    async def ingest(self, schema: str, records: Sequence[Mapping[str, Any]]) -> list[StoredRecord]:
        """Store at most 100 records: all of them, or on any error none.

        The request is repeated if its answer is lost, with the same idempotency key, so that no
        record is stored twice.

        Args:
            schema: the path of their schema.
            records: field name to value; absent fields are left out.
        """
        return await self.ingest_records([{"schema": schema, "data": data} for data in records])

    async def ingest_records(self, body: Sequence[Mapping[str, Any]]) -> list[StoredRecord]:
        """:meth:`ingest` for record objects with ``schema`` and ``data``, of any schemas."""
        try:
            created = await self._ingest_by_clock(body)
        except (BadInput, Conflict) as error:
            # The proxy's clock or ours was set after its last answer, and this answer has its
            # present time. A request that was sent only once has stored nothing.
            if error.repeated or error.reason not in ("invalid_idempotency_key", "repeat_too_old"):
                raise
            created = await self._ingest_by_clock(body)
        return created.convert(list[StoredRecord])

    async def _ingest_by_clock(self, body: Sequence[Mapping[str, Any]]) -> Response:
        """Send records once, under a key with the proxy's time."""
        now = await self._transport.proxy_time()
        key = runtime.uuid7(nanoseconds=int(now * 1_000_000_000))
        headers = {"Idempotency-Key": str(key)}
        return await self._ask(
            "POST", "/api/records/ingest/", body, headers=headers, repeatable=True
        )

    async def search(
        self,
        schema: str,
        *,
        where: Mapping[str, Any] | None = None,
        order_by: Sequence[str] | None = None,
        fields: Sequence[str] | None = None,
        limit: int = 100,
        cursor: str | None = None,
        count: bool = True,
    ) -> SearchPage:
        """A page of the decrypted records of ``schema`` that ``where`` selects.

        Args:
            where: a predicate as docs/http-api.md describes it; None selects all.
            order_by: field names; a leading ``-`` means descending order.
            fields: the fields to return; None returns all.
            cursor: ``next_cursor`` of the previous page.
        """
        body: dict[str, Any] = {"schema": schema, "limit": limit, "count": count}
        optional = {"where": where, "order_by": order_by, "fields": fields, "cursor": cursor}
        body |= {key: value for key, value in optional.items() if value is not None}
        answer = await self._ask("POST", "/api/records/search/", body, repeatable=True)
        return answer.convert(SearchPage)

    async def search_all(
        self,
        schema: str,
        *,
        where: Mapping[str, Any] | None = None,
        order_by: Sequence[str] | None = None,
        fields: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Record]:
        """All records that :meth:`search` would find, or the first ``limit``, page by page."""
        cursor, left, most = None, limit, self.limits.page
        while True:
            page = await self.search(
                schema,
                where=where,
                order_by=order_by,
                fields=fields,
                limit=most if left is None else min(left, most),
                cursor=cursor,
                count=False,
            )
            for record in page.results:
                yield record
            cursor = page.next_cursor
            if left is not None:
                left -= len(page.results)
            if cursor is None or left == 0:
                return
