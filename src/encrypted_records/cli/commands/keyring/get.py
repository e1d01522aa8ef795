"""``ers keyring get``: which keys there are, and what they protect."""

from __future__ import annotations

from collections.abc import Sequence

import click

from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.terminal import printable, say, table
from encrypted_records.cli.times import day
from encrypted_records.client.proxy.keyring import SealedSchema

_SEALED_WITH = {
    "passphrase": "a passphrase",
    "keychain": "a key in the proxy's keychain",
    "vault": "a key that Vault decrypts",
    "aws_kms": "a key that AWS KMS decrypts",
    "google_kms": "a key that Google Cloud KMS decrypts",
    "azure_key_vault": "a key that Azure Key Vault decrypts",
    "pkcs11": "a key that a PKCS#11 token decrypts",
    "machine_key": "a key beside it: anyone who can read the proxy's folder can read the records",
}


@click.command(short_help="Show fingerprints, dates and what each key protects.")
@connected()
@takes_output
async def get(session: CommandSession, output: Output) -> None:
    """Show the keyring's fingerprints, dates and what each key protects; never a key.

    The newest version protects new records. A schema changes to it with its next record; earlier
    records stay under their version.

    Without a terminal, or with --output, print the answer of the HTTP API, including schemas.

    \b
    Examples:
      ers keyring get
      ers keyring get --output json
    """
    keyring, schemas = await session.client.keyring(), await session.client.sealed_schemas()
    if output.form != "table":
        from msgspec import to_builtins  # noqa: PLC0415 - slow to import

        output.write_one({**to_builtins(keyring), "schemas": to_builtins(schemas)})
        return
    say(f"fingerprint  {keyring.fingerprint}")
    say(f"protected by {_SEALED_WITH.get(keyring.wrapping, keyring.wrapping)}")
    confirmed = (
        "confirmed" if keyring.backup_confirmed else "not confirmed; run: ers keyring backup"
    )
    say(f"backup       {confirmed}")
    tried = day(keyring.restore_tried) if keyring.restore_tried else "never"
    say(f"tried        {tried}; to try the backup: ers keyring restore --dry-run")
    say(f"devices      {(await session.client.devices()).count}; ers device list shows them")
    say()
    rows = [
        {
            "version": version.version,
            "created": day(version.created),
            "fingerprint": version.fingerprint,
            "backup": "confirmed" if version.backup_confirmed else "not confirmed",
            "protects": _protects(version.version, schemas),
        }
        for version in keyring.versions
    ]
    for line in table(rows, ("version", "created", "fingerprint", "backup", "protects")):
        say(line)
    foreign = [schema for schema in schemas if not schema.held]
    if foreign:
        say()
        say("Encrypted with keys that are not in this keyring:")
        for line in table(
            [
                {"key": schema.key_id, "version": schema.key_version, "schema": _name(schema)}
                for schema in foreign
            ],
            ("key", "version", "schema"),
        ):
            say(line)


def _protects(version: int, schemas: Sequence[SealedSchema]) -> str:
    """The schemas whose records may be sealed under ``version``."""
    held = [schema for schema in schemas if schema.held]
    new = [_name(holder) for holder in held if holder.key_version == version]
    old = [
        _name(holder) for holder in held if holder.first_key_version <= version < holder.key_version
    ]
    parts = [("new records of", new), ("older records of", old)]
    said = "; ".join(f"{what} {', '.join(names)}" for what, names in parts if names)
    return said or "nothing yet"


def _name(schema: SealedSchema) -> str:
    return printable(schema.name)
