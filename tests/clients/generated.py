"""Clients that others generate of the OpenAPI documents: made here, and used as they are."""

from __future__ import annotations

import importlib
import io
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NODE = Path(__file__).with_name("node")
#: Of a type that the generator does not know: sent as bytes, and named as on the left.
_OVERRIDES = """content_type_overrides:
  application/offset+octet-stream: application/octet-stream
"""


def run(command: list[str | Path], *, stdin: str = "", folder: Path | None = None) -> str:
    """All that the command says; it must succeed."""
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, cwd=folder, check=False, timeout=120
    )
    assert done.returncode == 0, f"{command[0]}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def generate_python(
    document: Mapping[str, Any], folder: Path, name: str, *, overrides: bool
) -> list[str]:
    """Make the package ``name`` in ``folder``; what the generator could not take, one line each."""
    described, config = folder / f"{name}.json", folder / f"{name}.yaml"
    described.write_text(json.dumps(document))
    config.write_text("post_hooks: []\n" + (_OVERRIDES if overrides else ""))
    tool = Path(sys.executable).with_name("openapi-python-client")
    said = run(
        [
            *(tool, "generate", "--path", described, "--config", config),
            *("--meta", "none", "--output-path", folder / name),
        ]
    )
    return [line for line in said.splitlines() if line.startswith(("WARNING", "ERROR"))]


@dataclass(frozen=True)
class PythonClient:
    """A generated package, as ``client`` uses it."""

    package: str
    client: Any

    @classmethod
    def of(cls, package: str, url: str) -> PythonClient:
        """One that has not logged in."""
        made = importlib.import_module(package).Client(
            base_url=url, raise_on_unexpected_status=True
        )
        return cls(package, made)

    def logged_in(self, token: str) -> PythonClient:
        kind = importlib.import_module(self.package).AuthenticatedClient
        url = str(self.client.get_httpx_client().base_url)
        made = kind(base_url=url, token=token, raise_on_unexpected_status=True)
        return PythonClient(self.package, made)

    def model(self, name: str, /, **members: Any) -> Any:
        """An object of a generated class, of the JSON that it stands for."""
        return getattr(importlib.import_module(f"{self.package}.models"), name).from_dict(members)

    def value(self, name: str, value: str) -> Any:
        """A value of a generated enumeration."""
        return getattr(importlib.import_module(f"{self.package}.models"), name)(value)

    def file(self, content: bytes) -> Any:
        """A body of bytes."""
        return importlib.import_module(f"{self.package}.types").File(payload=io.BytesIO(content))

    def call(self, operation: str, *path: str, **arguments: Any) -> Any:
        """The generated answer to ``tag.operation``: ``status_code``, ``headers``, ``parsed``."""
        function = importlib.import_module(f"{self.package}.api.{operation}").sync_detailed
        return function(*path, client=self.client, **arguments)


def generate_typescript(document: Mapping[str, Any], folder: Path, name: str) -> None:
    """Write the types of a document into ``folder/name.ts``, where the compiler checks them too."""
    described = folder / f"{name}.json"
    described.write_text(json.dumps(document))
    tool = NODE / "node_modules" / "openapi-typescript" / "bin" / "cli.js"
    run(["node", tool, described, "-o", folder / f"{name}.ts"])


def compile_typescript(program: Path, folder: Path) -> Path:
    """Check a program against the types in ``folder``, strictly; where its JavaScript is."""
    modules = folder / "node_modules"
    modules.symlink_to(NODE / "node_modules")
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / program.name).write_text(program.read_text())
    options = (
        "--strict --noUncheckedIndexedAccess --target es2022 --module nodenext --types node"
        " --skipLibCheck"
    )
    run(
        ["node", modules / "typescript" / "bin" / "tsc", *options.split(), program.name],
        folder=folder,
    )
    return folder / f"{program.stem}.js"
