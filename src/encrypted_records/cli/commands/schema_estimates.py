"""Input and output of ``ers schema estimate``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from encrypted_records.cli.terminal import say, warn


def read_length(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition("=")
    if not (name and number.isascii() and number.isdecimal()):
        raise click.BadParameter("expected FIELD=BYTES, such as name=20", param_hint="--length")
    return name, int(number)


def show_estimate(estimated: Any) -> None:
    per_record = estimated["bytes_per_record"]
    say(f"{estimated['records']} records need {_size(estimated['bytes'])} in the API's database,")
    say(
        f"{per_record['total']} bytes each: {per_record['sealed']} of encrypted record,"
        f" {per_record['index']} in the index."
    )
    say(f"Encrypting them takes one core of this machine about {estimated['seconds']:.0f} s.")
    sample = estimated.get("sample")
    if sample is not None:
        say(f"In {sample['rows']} rows of the sample, padding costs {_cost(sample['padding'])}.")
        if sample["refused"]:
            warn(f"{sample['refused']} rows of the sample do not match the schema")
    say()
    for field in estimated["fields"]:
        say(f"{field['name']}: {field['sealed_bytes']} + {field['index_bytes']} bytes")
        if "lengths" in field:
            _show_lengths(field["lengths"])
        say(f"  the API sees: {field['reveals']['api']}")
        say(f"  never, from stored data: {field['reveals']['api_never']}")
        say(f"  by watching requests: {field['reveals']['api_watching']}")


def _show_lengths(found: Mapping[str, Any]) -> None:
    guess, attack = found["guess"], found["attack"]
    own = f"; its own lengths reveal {found['bits']} bits" if found["bits"] else ""
    say(
        f"  lengths: an attacker who knows other rows guesses {_percent(attack)} of the"
        f" values from the stored lengths, and {_percent(guess)} from the most frequent value"
        f" alone{own}"
    )
    say(f"  padding costs {_cost(found['padding'])}")
    if found["pad_to"] is not None:
        more = _cost(found["pad_to_adds"])
        say(f'  "padTo": {found["pad_to"]} would hide the lengths, for {more} more')


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _cost(added: Mapping[str, float]) -> str:
    return f"{added['bytes']} bytes a record ({added['percent']} %)"


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("the loop returns")
