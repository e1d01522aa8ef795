"""Terminal output: results, errors, exit codes, and times as people read them.

Results go to stdout; errors, progress and logs go to stderr. An error is one line ``error: what
happened`` and, if there is a solution, a second ``hint: how to go on``. Tracebacks are shown only
with ``--debug`` or ``ERS_TRACEBACK=1``. Text from other sources cannot control the terminal:
control characters are escaped. The exit codes are documented in docs/cli.md.

Times in tables and errors are in the time zone of this machine, or in UTC with ``--utc``. JSON and
CSV contain times as the HTTP API sends them.
"""

from __future__ import annotations

import codecs
import errno
import io
import logging
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import click

from encrypted_records import errors, logs

_IN_UTC = f"{__name__}.utc"
#: Length of a date without a time, which is a day in UTC.
_DAY = len("2026-01-31")
#: Members of resources that contain times.
TIMES = frozenset({"created", "updated", "expires", "last_used", "since"})


def _remember(context: click.Context, _param: click.Parameter, value: bool) -> None:
    context.meta[_IN_UTC] = value


utc_option = click.option(
    "--utc",
    is_flag=True,
    expose_value=False,
    callback=_remember,
    help="Show times of tables in UTC (default: local time).",
)


def minute(value: Any) -> str:
    """A time to the minute, such as ``2026-01-31 08:30``; in UTC with a trailing Z.

    Args:
        value: seconds since 1970, or an ISO 8601 text, in UTC unless it states an offset; None
            gives an empty text. A date, or a text that is not a time, is returned unchanged.
    """
    if value is None or value == "":
        return ""
    if isinstance(value, str) and len(value) <= _DAY:
        return value
    zone = UTC if _in_utc() else None
    try:
        shown = _moment(value).astimezone(zone)
    except (ValueError, OverflowError, OSError, TypeError):
        return str(value)  # an API may send anything
    return f"{shown:%Y-%m-%d %H:%M}{'Z' if zone else ''}"


def with_minutes(text: str) -> str:
    """The text of an error, with its times in the format of :func:`minute`."""
    return errors.TIME.sub(lambda found: minute(found[0]), text)


def _moment(value: Any) -> datetime:
    if not isinstance(value, str):
        return datetime.fromtimestamp(value, UTC)
    moment = datetime.fromisoformat(value)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def day(seconds: int) -> str:
    """The day of a time in seconds since 1970; empty for 0."""
    return minute(seconds)[:_DAY] if seconds else ""


def _in_utc() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_IN_UTC))


DONE, FAILED, MISUSED, MISSING, REFUSED, UNAVAILABLE, REJECTED, DECLINED = range(8)
INTERRUPTED = 130
#: Exit code if the reader of the output is gone, as for a program that SIGPIPE ended.
UNREAD = 141
#: The first matching class decides.
EXIT_CODES: tuple[tuple[type[errors.ErsError], int], ...] = (
    (errors.InvalidRecords, REJECTED),
    (errors.BadInput, MISUSED),
    (errors.NotFound, MISSING),
    (errors.Refused, REFUSED),
    (errors.Unavailable, UNAVAILABLE),
)
#: Errors of disks that are full, read-only or broken.
_OF_DISKS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
STDOUT = "standard output"
_LOOK_BEFORE = "the command may have succeeded: check before you repeat it"
_CTRL_C = bytes([signal.SIGINT])
#: Interval for repeating a Ctrl-C that was not handled yet.
_REPEATED_SECONDS = 0.1
#: By the parameter that shells split into several arguments unless it is quoted.
_QUOTED = {
    "expression": "put the condition in quotes, such as 'age > 30': the shell splits it, and takes"
    " < and > as files",
    "matching": "put the condition in quotes, such as --matching 'age > 30': the shell splits it,"
    " and takes < and > as files",
    "statement": "put the statement in quotes: the shell splits it, and takes < and > as files",
}
#: Maximum flaws of an input shown below an error; the rest are counted.
FLAWS_SHOWN = 5


def say(text: str = "") -> None:
    """Print a line, or several, of the result: unchanged for programs, but unable to control a
    terminal. They are flushed, because the reader of a pipe may wait for them.
    """
    click.echo(_escaped(text) if sys.stdout.isatty() else text)


def warn(line: str) -> None:
    """Print a line on stderr that is not part of the result."""
    _complain(printable(line))


