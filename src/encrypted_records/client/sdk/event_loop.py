"""The shared part of a client's objects: the connection, the endpoints, and the event loop.

A synchronous client has the requests of an asynchronous one run in a thread with an event loop of
its own. So it works wherever it is called, in a notebook too, whose thread has a loop already. All
else of the asynchronous objects' coroutines runs in the caller's thread, with the caller's rows.

Each method is declared by a line that says that it waits, so that type checkers and editors know
its arguments and its result. A test compares them with those of the asynchronous objects.
"""

from __future__ import annotations

import asyncio
import functools
import os
import selectors
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from operator import attrgetter
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypedDict, TypeVar, overload

from encrypted_records.client import DEFAULT_PROXY
from encrypted_records.client.limits import ClientLimits
from encrypted_records.client.proxy.client import ProxyClient
from encrypted_records.client.proxy.connection import begin_anew
from encrypted_records.client.proxy.transport import Device, explain
from encrypted_records.client.sdk.names import Names
from encrypted_records.client.transport import Authorization
from encrypted_records.errors import ClientClosed, ErsError, InvalidRecords

#: One method for each endpoint, to be awaited.
AsyncCalls = ProxyClient

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")


class _Waited(Generic[P, T]):
    """A method of a :class:`Synchronous` object: that of the asynchronous object, waited for."""

    def __init__(self, method: Callable[..., Any], kind: Callable[[Any], Any] | None) -> None:
        self._method, self._kind = method, kind

    def __get__(self, owner: Synchronous | None, _type: type | None = None) -> Callable[P, T]:
        owners = () if owner is None else (owner,)
        method = self._method if owner is None else getattr(owner._inner, self._method.__name__)

        @functools.wraps(method)
        def wait(*args: P.args, **options: P.kwargs) -> T:
            answer: T = self._call(*owners, *args, **options)
            return answer

        return wait

    def _call(self, owner: Synchronous, /, *args: Any, **options: Any) -> Any:
        answer = getattr(owner._inner, self._method.__name__)(*args, **options)
        if isinstance(answer, AsyncIterator):
            items = each_of(answer)
            return items if self._kind is None else map(self._kind, items)
        answer = finish(answer) if isinstance(answer, Coroutine) else answer
        return answer if self._kind is None else self._kind(answer)


@overload
def waited(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> _Waited[P, T]: ...
@overload
def waited(method: Callable[Concatenate[Any, P], AsyncIterator[T]]) -> _Waited[P, Iterator[T]]: ...
@overload
def waited(
    method: Callable[Concatenate[Any, P], AbstractAsyncContextManager[AsyncIterator[T]]],
) -> _Waited[P, AbstractContextManager[Iterator[T]]]: ...
@overload
def waited(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, A]], kind: Callable[[A], T]
) -> _Waited[P, T]: ...
@overload
def waited(
    method: Callable[Concatenate[Any, P], AsyncIterator[A]], kind: Callable[[A], T]
) -> _Waited[P, Iterator[T]]: ...
@overload
def waited(method: Callable[Concatenate[Any, P], A], kind: Callable[[A], T]) -> _Waited[P, T]: ...
def waited(method: Callable[..., Any], kind: Callable[[Any], Any] | None = None) -> Any:
    """A method of the asynchronous object, waited for: iterators and streams become those of a
    program without an event loop.

    Args:
        kind: the synchronous class of the asynchronous objects that it returns.
    """
    return _Waited(method, kind)


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for a :class:`BlockingLink` only, and so never suspends:
    it runs in the thread of the caller, with the caller's rows.

    Raises:
        InvalidRecords: it waits for something else, which only asynchronous rows do.
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise explain(InvalidRecords("these are not rows", hint="give dicts, or a frame or table"))


def each_of(things: AsyncIterator[T]) -> Iterator[T]:
    """Items of an asynchronous iterator that waits for a :class:`BlockingLink` only."""
    try:
        while True:
            yield finish(anext(things))  # type: ignore[arg-type] # it acts as a coroutine
    except StopAsyncIteration:
        pass
    finally:
        if isinstance(things, AsyncGenerator):
            finish(things.aclose())


