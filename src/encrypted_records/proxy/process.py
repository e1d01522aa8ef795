"""The proxy as a process: threads and turns, background work, shared work, private memory.

*Turns.* The event loop serves all requests, so work that may take more than some milliseconds runs
in a thread. Python threads take turns of a few milliseconds, and the pool is small: if long work
used any number of threads, a short query would wait for a free thread, and at each of its steps for
the turns of all these threads. Therefore:

- Long work has :data:`THREADS` separate threads. Each user has one running task at a time, and
  users take turns, so that no user occupies all threads.
- Keys are derived from passphrases in a separate thread: that takes a core and much memory, so only
  one derivation runs at a time (:mod:`encrypted_records.crypto.recovery`).
- :func:`asyncio.to_thread` is for short work.
- An export decrypts thousands of rows at a time, and several exports would occupy all threads and
  most turns of the event loop. So each user has one part of an export under way, all users together
  :data:`PARTS_AT_ONCE`, and between two parts a user rests for as long as the first took, if there
  was a short request (:class:`Turns`).

A single call of a C function that holds the interpreter lock blocks all other threads. No such call
may process more than some MiB, or more than ``strict_json.MAX_VALUES`` values.

*Background work.* No request starts with it, and none fails because of it. All of it is started by
:class:`Background`, so that failures are logged, and a proxy that stops leaves nothing running.
Requests wait for it only by :meth:`Background.wait`.

*Single-flight.* Each key is fetched once for all requests that need it at the same time
(:class:`Fetches`). A request that needs a key which another request fetches waits for the end of
that fetch, and then looks in the shared cache again. Nothing else is passed between requests, not
even errors. For each request, the API still confirms that its own caller may read
(:mod:`encrypted_records.proxy.search.upstream`). So a waiting request gets nothing that it would
not have received a moment later.

Lock order: a task that owns a claim never awaits another fetch, so there is no deadlock. For pages
and segments, unclaimed keys are claimed and fetched first, and other fetches are awaited after
that; for rows, other fetches are awaited first, and the keys that are still missing are claimed
then.

*Batches.* One run of the work serves several callers (:class:`Gathering`). The first caller is
served at once. Callers that arrive during a run wait, and the next run serves as many of them
together as it takes. So no caller waits for a batch to fill, and every result comes from a run that
began after the call.

*Secrecy.* Memory is private, credentials have names that do not reveal them, and orders are random.
The measures of the operating system are not needed for correct work, and not every system has them:
a refused measure is logged at debug level, and the proxy continues. Against root, or a user who can
attach a debugger, nothing here helps.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import struct
import sys
from collections import OrderedDict
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager, contextmanager, nullcontext
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Generic, ParamSpec, Protocol, TypeVar
from weakref import WeakValueDictionary

import msgspec
from cryptography.hazmat.primitives import hashes, hmac

from encrypted_records import runtime
from encrypted_records.errors import ErsError
from encrypted_records.fair_queue import FairQueue
from encrypted_records.heap import forbid_dumps

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

THREADS = 2
#: Reading a body of more bytes takes long, and so do the query or the record in it.
LONG_BYTES = 64 << 10
#: Work on at most this many bytes is done on the event loop, unless something else makes it long.
FEW_BYTES = 8 << 10

#: The user of the current context, if any; :class:`Lines` sets it.
current_user: ContextVar[bytes] = ContextVar("user", default=b"")


class Lines:
    """The proxy's queues in front of the threads: each runs one task per user at a time. Waiting
    work belongs to this proxy, and ends with it.
    """

    def __init__(self) -> None:
        self.long = FairQueue(THREADS, most_per_user=1)
        self.keys = FairQueue(1, most_per_user=1)

    def enter(self, user: bytes) -> None:
        """This context, and the tasks that it starts, work for this user from now on."""
        current_user.set(user)
        _lines.set(self)


#: The queues of the proxy that runs the current request or job. Work without a user waits in none.
_lines: ContextVar[Lines | None] = ContextVar("lines", default=None)


class Sent(dict[str, Any]):
    """A JSON object from a request, and the size of its body in bytes."""

    def __init__(self, members: dict[str, Any], size: int) -> None:
        super().__init__(members)
        self.size = size


def is_long(body: object) -> bool:
    """Whether reading ``body``, an object of a request, takes long."""
    return isinstance(body, Sent) and body.size > LONG_BYTES


class Run(Protocol):
    """The place where work runs: :func:`aside`, :func:`asyncio.to_thread`, or :func:`here`."""

    async def __call__(
        self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs
    ) -> T: ...


_long = ThreadPoolExecutor(THREADS, "aside")
_keys = ThreadPoolExecutor(1, "keys")


async def _run(threads: ThreadPoolExecutor, queue: FairQueue | None, work: Callable[[], T]) -> T:
    async with nullcontext() if queue is None else queue.take(current_user.get()):
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(threads, copy_context().run, work)


async def here(function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
    """Run on the event loop: for work that takes less time than starting a thread."""
    return function(*arguments, **named)


def by_size(size: int, *, few: bool = False) -> Run:
    """The executor for work on ``size`` bytes.

    Args:
        few: whether such work on at most ``FEW_BYTES`` takes less than a millisecond.
    """
    if few and size <= FEW_BYTES:
        return here
    return aside if size > LONG_BYTES else runtime.in_thread


async def aside(function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
    """Run long work in a thread; see :func:`asyncio.to_thread`."""
    lines = _lines.get()
    return await _run(_long, lines.long if lines else None, partial(function, *arguments, **named))


async def deriving(function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
    """Derive a key from a passphrase in a thread; see :func:`asyncio.to_thread`."""
    lines = _lines.get()
    return await _run(_keys, lines.keys if lines else None, partial(function, *arguments, **named))


# --- turns of long answers ------------------------------------------------------------------------

#: Export parts under way at once, of all users.
PARTS_AT_ONCE = 2
#: Ratio of a rest to the part before it, the longest rest in seconds, and the longest part in
#: seconds that needs no rest.
REST, MOST_REST_SECONDS, SHORT_SECONDS = 1.0, 2.0, 0.02


class Turns:
    """Used by one event loop."""

    def __init__(self, is_busy: Callable[[float], bool]) -> None:
        """
        Args:
            is_busy: returns whether short requests were under way within the last given number of
                seconds.
        """
        self._is_busy = is_busy
        self._queue = FairQueue(PARTS_AT_ONCE)
        self._lines: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()
        #: the time until which a user rests
        self._rests: dict[bytes, float] = {}

    @asynccontextmanager
    async def take(self, user: bytes) -> AsyncIterator[None]:
        """A turn for one part of a user's answer. A rest comes before the user's next turn, so that
        the part is sent at once, and nobody waits after the last one."""
        clock = asyncio.get_running_loop().time
        async with self._lines.setdefault(user, asyncio.Lock()):
            if user in self._rests:
                await runtime.sleep(max(0.0, self._rests[user] - clock()))
                del self._rests[user]
            async with self._queue.take(user):
                began = clock()
                yield
                ended = clock()
            took = ended - began
            if took > SHORT_SECONDS and self._is_busy(took):
                self._rests[user] = ended + min(REST * took, MOST_REST_SECONDS)

    async def each(self, user: bytes, parts: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """The parts, each made in a turn; they are closed with this iterator. No turn is held while
        a part is consumed.
        """
        async with aclosing(parts):
            while True:
                async with self.take(user):
                    try:
                        part = await anext(parts)
                    except StopAsyncIteration:
                        return
                yield part


async def put_first(first: T | None, batches: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """``first``, if there is one, and ``batches``, which are closed with this generator."""
    if first is not None:
        yield first
    async with aclosing(batches):
        async for batch in batches:
            yield batch


class Recent(OrderedDict[K, V]):
    """The items that were set or moved to the end last, at most ``most``."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self._most:
            self.popitem(last=False)