def _complain(line: str) -> None:
    """Print a line on stderr. Errors are ignored: a command does not fail because its messages
    cannot be shown.
    """
    with suppress(OSError):
        click.echo(line, err=True)


class TerminalOutput(io.RawIOBase):
    """Standard output that is a terminal: text that is written to it cannot control it."""

    def __init__(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._decoder = io.IncrementalNewlineDecoder(decoder, translate=True)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        sys.stdout.write(_escaped(self._decoder.decode(bytes(data))))
        return len(data)

    def flush(self) -> None:
        sys.stdout.flush()


class RetryNotice:
    """A line on a terminal that says what a command waits for, once its requests have been repeated
    for a while.

    Args:
        silent_seconds: the longest wait without the line.
    """

    def __init__(self, silent_seconds: float) -> None:
        self._silent_seconds = silent_seconds
        self._since: float | None = None
        self._is_shown = False

    def __call__(self, address: str, pause: float) -> None:
        """A request to ``address`` will be repeated after ``pause`` seconds."""
        from encrypted_records import runtime  # noqa: PLC0415 - slow to import

        now = runtime.monotonic()
        self._since = now if self._since is None else self._since
        waits_long = now + pause - self._since >= self._silent_seconds
        if waits_long and not self._is_shown and sys.stderr.isatty():
            self._is_shown = True
            warn(f"waiting for {address}, which does not answer: trying again; Ctrl-C ends this")


def format_count(number: int, thing: str) -> str:
    """``1 record``, ``2 records``."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def confirm(
    question: str,
    *,
    yes: bool,
    why: str = "this cannot be undone",
    undone: str = "nothing was changed",
) -> None:
    """Ask before an irreversible action; end the command unless the user answers yes.

    Args:
        yes: do not ask.
        why: what needs confirmation, for the error if there is no terminal.
        undone: what did not happen, for the message if the answer is no.

    Raises:
        InvalidSetting: there is no terminal to ask on.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise errors.InvalidSetting(
            f"{why}, and there is no terminal to ask for it",
            hint="add --yes to confirm",
        )
    with _ctrl_c_ends_it():
        if not click.confirm(_escaped(question), err=True):
            warn(f"Cancelled; {undone}.")
            raise click.exceptions.Exit(DECLINED)


def ask_yes(question: str) -> bool:
    """Whether the user answers a question with yes."""
    with _ctrl_c_ends_it():
        return click.confirm(_escaped(question), err=True)


def ask(label: str, *, err: bool = True, **options: Any) -> str:
    """``click.prompt`` for a text, on stderr; Ctrl-C ends the command."""
    with _ctrl_c_ends_it():
        return str(click.prompt(printable(label), err=err, **options))


@contextmanager
def _ctrl_c_ends_it() -> Iterator[None]:
    """Let Ctrl-C end a question. asyncio delays Ctrl-C until the next await, and a question has
    none.

    A signal that arrives just before the system waits for a key is not handled until there is a
    key. So it is repeated until the question is over.
    """
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    woken = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    over, turn = threading.Event(), threading.Lock()
    asker = threading.get_ident()

    def repeat() -> None:
        while (byte := os.read(reading, 1)) != b"\0":
            while byte == _CTRL_C and not over.wait(_REPEATED_SECONDS):
                with turn:
                    if not over.is_set():
                        signal.pthread_kill(asker, signal.SIGINT)

    repeating = threading.Thread(target=repeat, name="ctrl-c", daemon=True)
    repeating.start()
    try:
        yield
    finally:
        with turn:
            over.set()
        signal.signal(signal.SIGINT, previous)
        signal.set_wakeup_fd(woken)
        os.set_blocking(writing, True)
        os.write(writing, b"\0")
        repeating.join()
        os.close(reading)
        os.close(writing)


def report(error: errors.ErsError) -> int:
    """Print an error of this package; returns its exit code."""
    _trace()
    _error(error.message, error.hint)
    for flaw in error.flaws[:FLAWS_SHOWN]:
        row = "" if flaw.row is None else f"row {flaw.row}"
        location = ", ".join(part for part in (row, flaw.field or flaw.pointer) if part)
        text = f"{location}: {flaw.detail}" if location else flaw.detail
        _complain(f"  {printable(with_minutes(text))}")
    if len(error.flaws) > FLAWS_SHOWN:
        _complain(f"  and {len(error.flaws) - FLAWS_SHOWN} more")
    return exit_code(error)


def exit_code(error: errors.ErsError) -> int:
    """The exit code of a command that failed with ``error``."""
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), FAILED)


