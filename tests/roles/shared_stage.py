"""An organization with a roster, for the walk: what an owner shares with people and a service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from encrypted_records.crypto.identity import Identity
from encrypted_records.crypto.keys import RootKey
from encrypted_records.model import credentials, ids, wire
from encrypted_records.model import roster as form
from encrypted_records.model.records import Commit
from encrypted_records.proxy.keyrings.holder import Holder
from tests.roles.people import DEFINITION, Person, Stage, named, new_person
from tests.server.writer import Writer
from tests.support.keyrings import keyrings_in
from tests.support.service import Service, call

#: In the order of the columns: whoever may least comes first.
ROLES = ("reader", "writer", "service")


@dataclass
class SharedStage(Stage):
    """The owner's proxy signs what the owner makes; the roster names reader, writer, service."""

    def person(self, role: str) -> Person | None:
        return {"reader": self.member, "writer": self.removed}.get(role, super().person(role))

    @property
    def identity(self) -> Identity:
        """The owner's, by which writers of commits sign."""
        folder = self.service.data_dir / "proxy"
        owner = ids.from_text(self.owner.id)
        keyring = keyrings_in(folder).of(Holder(owner, self.owner.auth, "device00"))
        organization = ids.from_text(self.organization.split("/")[-2])
        return keyring.root(keyring.newest).identity(organization, owner, keyring.newest)

    def new_writer(self) -> Writer:
        schema = self.new_schema()
        path = f"{schema['url']}sign/"
        shown = self.owner.proxy("POST", path, {"dry_run": True}).json()["shown"]
        signed = self.owner.proxy("POST", path, {"seen": shown})
        assert signed.status == 200, signed.body
        identity = self.identity

        def sign(commit: Commit) -> bytes:
            return identity.sign("commit", wire.commit_digest(commit))

        writer = Writer(self.owner, schema, signs=sign)  # type: ignore[arg-type]
        entries = self.owner.call("GET", f"{self.organization}roster/?since=0").body
        head = wire.decode_all(entries, form.RosterEntry)[-1]
        number = form.read_entry(head).number
        writer.stated = (number, form.entry_digest(head), ids.from_text(self.owner.id))
        return writer

    def new_dataset(self) -> Any:
        """The shared one, which none of these roles uses up."""
        return self.dataset

    def new_invitation(self, email: str) -> str:
        return str(invite(self, email, "reader")["id"])


def shares(stage: Stage, role: str) -> list[dict[str, str]]:
    return [{"dataset": stage.dataset["url"], "role": role}]


def made_by_owner(stage: Stage, path: str, **body: Any) -> Any:
    """What the owner makes by a command on the machine of the proxy."""
    service, auth = stage.service, stage.owner.auth
    url = f"{service.proxy_url}{stage.organization}{path}"
    made = call("POST", url, body, auth=auth, headers=service.door)
    assert made.status == 201, made.body
    return made.json()


def invite(stage: Stage, email: str, role: str) -> Any:
    return made_by_owner(stage, "people/", email=email, shares=shares(stage, role))


def let_in(stage: Stage, person: Person, role: str) -> None:
    made = invite(stage, person.account.email, role)
    words = {"words": made["words"]}
    answered = person.proxy("POST", f"/api/invitations/{made['id']}/words/", words)
    assert answered.status == 200, answered.body
    settled = stage.owner.proxy("POST", f"{stage.organization}settle/", {})
    assert settled.json()["admitted"] == [person.account.email], settled.body


def set_up(service: Service) -> SharedStage:
    owner, reader, writer, further = (new_person(service, keyring=False) for _ in range(4))
    stranger = new_person(service)
    dataset = owner.post("/api/datasets/", named(organization=owner.account.organization))
    schema = owner.post("/api/schemas/", named(dataset=dataset["url"], schema=DEFINITION))
    names = [further.id] * 3
    stage = SharedStage(service, owner, reader, writer, stranger, names, {}, dataset, schema)
    stage.record = stage.new_record()
    for person, role in ((reader, "reader"), (writer, "writer"), (further, "reader")):
        let_in(stage, person, role)
    made = made_by_owner(stage, "services/", name="nightly", shares=shares(stage, "writer"))
    key = credentials.parse_service_key(made["key"])
    stage.auths = {
        "reader": reader.auth,
        "writer": writer.auth,
        "service at proxy": f"Bearer {key.text}",
        "service at api": credentials.authorization(RootKey(key.secret).token(key.id)),
    }
    return stage