# --- background work ------------------------------------------------------------------------------

Task = asyncio.Task[None]
Work = Callable[[], Awaitable[None]]

MERGES = "merging"
CHECKPOINTING = "writing a checkpoint"
LEDGERS = "keeping a log"
ROW_CHECKS = "checking rows"
RETENTION = "retention"
ATTENDING = "looking for pending changes"
WORKERS = "starting a worker process"
JOBS = "a job"
JOB_SWEEP = "sweeping jobs"
UPLOAD_SWEEP = "sweeping uploads"
CLOCK = "watching the clock"
LOCKING = "locking unused keyrings"
WEBHOOKS = "a webhook"
FORGETTING = "dropping unused data"


async def attempt(name: str, work: Work) -> None:
    """Run background work; a failure is logged with ``name``."""
    try:
        await work()
    except ErsError as error:
        log.warning("%s failed: %s", name, error.message)
    except Exception as error:
        log.error("%s failed because of an internal error: %s", name, type(error).__name__)  # noqa: TRY400


class Background:
    """Background tasks; one instance for each proxy. Belongs to its event loop."""

    def __init__(self) -> None:
        self._tasks: dict[Task, str] = {}

    def start(self, name: str, work: Work) -> Task:
        """Start ``work``. A failure is logged here, and its task just ends.

        Args:
            name: name of the kind of work, for :meth:`stop` and the log.
        """
        task = asyncio.create_task(attempt(name, work))  # noqa: TID251 # this is where they start
        self._tasks[task] = name
        task.add_done_callback(self._forget)
        return task

    def every(self, seconds: float, name: str, work: Work, *, at_once: bool = True) -> None:
        """Repeat ``work`` until :meth:`stop`, also after a failure.

        Args:
            seconds: between its end and its next beginning.
            at_once: whether it runs immediately.
        """

        async def again() -> None:
            if at_once:
                await attempt(name, work)
            while True:
                await runtime.sleep(seconds)
                await attempt(name, work)

        self.start(name, again)

    async def wait(
        self,
        tasks: Iterable[Task],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 # as asyncio.wait has it
        return_when: str = asyncio.ALL_COMPLETED,
    ) -> None:
        """Wait for some of the started tasks, like :func:`asyncio.wait`; also for none."""
        if waited := set(tasks):
            self.hurry(waited)
            await asyncio.wait(waited, timeout=timeout, return_when=return_when)

    def hurry(self, tasks: Collection[Task]) -> None:
        """Mark tasks that a request waits for. It does nothing here; in tests that delay background
        work until requested, these tasks start.
        """

    async def finish(self, *names: str, within: float) -> None:
        """Wait up to ``within`` seconds for the tasks with these names, and cancel the rest."""
        await self.wait(self._named(names), timeout=within)
        await self.stop(*names)

    async def stop(self, *names: str) -> None:
        """Cancel the tasks with these names, or all tasks if there are no names, and wait for their
        end.
        """
        stopped = self._named(names)
        for task in stopped:
            task.cancel()
        await asyncio.gather(*stopped, return_exceptions=True)

    def _named(self, names: Collection[str]) -> list[Task]:
        return [task for task, name in self._tasks.items() if name in names or not names]

    def _forget(self, task: Task) -> None:
        del self._tasks[task]


