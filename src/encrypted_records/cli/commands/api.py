"""``ers api``: the API alone; and any request, for what has no command of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import click

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.input.files import STDIN, read
from encrypted_records.cli.login.proofs import call_with_proof
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.settings import Settings, takes_settings
from encrypted_records.cli.supervise.api import run_api
from encrypted_records.cli.supervise.operating import make_owner, serve_mirror
from encrypted_records.cli.terminal import say
from encrypted_records.client.proxy.keyring import Proof, proof_member
from encrypted_records.errors import InvalidSetting, Malformed

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
#: Headers that only the client sets, or that would be visible in the list of processes.
_OWN_HEADERS = ("authorization", "cookie", "host", "content-length", "x-ers-")
_MOST_BYTES = 64 << 20


class _Methods(CommandGroup):
    """Methods in either case."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name.upper()) or super().get_command(ctx, cmd_name)


@click.group(cls=_Methods, invoke_without_command=True)
@takes_settings(
    "data_dir",
    "api_host",
    "api_port",
    "workers",
    "database_url",
    "replica_url",
    "bulk_url",
    "bulk_before",
    "keep_replaced",
    "erase_within",
    "email_url",
    "public_url",
    "allowed_hosts",
    "admin",
    "api_metrics_port",
    "log_format",
)
@click.option("--mirror", metavar="PLACE", help="Serve a mirror, read-only, instead of a database.")
def api(settings: Settings, mirror: str | None) -> None:
    """Run the API alone, in the foreground. It holds ciphertext and no keys.

    With --mirror, serve a copy that ers mirror has made, in a folder or bucket: what reads is
    answered, what changes anything is refused as read_only_mirror. Readers show the secret in
    ERS_MIRROR_SECRET; without that variable only this machine is served.

    With a method and a path, send a request to the proxy instead.

    \b
    Examples:
      ers api --data-dir ./data --api-port 9000
      ers api --mirror /mnt/nas/records
      ers api GET /api/users/self/
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    if mirror is None:
        run_api(settings)
    else:
        serve_mirror(settings, mirror)


def _passes(method: str) -> click.Command:
    """The command that sends requests of a method."""
    example = {
        "GET": "ers api GET /api/datasets/ --field limit=3",
        "POST": "ers api POST /api/records/search/ --field schema=$SCHEMA --field limit=3",
        "PUT": "ers api PUT /api/records/$RECORD/ --data @record.json",
        "PATCH": "ers api PATCH $DATASET --field description='People we know'",
        "DELETE": "ers api DELETE $SPARE",
    }[method]

    @connected()
    async def send(
        session: CommandSession,
        path: str,
        data: str | None,
        fields: tuple[str, ...],
        raw_fields: tuple[str, ...],
        query: tuple[str, ...],
        headers: tuple[str, ...],
    ) -> None:
        path, _, query_string = path.partition("?")
        params = dict(parse_qsl(query_string, keep_blank_values=True)) | dict(map(_pair, query))
        members = dict(map(_pair, (*fields, *raw_fields)))
        if members and data is not None:
            raise click.UsageError("--data is the whole body; leave --field out")
        sent = dict(map(_header, headers))
        body = None if data is None else _body(data)
        if method == "GET":
            params |= members
        elif members:
            body = _object(fields, raw_fields)
        elif method == "POST" and body is None:
            body = b"{}"  # what has nothing to say says it in JSON
        if body is not None and not any(name.lower() == "content-type" for name in sent):
            sent["Content-Type"] = "application/json"

        async def call(proof: Proof | None) -> bytes:
            shown = body if proof is None else _with_proof(body, proof)
            kind = {} if proof is None else {"Content-Type": "application/json"}
            answer = await session.client.request(
                method, path, body=shown, headers={**sent, **kind}, params=params or None
            )
            return answer.body

        _show(await call_with_proof(session, call))

    send.__name__ = method.lower()
    send.__doc__ = f"""Send a {method} request to the proxy as the logged-in user, with this
    machine's device and, if the endpoint needs one, a proof. docs/http-api.md lists all paths.

    \b
    Example:
      {example}
    """
    command: Any = send
    for option in (
        click.option(
            "--header",
            "-H",
            "headers",
            multiple=True,
            metavar="NAME:VALUE",
            help="Additional header.",
        ),
        click.option("--query", multiple=True, metavar="NAME=VALUE", help="Query parameter."),
        click.option(
            "--raw-field",
            "raw_fields",
            multiple=True,
            metavar="NAME=TEXT",
            help="As --field, but always text.",
        ),
        click.option(
            "--field",
            "fields",
            multiple=True,
            metavar="NAME=VALUE",
            help="Member of the JSON body, or query parameter of GET. Numbers, true, false, null,"
            " arrays and objects are JSON; anything else is text.",
        ),
        click.option(
            "--data",
            metavar="JSON",
            help="Request body; @FILE reads a file, - standard input.",
        ),
        click.argument("path"),
    ):
        command = option(command)
    return click.command(method, short_help=f"Send a {method} request, and show the answer.")(
        command
    )


def _pair(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not (name and mark):
        raise click.UsageError("expected NAME=VALUE")
    return name, value


def _header(text: str) -> tuple[str, str]:
    name, mark, value = text.partition(":")
    if not mark or not name.strip() or not value.isprintable():
        raise click.UsageError("expected NAME:VALUE")
    if name.strip().lower().startswith(_OWN_HEADERS):
        raise click.UsageError(f"the command sets the header {name.strip()} itself")
    return name.strip(), value.strip()


def _object(fields: tuple[str, ...], raw_fields: tuple[str, ...]) -> bytes:
    """The JSON object that ``--field`` and ``--raw-field`` make; numbers keep all their digits."""
    import msgspec  # noqa: PLC0415 - slow to import

    from encrypted_records.model import strict_json  # noqa: PLC0415

    members: dict[str, Any] = {}
    for name, text in map(_pair, fields):
        try:
            strict_json.loads(text.encode())
            members[name] = msgspec.Raw(text.encode())
        except Malformed:
            members[name] = text
    return msgspec.json.encode(members | dict(map(_pair, raw_fields)))


def _body(data: str) -> bytes:
    if data == STDIN or data.startswith("@"):
        return read(data.removeprefix("@"), _MOST_BYTES)
    return data.encode()


def _with_proof(body: bytes | None, proof: Proof) -> bytes:
    """
    Raises:
        InvalidSetting: what is sent is no JSON object, to which a proof could be added.
    """
    try:
        members = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        members = None
    if not isinstance(members, Mapping):
        raise InvalidSetting("this request needs a proof, in a body that is a JSON object")
    return json.dumps({**members, **proof_member(proof)}).encode()


def _show(body: bytes) -> None:
    """Print an answer: JSON pretty-printed, all other content as text."""
    import msgspec  # noqa: PLC0415 - slow to import

    if not body:
        return
    try:
        text = msgspec.json.format(body, indent=2)
    except msgspec.DecodeError:
        text = body.removesuffix(b"\n")
    say(text.decode(errors="replace"))


@api.command(short_help="Make a user an owner of an organization, as the API's operator.")
@click.argument("email")
@click.option("--organization", required=True, help="Slug of the organization.")
@takes_settings("data_dir", "database_url")
def owner(settings: Settings, email: str, organization: str) -> None:
    """Make the account EMAIL an owner of an organization whose last owner lost access. For the
    operator of the API. This decrypts no record and admits nobody: EMAIL then runs `ers
    organization recover` with the lost owner's recovery phrases.

    \b
    Example:
      ers api owner grace@example.org --organization acme --data-dir ./data
    """
    make_owner(settings, email, organization)
    say(f"{email} is an owner of {organization} at the API. Next, as {email}:")
    say("  ers organization recover")


for method in METHODS:
    api.add_command(_passes(method))
