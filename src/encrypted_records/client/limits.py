"""Limits of a client: timeouts, and sizes of requests and answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from encrypted_records.model.queries import MAX_LIMIT


@dataclass(frozen=True, slots=True)
class Timing:
    """
    Attributes:
        idle_seconds: how long an idle connection is kept.
        silent_seconds: maximum time without data in either direction, all tries of a request
            together.
        pauses: seconds before each repetition of a repeatable request.
        restart_seconds: pause before one more, if the server has answered before and cannot be
            reached now; 0 for none.
        least_rate: bytes a second. A slower transfer is treated as a deliberate delay, not a slow
            line.
    """

    idle_seconds: float = 10.0
    silent_seconds: float = 20.0
    pauses: Sequence[float] = (0.1, 0.5, 2.0)
    restart_seconds: float = 0.0
    least_rate: float = 16 << 10


#: For a proxy. A connection is kept idle for a short time: while a command waits for input on the
#: terminal, it does not notice that the proxy closes the connection, and the next request on it may
#: not be repeatable. A proxy may need long before it answers, and up to five seconds to start
#: again.
PROXY_TIMING = Timing(idle_seconds=3.0, silent_seconds=120.0, restart_seconds=4.0)


#: For a mirror, which reads the log of a schema from its beginning before its first answer about
#: the schema: four seconds of a processor for 20,000 commits.
MIRROR_TIMING = Timing(silent_seconds=120.0)


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """
    Attributes:
        listed: items per request of a list.
        page: records per request of a search that reads all results.
        request_bytes: of one request of an upload: large enough to be fast, small enough to be
            acknowledged regularly.
        chunk_bytes: bytes per read from a file.
        upload_pauses: seconds between attempts without progress; after the last, the upload is
            abandoned for now.
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