# --- single-flight --------------------------------------------------------------------------------

I = TypeVar("I")  # noqa: E741
O = TypeVar("O")  # noqa: E741


@dataclass(eq=False, slots=True)
class Fetch:
    """A fetch under way, with its known number of keys. ``ended`` is cancelled if the fetch was
    given up, and has a result if it succeeded or failed.
    """

    size: int
    ended: asyncio.Future[None]


class Fetches(Generic[K]):
    """The fetches under way, by key. Used by one event loop."""

    def __init__(self) -> None:
        self._under_way: dict[K, Fetch] = {}

    def of(self, keys: Collection[K]) -> dict[K, Fetch]:
        """The fetches under way among these keys."""
        return {key: self._under_way[key] for key in keys if key in self._under_way}

    def all(self) -> set[K]:
        """All keys that are being fetched."""
        return set(self._under_way)

    @contextmanager
    def claim(self, keys: Collection[K]) -> Iterator[Callable[[Collection[K]], None]]:
        """Claim the keys that no other task fetches, until the block ends. No fetch may be awaited
        in the block.

        Returns:
            A function that claims all keys of the fetch, including these, once they are known.
        """
        fetch = Fetch(0, asyncio.get_running_loop().create_future())
        claimed: list[K] = []

        def claim(all_keys: Collection[K]) -> None:
            new = [key for key in all_keys if key not in self._under_way]
            self._under_way |= dict.fromkeys(new, fetch)
            claimed.extend(new)
            fetch.size = len(all_keys)

        claim(keys)
        try:
            yield claim
        except asyncio.CancelledError:
            fetch.ended.cancel()
            raise
        finally:
            for key in claimed:
                del self._under_way[key]
            if not fetch.ended.done():
                fetch.ended.set_result(None)


async def wait_for(fetches: Collection[Fetch]) -> bool:
    """Wait until all of these have ended.

    Returns:
        Whether a fetch was given up, for example because its client disconnected. Then one of the
        waiting requests fetches the keys again, and the others may wait for it. After a failed
        fetch, each request tries for itself.
    """
    ended = {fetch.ended for fetch in fetches}
    await asyncio.wait(ended)
    return any(task.cancelled() for task in ended)


# --- batching -------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Waiting(Generic[I, O]):
    """A waiting caller, with its request and its context."""

    item: I
    outcome: asyncio.Future[O]
    context: Context = field(default_factory=copy_context)

    def settle(self, outcome: O) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)

    def refuse(self, error: Exception) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)


