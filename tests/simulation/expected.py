"""What each record may be, and whether an answer agrees: the oracle, in plaintext.

Whoever writes keeps for each of their records the list of what it may be. An answer that never came
adds one, and a read removes those before what it saw. A state that has been acknowledged or seen is
there for every read that begins later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests import aggregate_oracle, oracle

Data = dict[str, Any]


class Fault(AssertionError):
    """The service broke a promise."""


@dataclass
class State:
    """``data`` is None where there is no record; its version lies between two numbers, since a
    request that was repeated may have been done once or more often."""

    data: Data | None
    least: int
    most: int

    def may_have(self, version: int) -> bool:
        return self.least <= version <= self.most


@dataclass
class Line:
    """One record through time. ``floor`` is the first of the states that it may still be in."""

    tag: str
    states: list[State] = field(default_factory=lambda: [State(None, 0, 0)])
    floor: int = 0
    id: str | None = None

    @property
    def is_settled(self) -> bool:
        """Whether it is known what the record is."""
        return self.floor == len(self.states) - 1

    @property
    def present(self) -> State:
        """What it is, or would be if all was done that was asked."""
        return self.states[-1]

    def begin(self, data: Data | None) -> None:
        """Something is asked that would make it this."""
        before = self.states[self.floor]
        more = len(self.states) - self.floor
        self.states.append(State(data, before.least + 1, before.most + more))

    def done(self, version: int | None = None) -> None:
        """All that was asked is acknowledged.

        Raises:
            Fault: its version cannot be that.
        """
        self.see(len(self.states) - 1, version)

    def see(self, number: int, version: int | None = None) -> None:
        """It was seen in this state, or in a later one.

        Raises:
            Fault: its version cannot be that.
        """
        state = self.states[number]
        if version is not None:
            if not state.may_have(version):
                raise Fault(f"{self.tag} has version {version}, not {state.least} to {state.most}")
            state.least = state.most = version
        self.floor = max(self.floor, number)

    def refused(self) -> None:
        """What was asked last was refused, and so was not done.

        Raises:
            Fault: somebody has seen it.
        """
        if self.is_settled:
            raise Fault(f"{self.tag} was changed by a request that was refused")
        self.states.pop()


class Expected:
    """All records of one schema."""

    def __init__(self, fields: Mapping[str, oracle.Field], tag: str = "tag") -> None:
        """
        Args:
            tag: the field that tells records apart, whose value stays.
        """
        self.fields = fields
        self._tag = tag
        self.lines: dict[str, Line] = {}
        self._ids: dict[str, str] = {}

    def new(self, data: Data) -> Line:
        """A record that is about to be stored."""
        line = self.lines[data[self._tag]] = Line(data[self._tag])
        line.begin(data)
        return line

    def floors(self) -> dict[str, int]:
        """From which state on a read that begins now may find each record."""
        return {tag: line.floor for tag, line in self.lines.items()}

    def may_be_gone(self, tag: str) -> bool:
        """Whether there may be no record with this tag."""
        line = self.lines.get(tag)
        return line is None or any(state.data is None for state in line.states[line.floor :])

    def name(self, line: Line, identifier: str) -> None:
        """A record has this id.

        Raises:
            Fault: another one has it, or this one another.
        """
        known = self._ids.setdefault(identifier, line.tag)
        if known != line.tag:
            raise Fault(f"the id {identifier} is given twice: to {known} and to {line.tag}")
        if line.id not in (None, identifier):
            raise Fault(f"{line.tag} is stored twice: as {line.id} and as {identifier}")
        line.id = identifier

    def judge_record(
        self, floors: Mapping[str, int], line: Line, data: Data | None, version: int | None
    ) -> None:
        """One record was read; ``data`` is None where there was none.

        Raises:
            Fault: it cannot be that.
        """
        first = floors.get(line.tag, 0)
        fitting = [n for n in range(first, len(line.states)) if _same(line.states[n].data, data)]
        if not fitting:
            may = [state.data for state in line.states[first:]]
            raise Fault(f"{line.tag} is {data}, and may be {may}")
        # A change may have left all values as they were: then the version tells the states apart.
        of_version = [n for n in fitting if version is None or line.states[n].may_have(version)]
        line.see((of_version or fitting)[0], version)

    def judge_results(
        self, floors: Mapping[str, int], where: Any, results: Sequence[Mapping[str, Any]]
    ) -> None:
        """All records that match were read.

        Raises:
            Fault: one is missing, not itself, or not of this schema.
        """
        found: set[str] = set()
        for result in results:
            data = result["data"]
            line = self.lines.get(data.get(self._tag, ""))
            if line is None:
                raise Fault(f"nobody has stored {data}")
            if line.tag in found:
                raise Fault(f"{line.tag} is found twice")
            found.add(line.tag)
            self.name(line, result["id"])
            if not oracle.holds(where, data, self.fields):
                raise Fault(f"{data} does not match {where}")
            self.judge_record(floors, line, data, None)
        for line in self.lines.values():
            if line.tag not in found:
                self._judge_missing(floors, where, line)

    def _judge_missing(self, floors: Mapping[str, int], where: Any, line: Line) -> None:
        first = floors.get(line.tag, 0)
        fitting = [
            number
            for number in range(first, len(line.states))
            if (data := line.states[number].data) is None
            or not oracle.holds(where, data, self.fields)
        ]
        if not fitting:
            raise Fault(f"{line.tag} is missing among {where}: it is {line.states[first].data}")
        line.see(fitting[0])

    def held(self, where: Any = None) -> list[Data]:
        """The data of all records that match, once all is settled."""
        every: Iterable[Data | None] = (line.present.data for line in self.lines.values())
        return [one for one in every if one is not None and oracle.holds(where, one, self.fields)]

    def measured(self, measures: Sequence[Mapping[str, Any]], where: Any = None) -> list[Any]:
        """What these measures are, once all is settled."""
        rows = self.held(where)
        return [aggregate_oracle.measured(measure, rows, self.fields) for measure in measures]

    def settle_at(self, results: Sequence[Mapping[str, Any]]) -> None:
        """Nothing is under way any more: what was read last is what each record is."""
        seen = {result["data"][self._tag]: result["data"] for result in results}
        for line in self.lines.values():
            data = seen.get(line.tag)
            fitting = [state for state in line.states[line.floor :] if _same(state.data, data)]
            line.states, line.floor = [fitting[0]], 0


def _same(one: Data | None, other: Data | None) -> bool:
    return one == other
