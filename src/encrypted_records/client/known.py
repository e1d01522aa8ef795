"""The state of a schema that a caller knows, and answers that must confirm it first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from encrypted_records.client.messages import Response
from encrypted_records.errors import ApiFailed, ErsError, Malformed, Unsupported
from encrypted_records.model import wire
from encrypted_records.model.records import ManifestDelta


@dataclass(frozen=True, slots=True)
class Known:
    """The state of a schema as a caller knows it: version of the log, and definition."""

    version: int
    definition: bytes


class Moved(Exception):
    """The state is another than the caller knows; ``deltas`` lead from it to the present one."""

    def __init__(self, known: Known, deltas: Sequence[ManifestDelta]) -> None:
        super().__init__("the log has moved on")
        self.known = known
        self.deltas = deltas


def read_frames(answer: Response, kind: type[wire.T], known: Known | None) -> list[wire.T]:
    """The frames of an answer, which begins with the log where the caller said what it knows.

    Raises:
        Moved: the log says something else than what is ``known``.
        ApiFailed: the answer is not what was asked for.
    """
    return all_frames(answer, kind) if known is None else _confirm(answer, kind, known)


def all_frames(answer: Response, kind: type[wire.T]) -> list[wire.T]:
    """The frames of an answer that has no others.

    Raises:
        ApiFailed: it has.
    """
    try:
        return wire.decode_all(answer.body, kind)
    except ErsError:
        raise ApiFailed("the API's answer is not in the format of this version") from None


def _confirm(answer: Response, kind: type[wire.T], known: Known) -> list[wire.T]:
    """The frames after the log, which must say that there is nothing after ``known``.

    Raises:
        Moved: it says otherwise.
    """
    deltas: list[ManifestDelta] = []
    frames: list[wire.T] = []
    try:
        for item in wire.decode(answer.body):
            if isinstance(item, ManifestDelta) and not frames:
                deltas.append(item)
            elif isinstance(item, kind):
                frames.append(item)
            else:
                raise ApiFailed("the API's answer contains something that was not requested")
    except (Malformed, Unsupported):
        raise ApiFailed("the API's answer is not in the format of this version") from None
    if not deltas:
        raise ApiFailed("the API did not say whether the log has moved on")
    unmoved = Known(deltas[-1].version, deltas[-1].definition) == known
    if not unmoved or any(delta.entries for delta in deltas):
        raise Moved(known, deltas)
    return frames
