"""The state of a schema's log, as text for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from encrypted_records.cli.terminal import show, warn

if TYPE_CHECKING:
    from encrypted_records.client.proxy.schema_logs import Acceptance, Head, LogStanding

_MEANING = {
    "whole": "it contains everything that this proxy has seen",
    "older": "it is older than what this proxy has seen",
    "forked": "it has diverged from what this proxy has seen",
    "unclear": "it lacks what this proxy has seen",
    "broken": "it is damaged from here on",
}
_HINTS = {
    "older": "restore the API's newest backup; if this is the newest: ers schema accept-log",
    "forked": "ask who changed the schema since, and compare heads; ers schema accept-log --forked",
    "unclear": "restore the API's newest backup; if this is the newest: ers schema accept-log"
    " --forked",
    "broken": "restore the API's newest backup, or save what can be decrypted: ers salvage",
}


def as_json(standing: LogStanding) -> dict[str, Any]:
    import msgspec  # noqa: PLC0415 - slow to import

    members: dict[str, Any] = msgspec.to_builtins(standing)
    if standing.at is None:
        del members["at"]
    return members


def show_standing(standing: LogStanding) -> None:
    """A line for each thing; the digests are whole."""
    show(f"state    {standing.state}: {_MEANING.get(standing.state, 'of a newer proxy')}")
    show(f"version  {standing.version}")
    show(f"digest   {standing.digest}")
    show(f"records  {standing.records}")
    show(f"changed  {standing.changed or 'never'}")
    if standing.at is not None:
        show(f"at {_head(standing.at)}")
    if standing.accepted is not None:
        show(f"accepted {_acceptance(standing.accepted)}")
        if not standing.accepted.writer:
            warn(
                "note: you accepted this log as a reader: this counts for you alone; ask"
                " somebody who"
                " may write the schema whether it is the right log"
            )
    for other in standing.accepted_by_others:
        show(f"accepted by {other.user}: {_acceptance(other)}")
    if standing.state != "whole":
        if standing.seen is not None:
            show(f"seen     {_head(standing.seen)}")
        show(f"common   version {standing.common}")
        if standing.fault is not None:
            show(f"fault    {standing.fault.detail} ({standing.fault.code})")
        warn(f"hint: {_HINTS.get(standing.state, 'update ers')}")


def what_is_lost(standing: LogStanding) -> Iterator[str]:
    """Lines about the changes that are given up by accepting the log."""
    when = f" of {standing.changed}" if standing.changed else ""
    yield (
        f"The API's log is at version {standing.version}{when}, with {standing.records} records:"
        f" {standing.digest}"
    )
    assert standing.seen is not None
    yield f"This proxy has seen {_head(standing.seen)}."
    first, last = standing.common + 1, standing.seen.version
    changes = f"version {last}" if first == last else f"versions {first} to {last}"
    if standing.state == "older":
        yield f"Accepting it gives up the changes in {changes}."
        return
    known = (
        f"Up to version {standing.common} they are the same" if standing.common else "They differ"
    )
    yield f"{known}. Accepting it gives up what this proxy has seen in {changes}."
    if standing.version > standing.common:
        yield f"It has {standing.version - standing.common} other changes instead."


def _acceptance(accepted: Acceptance) -> str:
    return (
        f"version {accepted.version} instead of {accepted.seen.version}, {accepted.time}:"
        f" {accepted.digest}"
    )


def _head(head: Head) -> str:
    return f"version {head.version}: {head.digest}"