def report_misuse(error: click.ClickException) -> int:
    """Print an error of click about the command line; returns the exit code."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "ers"
    message = " ".join(error.format_message().split()).rstrip(".")
    hint = f"see {command} --help"
    if isinstance(error, click.NoSuchOption) and error.option_name == "--json":
        message, hint = "no such option: --json", "JSON is: --output json"
    if context and "unexpected extra argument" in message:
        names = {parameter.name for parameter in context.command.params}
        hint = next((text for name, text in _QUOTED.items() if name in names), hint)
    _error(message[:1].lower() + message[1:], hint)
    return MISUSED


def report_system(error: OSError) -> int:
    """Print an error of the operating system, such as a full disk; returns the exit code."""
    _trace()
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    if any(frame.f_code is click.echo.__code__ for frame in frames):
        error.filename = STDOUT
    if error.filename is None and error.errno not in _OF_DISKS:
        return report_bug(error)
    why = "it is closed" if error.errno == errno.EBADF else (error.strerror or "it fails").lower()
    _error(f"{error.filename or 'a file'} cannot be written: {why}", _LOOK_BEFORE)
    return FAILED


def open_streams() -> None:
    """Replace standard streams that were closed when the program started.

    Otherwise the next opened file would get their descriptors, and the output meant for them.
    Standard input becomes empty, writing to standard output fails with an error that explains it,
    and output to stderr is discarded.
    """
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)  # the lowest number that is free
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8")
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8")
    if isinstance(sys.stdout, io.TextIOWrapper):  # names of files may have any bytes
        sys.stdout.reconfigure(errors="surrogateescape")


def drop_unwritten() -> None:
    """Discard output that cannot be written. Python would retry at exit, complain, and exit with
    another code.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def report_bug(error: BaseException) -> int:
    """Report an internal error. Its text is left out: it may quote a record or a secret."""
    _trace()
    _error(
        f"internal error ({type(error).__name__})",
        "this is a bug; repeat it with --debug and report what that shows",
    )
    return FAILED


def _start_debugging(_ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted:
        # In the environment, so that child processes get it, too.
        os.environ["ERS_TRACEBACK"] = "1"
    if os.environ.get("ERS_TRACEBACK"):
        logs.log_to_stderr()
    else:
        # Warnings about retries are not results, and the error contains them.
        logging.getLogger("encrypted_records").addHandler(logging.NullHandler())


debug_option = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_start_debugging,
    help="Show each request, and where in the program an error came from.",
)


def _trace() -> None:
    """Print where an error came from, without its text: reports of bugs contain this."""
    if os.environ.get("ERS_TRACEBACK"):
        _complain(logs.TextFormatter().formatException(sys.exc_info()))


def _error(message: str, hint: str) -> None:
    # The text may come from another side, which is not trusted.
    _complain(f"error: {_lines(message)}")
    if hint:
        _complain(f"hint: {_lines(hint)}")


def _lines(text: str) -> str:
    return _escaped(with_minutes(text))


def _escaped(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """``text`` with characters escaped that would move the cursor or change the writing
    direction.
    """
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Iterator[str]:
    """Lines of a table: the column names, then a line per row, absent values left blank. Columns
    are aligned by the width that a terminal gives each character."""
    cells = [[printable(str(row.get(name, ""))) for name in columns] for row in rows]
    lines = [list(columns), *cells]
    widths = [max(width_of(line[at]) for line in lines) for at in range(len(columns))]
    for line in [list(columns), ["-" * width for width in widths], *cells]:
        padded = (pad(cell, width) for cell, width in zip(line, widths, strict=True))
        yield "  ".join(padded).rstrip()


def width_of(text: str) -> int:
    """The terminal columns of a text: two for a wide character, none for a combining mark."""
    from rich.cells import cell_len  # noqa: PLC0415 - not every command shows a table

    return cell_len(text)


def pad(text: str, width: int) -> str:
    """Pad a text with blanks to ``width`` terminal columns."""
    return text + " " * (width - width_of(text))


def cut(text: str, width: int) -> str:
    """Shorten a text to ``width`` terminal columns, with an ellipsis if it is longer."""
    if width_of(text) <= width:
        return text
    from rich.cells import set_cell_size  # noqa: PLC0415 - not every command shows a table

    return set_cell_size(text, width - 1) + "\u2026"
