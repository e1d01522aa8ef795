"""The endpoints of a proxy as methods that wait, with the types of :class:`ProxyClient`.

Each is declared by a line, so that type checkers and editors know its arguments and its result. A
test compares them with the methods of :class:`ProxyClient`.
"""

from __future__ import annotations

import functools
import types
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from encrypted_records.client.proxy.client import ProxyClient

if TYPE_CHECKING:
    from encrypted_records.client.proxy.transport import Device
    from encrypted_records.client.sdk.event_loop import Link

#: One method for each endpoint, to be awaited.
AsyncCalls = ProxyClient

P = ParamSpec("P")
T = TypeVar("T")


def _bound(calls: Calls, method: Callable[..., Any]) -> Any:
    """The method with its name and signature as callers see them, without ``self``."""
    return types.MethodType(method, calls.link.proxy)


class _Waited(Generic[P, T]):
    """A method whose result is waited for."""

    def __init__(
        self, method: Callable[Concatenate[ProxyClient, P], Coroutine[Any, Any, T]]
    ) -> None:
        self._method = method

    def __get__(self, calls: Calls, _kind: type[Calls]) -> Callable[P, T]:
        @functools.wraps(_bound(calls, self._method))
        def wait(*args: P.args, **options: P.kwargs) -> T:
            return calls.link.run(self._method(calls.link.proxy, *args, **options))

        return wait


class _Iterated(Generic[P, T]):
    """A method whose items are waited for, one after the other."""

    def __init__(self, method: Callable[Concatenate[ProxyClient, P], AsyncIterator[T]]) -> None:
        self._method = method

    def __get__(self, calls: Calls, _kind: type[Calls]) -> Callable[P, Iterator[T]]:
        @functools.wraps(_bound(calls, self._method))
        def each(*args: P.args, **options: P.kwargs) -> Iterator[T]:
            return calls.link.each(self._method(calls.link.proxy, *args, **options))

        return each


class _Entered(Generic[P, T]):
    """A method of a stream, which is read within a ``with`` block."""

    def __init__(
        self,
        method: Callable[
            Concatenate[ProxyClient, P], AbstractAsyncContextManager[AsyncIterator[T]]
        ],
    ) -> None:
        self._method = method

    def __get__(
        self, calls: Calls, _kind: type[Calls]
    ) -> Callable[P, AbstractContextManager[Iterator[T]]]:
        @functools.wraps(_bound(calls, self._method))
        def enter(*args: P.args, **options: P.kwargs) -> AbstractContextManager[Iterator[T]]:
            return calls.link.within(self._method(calls.link.proxy, *args, **options))

        return enter


