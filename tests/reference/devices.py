"""Device secrets (docs/SPEC.md, section 13), written from the specification alone."""

from __future__ import annotations

import base64
import hashlib
import hmac


def secret(name: str, key: bytes) -> str:
    return "ersd1_" + name + "_" + base64.urlsafe_b64encode(key).decode().replace("=", "")


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def page(text: str) -> str:
    return base64.b32encode(digest("page" + text)[:10]).decode().lower()


def answer(text: str, nonce: str, host: str) -> str:
    message = b"ers answer\0" + nonce.encode() + b"\0" + host.lower().encode() + b"\0"
    return hmac.new(digest(text), message, hashlib.sha256).hexdigest()
