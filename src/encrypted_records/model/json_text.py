"""Values -> JSON that keeps the exact value of every number; :mod:`.strict_json` reads it."""

from __future__ import annotations

import msgspec

#: The bytes of a JSON text. A ``Decimal`` becomes a number with all of its digits, not a string.
encode = msgspec.json.Encoder(decimal_format="number").encode
#: The same for every order of the members.
encode_sorted = msgspec.json.Encoder(decimal_format="number", order="sorted").encode
