"""The addresses that a server listens on, and the names it may answer to.

`localhost` names two addresses of a machine, 127.0.0.1 and ::1, and browsers try ::1 first. If a
server listened only on 127.0.0.1, any program of any user could bind ::1 with the same port, and
relay everything that is sent to `http://localhost:PORT`, passwords included. So a server on a
loopback address binds both, and refuses to start if either is taken.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

#: The names by which a machine reaches itself.
LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")


def same_machine(origin: str) -> tuple[str, ...]:
    """The origin; if it is on this machine, also the origins with its other names."""
    parts = urlsplit(origin)
    name, colon, port = parts.netloc.rpartition(":")
    if not colon or "]" in port:
        name, port = parts.netloc, ""
    if name.lower() not in LOCAL_NAMES:
        return (origin,)
    end = (f":{port}" if port else "") + parts.path
    return tuple(f"{parts.scheme}://{other}{end}" for other in LOCAL_NAMES)


#: Connections that the system queues until the server accepts them.
_BACKLOG = 2048
_IPV4, _IPV6, _ANY_IPV4, _ANY_IPV6 = "127.0.0.1", "::1", "0.0.0.0", "::"  # noqa: S104 - compared
_LOOPBACK = {_IPV4: _IPV6, _IPV6: _IPV4, "localhost": _IPV6, _ANY_IPV4: _IPV6}
#: Errors of a machine without IPv6, on which no other program can listen on ::1 either.
_NO_SUCH_ADDRESS = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


class CannotListen(OSError):
    """An address and port cannot be bound. ``host`` is the address, ``errno`` the reason."""

    def __init__(self, host: str, error: OSError) -> None:
        super().__init__(error.errno, error.strerror)
        self.host = host


@contextmanager
def bound(host: str, port: int) -> Iterator[list[socket.socket]]:
    """Listening sockets for a host, closed at the end of the block.

    Args:
        host: an address or a name of this machine. A loopback address stands for both loopback
            addresses, and `::` for all addresses of both families.
        port: 0 lets the system choose a port.

    Raises:
        CannotListen: an address cannot be bound.
    """
    name = host.strip("[]").lower()
    with ExitStack() as stack:
        sockets = [stack.enter_context(_bind(name, port))]
        other = _LOOPBACK.get(name)
        if other is not None:
            try:
                sockets.append(stack.enter_context(_bind(other, sockets[0].getsockname()[1])))
            except CannotListen as error:
                if error.errno not in _NO_SUCH_ADDRESS:
                    raise
        yield sockets


def names_of(host: str) -> tuple[str, ...]:
    """The names, without a port, that lead to a server on this host and to no other program."""
    name = host.strip("[]").lower()
    host_name = f"[{name}]" if ":" in name else name
    if name in _LOOPBACK or name == _ANY_IPV6:
        return (*LOCAL_NAMES, host_name)
    return (host_name,)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server(
            (host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=host == _ANY_IPV6
        )
    except OSError as error:
        raise CannotListen(host, error) from None
    # Connections inherit it. asyncio sets it only for sockets whose protocol was stated, and
    # without it each answer in several writes waits 40 ms for the client's acknowledgement.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