class Synchronous:
    """An object of the synchronous client: an asynchronous object whose answers are waited for.

    Its annotated names are attributes of that object, its methods are made by :func:`waited`.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __init_subclass__(cls) -> None:
        for name in cls.__annotations__:
            setattr(cls, name, property(attrgetter(f"_inner.{name}")))

    def __repr__(self) -> str:
        return repr(self._inner).replace("<Async", "<", 1)


class Calls(Synchronous):
    """Direct calls of the proxy's endpoints. Asynchronous iterators become iterators, and streams
    become ``with`` blocks.
    """

    device: Device | None

    def show_device(self, device: Device | str | None) -> None:
        """As of :class:`ProxyClient`."""
        self._inner.show_device(device)

    abandon_upload = waited(ProxyClient.abandon_upload)
    accept_log = waited(ProxyClient.accept_log)
    accept_rollback = waited(ProxyClient.accept_rollback)
    add_device = waited(ProxyClient.add_device)
    aggregate = waited(ProxyClient.aggregate)
    answer_invitation = waited(ProxyClient.answer_invitation)
    api_tokens = waited(ProxyClient.api_tokens)
    append = waited(ProxyClient.append)
    ask_for_access = waited(ProxyClient.ask_for_access)
    backup_file = waited(ProxyClient.backup_file)
    backup_phrases = waited(ProxyClient.backup_phrases)
    begin_second_factor = waited(ProxyClient.begin_second_factor)
    begin_stream = waited(ProxyClient.begin_stream)
    begin_upload = waited(ProxyClient.begin_upload)
    cancel_job = waited(ProxyClient.cancel_job)
    carry_out_retention = waited(ProxyClient.carry_out_retention)
    change = waited(ProxyClient.change)
    change_address = waited(ProxyClient.change_address)
    change_email = waited(ProxyClient.change_email)
    change_passphrase = waited(ProxyClient.change_passphrase)
    change_password = waited(ProxyClient.change_password)
    change_record = waited(ProxyClient.change_record)
    change_role = waited(ProxyClient.change_role)
    change_schema = waited(ProxyClient.change_schema)
    changes = waited(ProxyClient.changes)
    clock = waited(ProxyClient.clock)
    columns = waited(ProxyClient.columns)
    confirm_backup = waited(ProxyClient.confirm_backup)
    confirm_backup_file = waited(ProxyClient.confirm_backup_file)
    confirm_email = waited(ProxyClient.confirm_email)
    confirm_second_factor = waited(ProxyClient.confirm_second_factor)
    count_subject = waited(ProxyClient.count_subject)
    create = waited(ProxyClient.create)
    create_dataset = waited(ProxyClient.create_dataset)
    create_device = waited(ProxyClient.create_device)
    create_schema = waited(ProxyClient.create_schema)
    create_service = waited(ProxyClient.create_service)
    create_token = waited(ProxyClient.create_token)
    create_webhook = waited(ProxyClient.create_webhook)
    decline_request = waited(ProxyClient.decline_request)
    decrypt = waited(ProxyClient.decrypt)
    delete = waited(ProxyClient.delete)
    delete_account = waited(ProxyClient.delete_account)
    delete_matching = waited(ProxyClient.delete_matching)
    delete_record = waited(ProxyClient.delete_record)
    delete_webhook = waited(ProxyClient.delete_webhook)
    deletion = waited(ProxyClient.deletion)
    detect = waited(ProxyClient.detect)
    device_code = waited(ProxyClient.device_code)
    devices = waited(ProxyClient.devices)
    erase_record = waited(ProxyClient.erase_record)
    erase_schema = waited(ProxyClient.erase_schema)
    erase_subject = waited(ProxyClient.erase_subject)
    erasure_cost = waited(ProxyClient.erasure_cost)
    erasure_progress = waited(ProxyClient.erasure_progress)
    estimate = waited(ProxyClient.estimate)
    explain = waited(ProxyClient.explain)
    explain_nothing = waited(ProxyClient.explain_nothing)
    export = waited(ProxyClient.export)
    forget_keys = waited(ProxyClient.forget_keys)
    forget_reading = waited(ProxyClient.forget_reading)
    has_door = waited(ProxyClient.has_door)
    index_status = waited(ProxyClient.index_status)
    infer = waited(ProxyClient.infer)
    ingest = waited(ProxyClient.ingest)
    ingest_records = waited(ProxyClient.ingest_records)
    invite = waited(ProxyClient.invite)
    is_known = waited(ProxyClient.is_known)
    job = waited(ProxyClient.job)
    job_about = waited(ProxyClient.job_about)
    job_errors = waited(ProxyClient.job_errors)
    job_reading = waited(ProxyClient.job_reading)
    jobs = waited(ProxyClient.jobs)
    keep_reading = waited(ProxyClient.keep_reading)
    kept_reading = waited(ProxyClient.kept_reading)
    keyring = waited(ProxyClient.keyring)
    list_dataset = waited(ProxyClient.list_dataset)
    listing = waited(ProxyClient.listing)
    lock_keyring = waited(ProxyClient.lock_keyring)
    log_out = waited(ProxyClient.log_out)
    log_standing = waited(ProxyClient.log_standing)
    look_at_erasure = waited(ProxyClient.look_at_erasure)
    look_at_file = waited(ProxyClient.look_at_file)
    look_at_keys = waited(ProxyClient.look_at_keys)
    look_at_retention = waited(ProxyClient.look_at_retention)
    lost_of = waited(ProxyClient.lost_of)
    merge = waited(ProxyClient.merge)
    organizations = waited(ProxyClient.organizations)
    people = waited(ProxyClient.people)
    preview = waited(ProxyClient.preview)
    preview_file = waited(ProxyClient.preview_file)
    read = waited(ProxyClient.read)
    read_all = waited(ProxyClient.read_all)
    read_changes = waited(ProxyClient.read_changes)
    record = waited(ProxyClient.record)
    records = waited(ProxyClient.records)
    sealed_record = waited(ProxyClient.sealed_record)
    sealed_records = waited(ProxyClient.sealed_records)
    recover_organization = waited(ProxyClient.recover_organization)
    refresh_tokens = waited(ProxyClient.refresh_tokens)
    register = waited(ProxyClient.register)
    remove_person = waited(ProxyClient.remove_person)
    remove_second_factor = waited(ProxyClient.remove_second_factor)
    renew_recovery_codes = waited(ProxyClient.renew_recovery_codes)
    repair = waited(ProxyClient.repair)
    request = waited(ProxyClient.request)
    reseal_schema = waited(ProxyClient.reseal_schema)
    reset_password = waited(ProxyClient.reset_password)
    resource = waited(ProxyClient.resource)
    restore_keyring = waited(ProxyClient.restore_keyring)
    restore_keyring_file = waited(ProxyClient.restore_keyring_file)
    resume_webhook = waited(ProxyClient.resume_webhook)
    revoke_device = waited(ProxyClient.revoke_device)
    revoke_token = waited(ProxyClient.revoke_token)
    roster_standing = waited(ProxyClient.roster_standing)
    rotate_dataset = waited(ProxyClient.rotate_dataset)
    rotate_keyring = waited(ProxyClient.rotate_keyring)
    salvage = waited(ProxyClient.salvage)
    sealed_schemas = waited(ProxyClient.sealed_schemas)
    search = waited(ProxyClient.search)
    search_all = waited(ProxyClient.search_all)
    search_dataset = waited(ProxyClient.search_dataset)
    second_factor = waited(ProxyClient.second_factor)
    send_reset_link = waited(ProxyClient.send_reset_link)
    send_upload = waited(ProxyClient.send_upload)
    settle = waited(ProxyClient.settle)
    share = waited(ProxyClient.share)
    sign_schema = waited(ProxyClient.sign_schema)
    sql = waited(ProxyClient.sql)
    status = waited(ProxyClient.status)
    tokens = waited(ProxyClient.tokens)
    try_backup = waited(ProxyClient.try_backup)
    try_backup_file = waited(ProxyClient.try_backup_file)
    unlock_keyring = waited(ProxyClient.unlock_keyring)
    unshare = waited(ProxyClient.unshare)
    update = waited(ProxyClient.update)
    upload = waited(ProxyClient.upload)
    upload_file = waited(ProxyClient.upload_file)
    upload_offset = waited(ProxyClient.upload_offset)
    upsert = waited(ProxyClient.upsert)
    user = waited(ProxyClient.user)
    verify_registration = waited(ProxyClient.verify_registration)
    verify_schema = waited(ProxyClient.verify_schema)
    verify_token = waited(ProxyClient.verify_token)
    wait = waited(ProxyClient.wait)
    watch = waited(ProxyClient.watch)
    webhooks = waited(ProxyClient.webhooks)
    withdraw_request = waited(ProxyClient.withdraw_request)


class ClientOptions(TypedDict, total=False):
    """The options of a client, which :class:`.AsyncClient` describes."""

    email: str | None
    password: str | None
    token: str | None
    auth: Authorization | None
    device: Device | str | None
    organization: str | None
    limits: ClientLimits


class AsyncLink:
    """A proxy, and what is named there.

    Attributes:
        described: whose it is and where it leads, for people.
    """

    def __init__(
        self,
        proxy_url: str = DEFAULT_PROXY,
        *,
        email: str | None = None,
        organization: str | None = None,
        **options: Any,
    ) -> None:
        self.described = f"{f'of {email} ' if email else ''}at {_show(proxy_url)}"
        self.proxy = ProxyClient(proxy_url, email=email, **options)
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


class _Blocking:
    """The proxy or the names of a link, whose answers are there once they are awaited: the link has
    waited for them.
    """

    def __init__(self, link: Link, part: Literal["proxy", "names"]) -> None:
        self._link, self._part = link, part

    def __getattr__(self, name: str) -> Any:
        found = getattr(getattr(self._link, self._part), name)
        return functools.wraps(found)(self._wait(found)) if callable(found) else found

    def _wait(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            answer = method(*args, **options)
            if isinstance(answer, Coroutine):
                return _run(self._link, answer)
            if isinstance(answer, AsyncIterator):
                return _Each(self._link.each(answer))
            if isinstance(answer, AbstractAsyncContextManager):
                return self._link.within(answer)
            return answer

        return call


async def _run(link: Link, coroutine: Coroutine[Any, Any, T]) -> T:
    return link.run(coroutine)


class _Each(AsyncIterator[T]):
    def __init__(self, things: Iterator[T]) -> None:
        self._things = things

    async def __anext__(self) -> T:
        for thing in self._things:
            return thing
        raise StopAsyncIteration


class BlockingLink:
    """A link for the asynchronous objects behind those of a synchronous client."""

    def __init__(self, link: Link) -> None:
        self.described = link.described
        self.proxy, self.names = _Blocking(link, "proxy"), _Blocking(link, "names")


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
