"""Processes of ``ers`` that begin as copies of one that has imported everything.

Imports are most of what a start costs: 1.2 s of processor time for a proxy, 2.7 s for ``ers up``
with both of its sides. A template process imports once and forks for each start; the copy gets
environment, folder, descriptors and arguments as a new process would, and runs the same ``main``.
``/proc`` shows its arguments, but not its environment. Tests of how a process starts, or of what
its environment shows, use :class:`subprocess.Popen`.

Each start is a child of the process that asked for it: the template forks twice, and the child of
the one that ends at once is inherited by the nearest ancestor that asks for orphans (prctl(2),
PR_SET_CHILD_SUBREAPER). Where that is not Linux, or the environment sets up another Python, a start
is an ordinary one.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import inspect
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from encrypted_records.cli import commands
from tests.support import children

#: Where Python finds what lowers the cost of a hash.
STARTUP = Path(__file__).with_name("startup")
PROGRAM = "encrypted_records.cli.main"
WORKER = "encrypted_records.proxy.workers.main"
#: Modules that a side imports when it starts, beside those of commands. Those of Django cannot be
#: imported before it has settings.
_MODULES = (
    PROGRAM,
    "encrypted_records.cli.supervise.api",
    "encrypted_records.cli.supervise.supervisor",
    "encrypted_records.client.proxy.client",
    "encrypted_records.proxy.app",
    WORKER,
    "encrypted_records.server.serve",
    "django.contrib.admin",
    "django.core.mail.backends.smtp",
    "django.core.management.commands.migrate",
    "django.contrib.auth.hashers",
    "django.db.backends.postgresql.base",
    "django.db.backends.sqlite3.base",
    "django.db.migrations.loader",
    "django.forms",
    "django.template.loader",
    "django.contrib.postgres.fields",
    "django.test.client",
    "django.views.debug",
    "django.views.generic",
    "drf_spectacular.utils",
    "environ",
    "importlib_metadata",
    "inflection",
    "jaraco.context",
    "jaraco.functools",
    "jwt",
    "markdown",
    "more_itertools",
    "obstore",
    "pyotp",
    "pygments.formatters",
    "pygments.lexers.special",
    "requests",
    "rest_framework.serializers",
    "unittest.mock",
    "uritemplate",
    "uvicorn.lifespan.on",
    "uvicorn.loops.uvloop",
    "yaml",
)
_SUBREAPER = 36  # of <sys/prctl.h>
#: Bytes of the arguments that /proc can show of a copy.
_SHOWN = 4096
#: Descriptors are moved above this one before they get their numbers.
_HIGH = 512
#: Beginnings of settings that are read when Python starts, or when something is imported: where
#: these differ from the template's, no copy has them.
_READ_BEFORE = ("PYTHON", "LD_", "MALLOC_", "TZ", "LANG", "LC_", "PROMETHEUS_")
_TIME_ZONE = {name: value for name, value in os.environ.items() if name == "TZ"}
#: Held while this process asks for orphans: were two starts to overlap, the first to be done would
#: no longer ask, and the copy of the other would be inherited by the system.
_inheriting = threading.Lock()


class Template:
    """A process that has imported what starts need, and forks for each."""

    def __init__(self, connection: socket.socket, environment: Mapping[str, str]) -> None:
        self._connection = connection
        self._environment = read_before(environment)

    def suits(self, line: Sequence[Any], environment: Mapping[str, str]) -> bool:
        """Whether a copy can stand for what this command line starts with this environment."""
        program, how, what = (str(word) for word in line[:3])
        runs_ers = how == "-c" or (how == "-m" and what in (PROGRAM, WORKER))
        ours = program == sys.executable and runs_ers
        return ours and self._environment == read_before(environment)

    def start(self, request: Mapping[str, Any], descriptors: Mapping[int, int]) -> int:
        """Start a copy.

        Returns:
            The process id of a child of this process.

        Args:
            descriptors: of this process, by the number that each has in the copy.
        """
        told = json.dumps({**request, "numbers": list(descriptors)}).encode()
        libc = ctypes.CDLL(None)
        with _inheriting:
            libc.prctl(_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._connection, [told], list(descriptors.values()))
                answer = self._connection.recv(32)
            finally:
                libc.prctl(_SUBREAPER, 0, 0, 0, 0)
        assert answer, "the template of processes has ended"
        return int(answer)


def read_before(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The part of an environment that is read when Python starts, or when something is imported.

    Args:
        environment: that of a template of this process, if there is none.
    """
    if environment is None:
        environment = {**inherited(), "PYTHONPATH": python_path()}
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_BEFORE) and name != "PYTHON_KEYRING_BACKEND" and value
    }


#: The one step of Popen that starts something; pipes and waiting stay as they are.
_execute = subprocess.Popen._execute_child  # type: ignore[attr-defined]


class Forked(subprocess.Popen[Any]):
    """A start of ``ers`` as a copy of the template; any other start as ever."""

    def _execute_child(self, *given: Any) -> None:
        asked = inspect.signature(_execute).bind(self, *given).arguments
        template = template_of_this_process()
        environment = asked["env"] if asked["env"] is not None else os.environ
        if (
            template is None
            or len(asked["args"]) < 3
            or not template.suits(asked["args"], environment)
            or asked["preexec_fn"] is not None
        ):
            _execute(self, *given)
            return
        ends = [(asked["p2cread"], 0), (asked["c2pwrite"], 1), (asked["errwrite"], 2)]
        descriptors = {number: number if end == -1 else end for end, number in ends}
        descriptors |= {number: number for number in asked["pass_fds"]}
        request = {
            "line": [str(word) for word in asked["args"]],
            "environment": dict(environment),
            "folder": os.fspath(asked["cwd"] or Path.cwd()),
            "session": asked["start_new_session"],
        }
        self.pid = template.start(request, descriptors)
        self._child_created = True
        # As Popen does behind a start: those of pipes are the copy's now.
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[end] for end in pipes))  # type: ignore[attr-defined]


