"""A job as a page shows it: one word for its state, what each phase has done, how fast. Pure.

The interface knows four states; people want to know more: whether a job is being checked, stored or
packed, why it waits, and that one they have cancelled did not fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from encrypted_records.proxy.pages.formatting import size

Word = Literal[
    "uploading", "checking", "storing", "packing", "completed", "failed", "cancelled", "undone"
]

LIVE: frozenset[Word] = frozenset({"uploading", "checking", "storing", "packing"})
_CANCELLED = "(job_cancelled)"


@dataclass(frozen=True, slots=True)
class Phase:
    """One of the three or four phases of a job's bar. ``share`` is 0 to 1, or None if unknown;
    ``said`` is the text below it.
    """

    name: str
    share: float | None
    said: str


@dataclass(frozen=True, slots=True)
class JobView:
    """``about`` is what ``/api/jobs/<id>/about/`` answers."""

    about: Mapping[str, Any]
    #: the schemas' names by id, as far as they are known
    names: Mapping[str, str]

    @property
    def id(self) -> str:
        return str(self.about["job_id"])

    @property
    def word(self) -> Word:
        about = self.about
        status = about["status"]
        if status == "failed":
            return "cancelled" if str(about.get("error")).endswith(_CANCELLED) else "failed"
        if status == "completed":
            return "undone" if about["undone"] else "completed"
        if status == "uploading":
            return "uploading"
        if not about["current_batch"]:
            return "checking"
        left = about["packs"] - about["packed"]
        return "packing" if left and about["processed"] >= about["total"] else "storing"

    @property
    def seals_again(self) -> bool:
        """Whether it stores nothing new."""
        return bool(self.about["work"] == "reseal")

    @property
    def live(self) -> bool:
        return self.word in LIVE

    @property
    def title(self) -> str:
        """The file's name, or a substitute if no name was given."""
        if self.seals_again:
            return "Re-encrypt all records"
        return self.about["file"] or f"Job {self.id[:8]}"

    @property
    def schemas(self) -> list[tuple[str, str]]:
        """Identifier and name of each schema that its records are of."""
        return [(schema, self.names.get(schema, schema)) for schema in self.about["schemas"]]

    @property
    def schema(self) -> str | None:
        """The schema's identifier, where there is one alone."""
        schemas = self.about["schemas"]
        return schemas[0] if len(schemas) == 1 else None

    @property
    def line(self) -> str:
        """The text after the name of its state."""
        about, word = self.about, self.word
        if word == "checking":
            return f", {about['total']:,} records so far" if about["total"] else ""
        if not about["total"] or word in ("uploading", "cancelled"):
            return ""
        total = f"{about['total']:,} record{'' if about['total'] == 1 else 's'}"
        return f", {about['processed']:,} of {total}"

    @property
    def waits(self) -> str:
        """The reason why the job is idle at the moment."""
        return self.about["waits"] or ""

    @property
    def error(self) -> str:
        """The reason of the failure, without the hint for programs and the code."""
        said = str(self.about.get("error")) if self.word == "failed" else ""
        return said.partition("; ")[0].removesuffix(f" ({self.code})")

    @property
    def code(self) -> str:
        """The code that its error ends in."""
        return str(self.about.get("error")).rpartition(" (")[2].rstrip(")")

    @property
    def seconds(self) -> float | None:
        """The duration of the job in seconds."""
        finished = self.about["finished"]
        return None if finished is None else max(0.0, finished - self.about["created"])

    @property
    def rate(self) -> float | None:
        """Records that were encrypted and stored in a second, once all are."""
        about = self.about
        if about["status"] != "completed" or not about["checked"] or not about["processed"]:
            return None
        return float(about["processed"] / max(about["finished"] - about["checked"], 0.001))

    @property
    def phases(self) -> list[Phase]:
        """The bar: what is uploaded, checked, stored, and of a large job packed."""
        about, word = self.about, self.word
        total, processed = about["total"], about["processed"]
        sent = about["received"] is not None
        checked = sent and word != "checking"
        stored = processed / total if checked and total else 0.0
        so_far = f"{processed:,} of {total:,}" if checked and total else ""
        packs, packed = about["packs"], about["packed"]
        last = [Phase("packed", packed / packs, f"{packed} of {packs}")] if packs else []
        return [
            Phase("uploaded", 1.0 if sent else None, size(about["size"]) if sent else ""),
            Phase("checked", (1.0 if checked else None) if sent else 0.0, f"{total:,}"),
            Phase("stored", stored, so_far),
            *last,
        ]