@dataclass(eq=False, slots=True)
class WaitingLine(Generic[I, O]):
    """Tasks that wait under the same key, in order of arrival."""

    waiting: list[Waiting[I, O]] = field(default_factory=list)
    #: the tasks that are being served
    taken: list[Waiting[I, O]] = field(default_factory=list)

    def take(self, fit: Callable[[Sequence[I]], int] = len) -> list[Waiting[I, O]]:
        """Take the tasks to serve now: the first tasks that still wait, as many as ``fit`` returns,
        at least one. Empty if all were cancelled.
        """
        still_waiting = [waiter for waiter in self.waiting if not waiter.outcome.done()]
        count = max(1, fit([waiter.item for waiter in still_waiting])) if still_waiting else 0
        self.taken, self.waiting = still_waiting[:count], still_waiting[count:]
        return self.taken


class Gathering(Generic[K, I, O]):
    def __init__(self, serve: Callable[[WaitingLine[I, O]], Awaitable[None]]) -> None:
        """
        Args:
            serve: takes some waiting callers from a line, and settles or refuses each. An exception
                refuses the taken callers that are left, or all callers if none was taken.
                So callers that the error does not concern have to be settled or refused before.
        """
        self._serve = serve
        self._lines: dict[K, WaitingLine[I, O]] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def ask(self, key: K, item: I) -> O:
        """The result of ``serve`` for ``item``, served with other items that wait under its key."""
        waiting: Waiting[I, O] = Waiting(item, asyncio.get_running_loop().create_future())
        line = self._lines.get(key)
        if line is not None:
            line.waiting.append(waiting)
            return await waiting.outcome
        line = self._lines[key] = WaitingLine([waiting])
        self._begin(key, line)
        return await waiting.outcome

    def _begin(self, key: K, line: WaitingLine[I, O]) -> None:
        # A separate task, because the first caller may be cancelled. It runs in the context of the
        # last caller: if the API left an earlier call unanswered, that says nothing about now.
        context = line.waiting[-1].context
        task = asyncio.create_task(self._serve_some(key, line), context=context)  # noqa: TID251 # requests wait for it
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _serve_some(self, key: K, line: WaitingLine[I, O]) -> None:
        line.taken = []
        try:
            await self._serve(line)
        except Exception as error:
            for waiting in line.taken or line.take():
                waiting.refuse(error)
        except BaseException:
            for waiting in [*line.taken, *line.waiting]:
                waiting.outcome.cancel()
            line.waiting = []
            raise
        finally:
            if line.waiting:
                self._begin(key, line)
            else:
                del self._lines[key]


async def run_together(jobs: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Run all; if one fails, cancel the others and raise its error."""
    try:
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(_coroutine(job))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _coroutine(job: Callable[[], Awaitable[None]]) -> None:
    await job()


# --- private memory -------------------------------------------------------------------------------

# Constants of <sys/mman.h> and <linux/capability.h>.
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4
_CAP_IPC_LOCK = 14


def harden() -> None:
    """No dumps of this process (:func:`heap.forbid_dumps`), and no swap."""
    forbid_dumps()
    if sys.platform != "linux":
        return
    import resource  # noqa: PLC0415 - Unix alone

    libc = ctypes.CDLL(None, use_errno=True)
    # Under a limit, locking future mappings would make ordinary allocations fail.
    unlimited = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] == resource.RLIM_INFINITY
    if not (unlimited or _may_lock()):
        log.debug("memory is not locked: the limit on locked memory is too low")
    # Pages are locked when they are used; unused mappings cost no memory.
    elif libc.mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT) != 0:
        log.debug("memory is not locked: error %d", ctypes.get_errno())


def _may_lock() -> bool:
    """Whether this process has the capability to lock memory beyond limits."""
    for line in Path("/proc/self/status").read_text("ascii", "replace").splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            return bool(int(value, 16) >> _CAP_IPC_LOCK & 1)
    return False


# --- names ----------------------------------------------------------------------------------------


class SecretNames:
    """Names for secrets: data about a credential is stored under its HMAC. The key is made by this
    process and never leaves it.
    """

    def __init__(self) -> None:
        self._key = runtime.random_bytes(32)

    def of(self, parts: Sequence[str]) -> bytes:
        """The name of a secret with these parts: 32 bytes."""
        state = hmac.HMAC(self._key, hashes.SHA256())
        state.update(msgspec.msgpack.encode(parts))
        return state.finalize()


# --- orders ---------------------------------------------------------------------------------------


def shuffled(items: Iterable[T]) -> list[T]:
    """The items in random order: the order of requests would reveal the order of the items."""
    order = list(items)
    # One system call for all items: a call per item takes longer than the rest of this function.
    draws = struct.unpack(f"{len(order)}Q", runtime.random_bytes(8 * len(order)))
    return [item for _, item in sorted(zip(draws, order, strict=True), key=itemgetter(0))]
