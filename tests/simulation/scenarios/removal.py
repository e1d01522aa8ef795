"""Removal: an organization is founded, somebody invited and let in, and put out again while both
write; then keys change. Any request may be lost, and any proxy killed.

What was acknowledged is there. Who was put out changes nothing that begins after the removal was
acknowledged, and reads nothing that was stored after it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from tests.simulation.expected import Expected, Fault
from tests.simulation.proxy import Proxy
from tests.simulation.scenarios.writer import DEFINITION, Writer, judge_end
from tests.simulation.scene import OVERTAKEN, Said, Scene

#: What somebody meets who is not in, any more or yet.
OUT = {
    *("not_found", "not_admitted", "not_shared", "not_writer", "schema_deleted"),
    *("unknown_reference", "invalid_records", "not_member", "not_allowed"),
}
#: And before there is any record: an owner signs the schema by storing into it, and a share of its
#: dataset does not.
UNSIGNED = {"schema_unsigned"}
#: How often somebody asks for something until it is done.
TRIES = 60


class Removed(Writer):
    """A writer who is put out at some time."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, may=OUT, **named)
        self.is_out = False

    async def ask(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        may: Collection[int | str] = (),
    ) -> Said:
        was_out = self.is_out
        if not any(line.id for line in self.expected.lines.values()):
            may = UNSIGNED | set(may)
        said = await super().ask(method, target, body, headers=headers, may=may)
        if said.done and was_out:
            raise Fault(f"{method} {target} of somebody who was put out: {said.answer}")
        return said

    async def search(self) -> None:
        if not self.is_out:
            await super().search()

    async def read(self) -> None:
        """Nothing: somebody who is put out meanwhile cannot tell what is gone from what they may
        not see."""


async def insist(
    scene: Scene,
    proxy: Proxy,
    who: int,
    method: str,
    target: str,
    body: Any = None,
    *,
    may: set[str] = OVERTAKEN,
    until: Callable[[Said], bool] = lambda said: said.done,
) -> Said:
    """Ask again and again until it is done.

    Raises:
        Fault: it never is.
    """
    said = None
    for _ in range(TRIES):
        said = await scene.ask(proxy, scene.accounts[who], method, target, body, may=may)
        if until(said):
            return said
        await scene.pause(10)
    raise Fault(f"{method} {target} is never done: {said and said.answer}")


async def let_in(scene: Scene, one: Proxy, two: Proxy, dataset: str, who: int = 1) -> str:
    """Invite an account, have it answer at its proxy ``two``, and let it in; its id."""
    ada, bea = scene.accounts[0], scene.accounts[who]
    people = f"{ada.organization}people/"
    share = {"email": bea.email, "shares": [{"dataset": dataset, "role": "writer"}]}
    for _ in range(TRIES):
        said = await insist(scene, one, 0, "POST", people, share)
        invited = said.json()
        answered = await insist(
            *(scene, two, who, "POST", f"/api/invitations/{invited['id']}/words/"),
            {"words": invited["words"]},
            may={"already_answered", "not_found", "invitation_over", "already_member"},
            until=lambda said: said.done or said.refused,
        )
        if answered.done or answered.code.startswith("already"):
            break
    settle = f"{ada.organization}settle/"
    for _ in range(TRIES):
        await insist(scene, one, 0, "POST", settle)
        told = (await insist(scene, one, 0, "GET", people)).json()
        for person in told["people"]:
            if person["name"] == bea.email:
                return str(person["id"])
        await scene.pause(10)
    raise Fault(f"{bea.email} is never let in: {told}")


async def run(scene: Scene) -> None:
    one, two = scene.proxy("a"), scene.proxy("b")
    await one.start()
    await two.start()
    ada, bea = scene.accounts[:2]
    await scene.must(one, ada, "POST", "/api/keyring/backup/")
    schema = await scene.new_schema(one, ada, DEFINITION)
    dataset = (await scene.must(one, ada, "GET", schema))["dataset"]
    expected = Expected(DEFINITION["properties"])
    stays = Writer(scene, "x", schema, expected, proxies=[one])
    goes = Removed(scene, "y", schema, expected, account=bea, proxies=[two])
    scene.network.trouble = 8
    one.lost = two.lost = 5

    async def change() -> None:
        member = await let_in(scene, one, two, dataset)
        working = scene.world.loop.create_task(goes.work(16))
        await scene.pause(6)
        path = f"{ada.organization}people/{member}/"
        await insist(
            scene, one, 0, "DELETE", path, may={"not_a_member"}, until=lambda s: s.done or s.refused
        )
        goes.is_out = True
        await insist(scene, one, 0, "POST", f"{dataset}rotate/")
        await working

    await scene.together(change(), stays.work(16), scene.kill_some(4, 40))
    await scene.calm()
    goes.is_out = True
    said = await goes.ask("POST", "/api/records/search/", {"schema": schema})
    if not said.refused:
        raise Fault(f"somebody who was put out is answered {said.answer}")
    await judge_end(scene, schema, expected, [one])
