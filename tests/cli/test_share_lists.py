"""``ers share list``: who reads what, and since when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.cli.test_share import SCHEMA, Two, ada, grace, two

__all__ = ["ada", "grace", "two"]  # fixtures


def require_recent(minute: str) -> None:
    told = datetime.strptime(minute, "%Y-%m-%dT%H:%M%z")
    assert timedelta() <= datetime.now(UTC) - told < timedelta(minutes=10), minute


def test_who_reads_one_dataset_or_schema_is_listed_with_since_when(
    two: Two, tmp_path: Path
) -> None:
    (tmp_path / "visit.json").write_text(SCHEMA)
    for name in ("Visit", "Patient"):
        file = str(tmp_path / "visit.json")
        two.ers.done("schema", "create", "--dataset", "medical", "--name", name, "--file", file)
    two.ers.done("dataset", "create", "--name", "Other", "--slug", "other")
    invitation, words = two.invite("--dataset", "medical", "--schema", "visit")

    def listed(*place: str) -> list[list[str]]:
        lines = two.as_ada().done("share", "list", *place).lines
        for line in lines:
            require_recent(line["since"])
        return [
            [line["name"], line["role"], line["schemas"], line["admitted_by"]] for line in lines
        ]

    ada, grace = two.ada.email, two.grace.email
    owner = [ada, "owner", "all", ada]
    assert listed("medical") == [owner]
    waits = f"Invited: {grace}, Medical/Visit (reader): waiting"
    assert waits in two.ers.done("share", "list", "medical", "--schema", "visit").err
    for place in (("other",), ("medical", "--schema", "patient")):
        assert waits not in two.ers.done("share", "list", *place).err
    two.as_grace().done("share", "accept", invitation, typed=f"{words}\n")
    two.as_ada().done("share", "settle")

    require_recent(two.people()[grace]["since"])
    reads = [grace, "reader", "Visit", ada]
    assert listed("medical") == listed("medical", "--schema", "visit") == [owner, reads]
    assert listed("medical", "--schema", "patient") == listed("other") == [owner]
    refused = two.ers("share", "list", "--schema", "visit")
    assert "--schema needs the dataset that it is in" in refused.err
