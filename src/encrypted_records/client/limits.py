"""Limits of a client: timeouts, and sizes of requests and answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from encrypted_records.model.queries import MAX_LIMIT


@dataclass(frozen=True, slots=True)
class Timing:
    """
    Attributes:
        idle_seconds: for which a connection is kept that nothing is asked on.
        silent_seconds: for which nothing may come or go of a request, all tries together.
        pauses: seconds before each repetition of a repeatable request.
        least_rate: bytes a second. What comes more slowly than over a slow line comes to hold us
            up.
    """

    idle_seconds: float = 10.0
    silent_seconds: float = 20.0
    pauses: Sequence[float] = (0.1, 0.5, 2.0)
    least_rate: float = 16 << 10


#: Towards a proxy. A connection is idle for less than the five seconds of uvicorn: while a command
#: waits for an answer on the terminal, nobody sees the proxy close the connection, and what is sent
#: on it next may not be sent again. And a proxy may have much to do before it answers.
PROXY_TIMING = Timing(idle_seconds=3.0, silent_seconds=120.0)


#: Towards a mirror, which follows the log of a schema from its beginning before it first answers
#: about that: four seconds of a processor for 20,000 commits.
MIRROR_TIMING = Timing(silent_seconds=120.0)


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """
    Attributes:
        listed: things asked for in one request of a list.
        page: records asked for in one request of a search that goes on to the last.
        request_bytes: of one request of an upload: enough to be fast, little enough to be
            acknowledged now and then.
        chunk_bytes: read from a file at once.
        upload_pauses: seconds between attempts that bring no byte; after the last the upload is
            given up, for now.
        rows_bytes: of rows that are sent together.
    """

    listed: int = 1000
    page: int = MAX_LIMIT
    request_bytes: int = 64 << 20
    chunk_bytes: int = 1 << 20
    upload_pauses: Sequence[float] = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
    rows_bytes: int = 4 << 20
    timing: Timing = field(default=PROXY_TIMING)


STANDARD = ClientLimits()
