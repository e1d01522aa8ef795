"""A transit engine behind Vault's HTTP interface, as far as keyrings need it.

It answers what HashiCorp documents of ``POST /v1/<mount>/encrypt/<key>`` and of ``decrypt``:
JSON with the result under ``data``, ``vault:v1:`` before ciphertexts, 403 for a wrong token, 400
for a ciphertext that it did not make. Keys exist from the start and are never rotated.
"""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_PREFIX = "vault:v1:"


@dataclass
class Vault:
    token: str
    mount: str
    key: str
    address: str = ""
    asked: list[str] = field(default_factory=list)
    #: of every answer, where it is not well
    status: int = 200
    #: what it was given to encrypt
    seen: list[bytes] = field(default_factory=list, repr=False)
    cipher: AESGCM = field(default_factory=lambda: AESGCM(os.urandom(32)), repr=False)

    def answer(self, path: str, token: str | None, body: dict[str, Any]) -> tuple[int, Any]:
        if self.status != 200:
            return self.status, {"errors": []}
        if token != self.token:
            return 403, {"errors": ["permission denied"]}
        for verb in ("encrypt", "decrypt"):
            if path == f"/v1/{self.mount}/{verb}/{self.key}":
                self.asked.append(verb)
                return getattr(self, verb)(body)  # type: ignore[no-any-return] # both below
        return 404, {"errors": []}

    def encrypt(self, body: dict[str, Any]) -> tuple[int, Any]:
        plain, nonce = base64.b64decode(body["plaintext"]), os.urandom(12)
        self.seen.append(plain)
        sealed = base64.b64encode(nonce + self.cipher.encrypt(nonce, plain, None)).decode()
        return 200, {"data": {"ciphertext": _PREFIX + sealed, "key_version": 1}}

    def decrypt(self, body: dict[str, Any]) -> tuple[int, Any]:
        try:
            sealed = base64.b64decode(body["ciphertext"].removeprefix(_PREFIX))
            plain = self.cipher.decrypt(sealed[:12], sealed[12:], None)
        except (InvalidTag, ValueError):
            return 400, {"errors": ["invalid ciphertext: unable to decrypt"]}
        return 200, {"data": {"plaintext": base64.b64encode(plain).decode()}}


@contextmanager
def running_vault(*, token: str, mount: str = "transit", key: str = "keyrings") -> Iterator[Vault]:
    vault = Vault(token, mount, key)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, found = vault.answer(self.path, self.headers.get("X-Vault-Token"), body)
            content = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_PUT = do_POST  # noqa: N815 - the server's name for the verb

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    vault.address = f"http://127.0.0.1:{server.server_port}"
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield vault
    finally:
        server.shutdown()
        server.server_close()
        serving.join()
