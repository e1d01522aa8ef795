"""The shared part of a client's objects: the connection, the endpoints, and the event loop.

A synchronous client runs the same coroutines as an asynchronous one, in a thread with an event loop
of its own. So it works wherever it is called, in a notebook too, whose thread has a loop already.
Each endpoint is declared by a line, as a method that waits, so that type checkers and editors know
its arguments and its result. A test compares them with the methods of :class:`ProxyClient`.
"""

from __future__ import annotations

import asyncio
import functools
import os
import selectors
import threading
import types
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from encrypted_records.client import DEFAULT_PROXY
from encrypted_records.client.limits import STANDARD, ClientLimits
from encrypted_records.client.proxy.client import ProxyClient
from encrypted_records.client.proxy.connection import begin_anew
from encrypted_records.client.proxy.transport import Device, explain
from encrypted_records.client.sdk.names import Names
from encrypted_records.client.transport import Authorization
from encrypted_records.errors import ClientClosed, ErsError

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

    abandon_upload = _Waited(ProxyClient.abandon_upload)
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
    erasure_progress = _Waited(ProxyClient.erasure_progress)
    estimate = _Waited(ProxyClient.estimate)
    explain = _Waited(ProxyClient.explain)
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
    organizations = _Iterated(ProxyClient.organizations)
    people = _Waited(ProxyClient.people)
    preview = _Waited(ProxyClient.preview)
    preview_file = _Waited(ProxyClient.preview_file)
    read = _Waited(ProxyClient.read)
    read_all = _Iterated(ProxyClient.read_all)
    read_changes = _Waited(ProxyClient.read_changes)
    record = _Waited(ProxyClient.record)
    records = _Iterated(ProxyClient.records)
    sealed_record = _Waited(ProxyClient.sealed_record)
    sealed_records = _Iterated(ProxyClient.sealed_records)
    recover_organization = _Waited(ProxyClient.recover_organization)
    refresh_tokens = _Waited(ProxyClient.refresh_tokens)
    register = _Waited(ProxyClient.register)
    remove_person = _Waited(ProxyClient.remove_person)
    remove_second_factor = _Waited(ProxyClient.remove_second_factor)
    renew_recovery_codes = _Waited(ProxyClient.renew_recovery_codes)
    repair = _Waited(ProxyClient.repair)
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
    update = _Waited(ProxyClient.update)
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