class Calls:
    """Direct calls of the proxy's endpoints. Asynchronous iterators become iterators, and streams
    become ``with`` blocks.
    """

    def __init__(self, link: Link) -> None:
        self.link = link

    @property
    def device(self) -> Device | None:
        """As of :class:`ProxyClient`."""
        return self.link.proxy.device

    def show_device(self, device: Device | str | None) -> None:
        """As of :class:`ProxyClient`."""
        self.link.proxy.show_device(device)

    accept_log = _Waited(ProxyClient.accept_log)
    accept_rollback = _Waited(ProxyClient.accept_rollback)
    add_device = _Waited(ProxyClient.add_device)
    aggregate = _Waited(ProxyClient.aggregate)
    answer_invitation = _Waited(ProxyClient.answer_invitation)
    api_tokens = _Iterated(ProxyClient.api_tokens)
    append = _Waited(ProxyClient.append)
    ask_for_access = _Waited(ProxyClient.ask_for_access)
    backup_file = _Waited(ProxyClient.backup_file)
    backup_phrases = _Waited(ProxyClient.backup_phrases)
    begin_second_factor = _Waited(ProxyClient.begin_second_factor)
    begin_stream = _Waited(ProxyClient.begin_stream)
    begin_upload = _Waited(ProxyClient.begin_upload)
    cancel_job = _Waited(ProxyClient.cancel_job)
    carry_out_retention = _Waited(ProxyClient.carry_out_retention)
    change = _Waited(ProxyClient.change)
    change_address = _Waited(ProxyClient.change_address)
    change_email = _Waited(ProxyClient.change_email)
    change_passphrase = _Waited(ProxyClient.change_passphrase)
    change_password = _Waited(ProxyClient.change_password)
    change_record = _Waited(ProxyClient.change_record)
    change_role = _Waited(ProxyClient.change_role)
    change_schema = _Waited(ProxyClient.change_schema)
    changes = _Iterated(ProxyClient.changes)
    clock = _Waited(ProxyClient.clock)
    columns = _Entered(ProxyClient.columns)
    confirm_backup = _Waited(ProxyClient.confirm_backup)
    confirm_backup_file = _Waited(ProxyClient.confirm_backup_file)
    confirm_email = _Waited(ProxyClient.confirm_email)
    confirm_second_factor = _Waited(ProxyClient.confirm_second_factor)
    count_subject = _Waited(ProxyClient.count_subject)
    create = _Waited(ProxyClient.create)
    create_dataset = _Waited(ProxyClient.create_dataset)
    create_device = _Waited(ProxyClient.create_device)
    create_schema = _Waited(ProxyClient.create_schema)
    create_service = _Waited(ProxyClient.create_service)
    create_token = _Waited(ProxyClient.create_token)
    create_webhook = _Waited(ProxyClient.create_webhook)
    decline_request = _Waited(ProxyClient.decline_request)
    decrypt = _Waited(ProxyClient.decrypt)
    delete = _Waited(ProxyClient.delete)
    delete_account = _Waited(ProxyClient.delete_account)
    delete_matching = _Waited(ProxyClient.delete_matching)
    delete_record = _Waited(ProxyClient.delete_record)
    delete_webhook = _Waited(ProxyClient.delete_webhook)
    deletion = _Waited(ProxyClient.deletion)
    detect = _Waited(ProxyClient.detect)
    device_code = _Waited(ProxyClient.device_code)
    devices = _Waited(ProxyClient.devices)
    erase_record = _Waited(ProxyClient.erase_record)
    erase_schema = _Waited(ProxyClient.erase_schema)
    erase_subject = _Waited(ProxyClient.erase_subject)
    erasure_cost = _Waited(ProxyClient.erasure_cost)
    estimate = _Waited(ProxyClient.estimate)
    explain_nothing = _Waited(ProxyClient.explain_nothing)
    export = _Entered(ProxyClient.export)
    forget_keys = _Waited(ProxyClient.forget_keys)
    forget_reading = _Waited(ProxyClient.forget_reading)
    has_door = _Waited(ProxyClient.has_door)
    index_status = _Waited(ProxyClient.index_status)
    infer = _Waited(ProxyClient.infer)
    ingest = _Waited(ProxyClient.ingest)
    ingest_records = _Waited(ProxyClient.ingest_records)
    invite = _Waited(ProxyClient.invite)
    is_known = _Waited(ProxyClient.is_known)
    job = _Waited(ProxyClient.job)
    job_about = _Waited(ProxyClient.job_about)
    job_errors = _Iterated(ProxyClient.job_errors)
    job_reading = _Waited(ProxyClient.job_reading)
    jobs = _Iterated(ProxyClient.jobs)
    keep_reading = _Waited(ProxyClient.keep_reading)
    kept_reading = _Waited(ProxyClient.kept_reading)
    keyring = _Waited(ProxyClient.keyring)
    list_dataset = _Waited(ProxyClient.list_dataset)
    listing = _Iterated(ProxyClient.listing)
    lock_keyring = _Waited(ProxyClient.lock_keyring)
    log_out = _Waited(ProxyClient.log_out)
    log_standing = _Waited(ProxyClient.log_standing)
    look_at_erasure = _Waited(ProxyClient.look_at_erasure)
    look_at_file = _Waited(ProxyClient.look_at_file)
    look_at_keys = _Waited(ProxyClient.look_at_keys)
    look_at_retention = _Waited(ProxyClient.look_at_retention)
    lost_of = _Waited(ProxyClient.lost_of)
    merge = _Waited(ProxyClient.merge)
    people = _Waited(ProxyClient.people)
    read_changes = _Waited(ProxyClient.read_changes)
    record = _Waited(ProxyClient.record)
    records = _Iterated(ProxyClient.records)
    recover_organization = _Waited(ProxyClient.recover_organization)
    refresh_tokens = _Waited(ProxyClient.refresh_tokens)
    register = _Waited(ProxyClient.register)
    rejected_rows = _Waited(ProxyClient.rejected_rows)
    remove_person = _Waited(ProxyClient.remove_person)
    remove_second_factor = _Waited(ProxyClient.remove_second_factor)
    renew_recovery_codes = _Waited(ProxyClient.renew_recovery_codes)
    repair = _Waited(ProxyClient.repair)
    replaced_records = _Waited(ProxyClient.replaced_records)
    request = _Waited(ProxyClient.request)
    reseal_schema = _Waited(ProxyClient.reseal_schema)
    reset_password = _Waited(ProxyClient.reset_password)
    resource = _Waited(ProxyClient.resource)
    restore_keyring = _Waited(ProxyClient.restore_keyring)
    restore_keyring_file = _Waited(ProxyClient.restore_keyring_file)
    resume_webhook = _Waited(ProxyClient.resume_webhook)
    revoke_device = _Waited(ProxyClient.revoke_device)
    revoke_token = _Waited(ProxyClient.revoke_token)
    roster_standing = _Waited(ProxyClient.roster_standing)
    rotate_dataset = _Waited(ProxyClient.rotate_dataset)
    rotate_keyring = _Waited(ProxyClient.rotate_keyring)
    rounded_values = _Waited(ProxyClient.rounded_values)
    salvage = _Entered(ProxyClient.salvage)
    sealed_schemas = _Waited(ProxyClient.sealed_schemas)
    search = _Waited(ProxyClient.search)
    search_all = _Iterated(ProxyClient.search_all)
    search_dataset = _Waited(ProxyClient.search_dataset)
    second_factor = _Waited(ProxyClient.second_factor)
    send_reset_link = _Waited(ProxyClient.send_reset_link)
    send_upload = _Waited(ProxyClient.send_upload)
    settle = _Waited(ProxyClient.settle)
    share = _Waited(ProxyClient.share)
    sign_schema = _Waited(ProxyClient.sign_schema)
    sql = _Waited(ProxyClient.sql)
    status = _Waited(ProxyClient.status)
    tokens = _Waited(ProxyClient.tokens)
    try_backup = _Waited(ProxyClient.try_backup)
    try_backup_file = _Waited(ProxyClient.try_backup_file)
    unlock_keyring = _Waited(ProxyClient.unlock_keyring)
    unshare = _Waited(ProxyClient.unshare)
    upload = _Waited(ProxyClient.upload)
    upload_file = _Waited(ProxyClient.upload_file)
    upload_offset = _Waited(ProxyClient.upload_offset)
    upsert = _Waited(ProxyClient.upsert)
    user = _Waited(ProxyClient.user)
    verify_registration = _Waited(ProxyClient.verify_registration)
    verify_schema = _Entered(ProxyClient.verify_schema)
    verify_token = _Waited(ProxyClient.verify_token)
    wait = _Waited(ProxyClient.wait)
    watch = _Iterated(ProxyClient.watch)
    webhooks = _Waited(ProxyClient.webhooks)
    withdraw_request = _Waited(ProxyClient.withdraw_request)
