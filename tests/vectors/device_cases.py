"""Device secrets from fixed ids and keys, what follows from them, and strings that are none."""

from __future__ import annotations

from typing import Any

from tests.reference import devices

NONCE, HOSTS = "0123456789abcdef_-ABCDEF", ("127.0.0.1:8080", "Proxy.Example.ORG")


def secrets() -> dict[str, Any]:
    good = []
    for name, key in (("k3J9xQ2b", bytes(range(32))), ("thedoor0", bytes([255]) * 32)):
        text = devices.secret(name, key)
        good.append(
            {
                "id": name,
                "key": key.hex(),
                "secret": text,
                "digest": devices.digest(text).hex(),
                "page": devices.page(text),
                "answers": [
                    {"nonce": NONCE, "host": host, "answer": devices.answer(text, NONCE, host)}
                    for host in HOSTS
                ],
            }
        )
    text = str(good[0]["secret"])
    bad = {
        "cut short": text[:-1],
        "too long": text + "A",
        "another version": text.replace("ersd1", "ersd2"),
        "padded": text + "=",
        "a blank at its end": text + " ",
        "a line break at its end": text + "\n",
        "an id of seven": text.replace("k3J9xQ2b", "k3J9xQ2"),
        "an id with a hyphen": text.replace("k3J9xQ2b", "k3J9-Q2b"),
        "letters of another script": text.replace("k3J9xQ2b", "k3J9хQ2b"),  # noqa: RUF001
        "plain base64": text[:-3] + "+/A",
        "upper case": text.upper(),
        "nothing": "",
    }
    return {"good": good, "bad": [{"why": why, "text": text} for why, text in bad.items()]}