class AsyncLink:
    """A proxy, and what is named there.

    Args:
        organization: where names are looked for; None is everywhere.

    Attributes:
        described: whose it is and where it leads, for people.
    """

    def __init__(
        self,
        proxy_url: str = DEFAULT_PROXY,
        *,
        email: str | None = None,
        password: str | None = None,
        token: str | None = None,
        auth: Authorization | None = None,
        device: Device | str | None = None,
        organization: str | None = None,
        limits: ClientLimits = STANDARD,
    ) -> None:
        self.described = f"{f'of {email} ' if email else ''}at {_show(proxy_url)}"
        self.proxy = ProxyClient(
            proxy_url,
            email=email,
            password=password,
            token=token,
            auth=auth,
            device=device,
            limits=limits,
        )
        self.names = Names(self.proxy, organization)

    @property
    def calls(self) -> AsyncCalls:
        return self.proxy

    def __reduce__(self) -> str:
        """
        Raises:
            TypeError: always, also for copies: connections cannot be copied, and a password in a
                cache or a queue would be read by others.
        """
        raise TypeError(
            "clients, and the datasets, schemas, jobs and records of a client, cannot be pickled or"
            " copied: make a client where it is used, name schemas by their slugs, and give"
            " dict(record) on"
        )

    async def close(self) -> None:
        await self.proxy.close()


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose objects may be garbage-collected in a fork, where it does not run."""

    def __init__(self) -> None:
        self._own_selector = selectors.DefaultSelector()
        self._is_left = False
        super().__init__(self._own_selector)

    def leave(self) -> None:
        """In a fork: leave the loop and its connections to the parent. The system's list of watched
        sockets is the parent's too, so nothing may be removed from it.
        """
        self._is_left = True
        self._own_selector.close()

    def is_closed(self) -> bool:
        return self._is_left or super().is_closed()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._is_left:  # nobody has forgotten to close anything
            super().call_exception_handler(context)


class Link(AsyncLink):
    """The synchronous counterpart of :class:`AsyncLink`.

    If it is not closed, as in a notebook, it ends when it is garbage-collected, or with the
    program. In a fork of the program it opens connections of its own.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._closed = False
        self._beginning = threading.Lock()
        self._loop: _Loop | None = None
        self._end: weakref.finalize[..., Link] | None = None
        _links.add(self)

    def begin_anew(self) -> None:
        """Leave the connections to the process that opened them: a fork has no thread for their
        loop, and closing them here would disturb it.
        """
        self._beginning = threading.Lock()  # another thread may have had it, and is not here
        if self._loop is None or self._end is None:
            return
        self._end.detach()
        self._loop.leave()
        self._loop = self._end = None
        self.proxy = begin_anew(self.proxy)
        self.names = self.names.at(self.proxy)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result; Ctrl-C cancels it.

        Raises:
            ClientClosed: it was closed, or is closed meanwhile.
        """
        try:
            future = self._begin(coroutine)
        except ClientClosed as error:
            coroutine.close()
            raise explain(error) from None
        try:
            return future.result()
        except CancelledError:
            raise explain(
                ClientClosed(
                    "this client was closed while it waited for an answer",
                    hint="the request may have been carried out; close the client when its calls"
                    " have ended",
                )
            ) from None
        except ErsError as error:
            explain(error)
            raise
        except KeyboardInterrupt:
            future.cancel()
            raise

    def _begin(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        # Several threads may begin, and another one may close meanwhile: what is begun before that
        # is cancelled by it.
        with self._beginning:
            if self._closed:
                raise ClientClosed("this client is closed")
            if self._loop is None:
                self._loop = _Loop()
                thread = threading.Thread(  # noqa: TID251 - a loop of its own
                    target=self._loop.run_forever, daemon=True
                )
                thread.start()
                self._end = weakref.finalize(self, _end, self.proxy, self._loop, thread)
            if self._loop.is_closed():
                raise ClientClosed(
                    "this client has ended with the program",
                    hint="nothing was sent; call it before the program ends, not from atexit",
                )
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    @property
    def calls(self) -> Calls:  # type: ignore[override] # as everything here, it is waited for
        return Calls(self)

    @contextmanager
    def within(
        self, context: AbstractAsyncContextManager[AsyncIterator[T]]
    ) -> Iterator[Iterator[T]]:
        """The items of a stream, which ends with the block."""
        entered = self.run(_enter(context))
        try:
            yield self.each(entered)
        except BaseException as error:
            if not self.run(_leave(context, error)):
                raise
        else:
            self.run(_leave(context, None))

    def each(self, things: AsyncIterator[T]) -> Iterator[T]:
        """Items of an asynchronous iterator."""

        async def following() -> tuple[T] | None:
            async for thing in things:
                return (thing,)
            return None

        while (thing := self.run(following())) is not None:
            yield thing[0]

    def close(self) -> None:  # type: ignore[override] # as everything here, it is waited for
        with self._beginning:
            self._closed = True
        if self._end is not None:
            self._end()


#: The links of this program.
_links: weakref.WeakSet[Link] = weakref.WeakSet()


def _begin_anew() -> None:
    for link in list(_links):
        link.begin_anew()


os.register_at_fork(after_in_child=_begin_anew)


#: Maximum seconds that calls have to end when their client is closed.
_CANCEL_SECONDS = 10.0


async def _enter(context: AbstractAsyncContextManager[T]) -> T:
    return await context.__aenter__()


async def _leave(context: AbstractAsyncContextManager[Any], error: BaseException | None) -> bool:
    if error is None:
        return bool(await context.__aexit__(None, None, None))
    return bool(await context.__aexit__(type(error), error, error.__traceback__))


def _end(
    proxy: ProxyClient,
    loop: asyncio.AbstractEventLoop,
    thread: threading.Thread,  # noqa: TID251 - the loop's own
) -> None:
    """Cancel what other threads wait for, close the connections, and end the loop and its
    thread.
    """

    async def closing() -> None:
        try:
            waiting = asyncio.all_tasks() - {asyncio.current_task()}
            for task in waiting:
                task.cancel()
            if waiting:
                await asyncio.wait(waiting, timeout=_CANCEL_SECONDS)
            await proxy.close()
        finally:
            loop.stop()

    asyncio.run_coroutine_threadsafe(closing(), loop)
    # Garbage is collected in any thread, and a loop cannot wait for itself.
    if threading.current_thread() is not thread:
        thread.join()
        if not loop.is_running():  # as it seems to be in a fork, which has no thread for it
            loop.close()


def _show(url: str) -> str:
    """A URL without what may be a password in it."""
    scheme, mark, address = url.partition("://")
    return f"{scheme}{mark}{address.rpartition('@')[2]}"