def run(
    line: Sequence[str | Path], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and have what it says."""
    with Forked(
        [str(word) for word in line],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        out, err = process.communicate()
    return subprocess.CompletedProcess(line, process.returncode, out, err)


#: By the process that asks.
_templates: dict[int, Template | None] = {}
_making = threading.Lock()


def template_of_this_process() -> Template | None:
    """The template that this process asks, which is started when it is first wanted."""
    pid = os.getpid()
    with _making:
        if pid not in _templates:
            _templates[pid] = _started() if sys.platform == "linux" else None
        return _templates[pid]


def _started() -> Template:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line = [sys.executable, "-m", __name__, str(its.fileno()), "-" * _SHOWN]
    environment = {**inherited(), "PYTHONPATH": python_path()}
    with its, children.lasting():
        process = subprocess.Popen(
            line,
            pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=environment,
            cwd=Path(__file__).parents[2],
        )
    atexit.register(_end, process, ours)
    return Template(ours, environment)


def inherited() -> dict[str, str]:
    """The environment of this process, with the time zone that it began with: Django sets another
    where the API itself runs in the process."""
    environment = {name: value for name, value in os.environ.items() if name != "TZ"}
    return environment | _TIME_ZONE


def _end(process: subprocess.Popen[bytes], connection: socket.socket) -> None:
    connection.close()
    process.wait()


def python_path() -> str:
    """Where processes of tests find modules: first what lowers the cost of a hash."""
    return os.pathsep.join(filter(None, [str(STARTUP), os.environ.get("PYTHONPATH")]))


# --- the template -----------------------------------------------------------------------------


def _serve(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork for each request. Returns in copies alone, with the request and its descriptors."""
    while True:
        told, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 64)
        if not told:
            os._exit(0)  # whoever asked has ended
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid == 0:
                connection.detach()  # its number will be another's
                return json.loads(told), descriptors
            os.write(writing, str(pid).encode())
            os._exit(0)
        for descriptor in (writing, *descriptors):
            os.close(descriptor)
        # The copy is an orphan by now, and has been inherited.
        os.waitpid(between, 0)
        connection.send(os.read(reading, 32))
        os.close(reading)


def _become(request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Have this copy be what a new process would be."""
    high = [fcntl.fcntl(number, fcntl.F_DUPFD, _HIGH) for number in descriptors]
    os.closerange(0, _HIGH)
    for number, wanted in zip(high, request["numbers"], strict=True):
        os.dup2(number, wanted)
    os.closerange(_HIGH, max(high) + 1)
    if 1 in request["numbers"]:  # the stream that is here was opened for another kind of file
        encoding, errors = sys.stdout.encoding, sys.stdout.errors
        sys.stdout = os.fdopen(1, "w", encoding=encoding, errors=errors, closefd=False)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.path[0] = request["folder"]
    if request["session"]:
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _show(request["line"])
    sys.argv = request["line"][1:]


def _show(line: Sequence[str]) -> None:
    """Have /proc show other arguments, in place of this process's own."""
    shown = b"".join(os.fsencode(word) + b"\0" for word in line)
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, shown, min(len(shown), end - start))


def main() -> None:
    for name in _MODULES:
        importlib.import_module(name)
    for module in pkgutil.iter_modules(commands.__path__, f"{commands.__name__}."):
        importlib.import_module(module.name)
    gc.collect()
    gc.freeze()
    connection = socket.socket(fileno=int(sys.argv[1]))
    while True:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asks ends this one
        _become(*_serve(connection))
        if sys.argv[1:3] != [PROGRAM, "up"]:
            break
        # Its sides are copies as well, of a template that is its child.
        ours, connection = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork():
            connection.close()
            _templates[os.getpid()] = Template(ours, os.environ)
            subprocess.Popen = Forked  # type: ignore[misc]
            break
        _hide(connection)
    try:
        _run(sys.argv)
        code = 0
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise  # it has something to say
        code = ended.code or 0
    _leave(code)


def _leave(code: int) -> None:
    """End as Python does, without taking apart what is imported: that takes 0.1 s of processor."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)  # Python says what is wrong
    os._exit(code)


def _run(line: Sequence[str]) -> None:
    """Run what follows the Python in a command line."""
    how, what, *arguments = line
    if how == "-c":
        sys.argv = [how, *arguments]
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = [what, *arguments]
        importlib.import_module(what).main()


def _hide(connection: socket.socket) -> None:
    """Keep nothing open but this connection, and be told from what this is a copy of."""
    _show([sys.executable, "-m", __name__])
    with Path(os.devnull).open("r+b") as nothing:
        for number in (0, 1, 2):
            os.dup2(nothing.fileno(), number)
    os.closerange(3, connection.fileno())
    os.closerange(connection.fileno() + 1, _HIGH)


if __name__ == "__main__":
    main()
