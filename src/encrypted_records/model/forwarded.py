"""Endpoints of the API that a proxy forwards, and those that it never does.

Every other request to a proxy may be plaintext on a misspelled path, so it is not forwarded.
:data:`FORWARDED` lists the allowed methods, paths, query parameters and media types. :data:`NEVER`
lists the API's other endpoints with the reasons. A test compares both with the API's OpenAPI
document, so that every endpoint is in one of them.

A path has ``{...}`` for each identifier, which has 22 letters and digits; ``{user}`` may also be
``self``, and ``{slug}`` is a slug. So no path in the list has a character beyond
``[A-Za-z0-9/_.-]``, an empty part, ``.`` or ``..``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from encrypted_records.model import ids, resources
from encrypted_records.model.resources import ListPage

JSON = "application/json"
#: The member by which a proxy reports whether the names of a dataset or schema were signed.
SIGNED = "signed"
#: The cookies of a session.
SESSION, CSRF = "sessionid", "csrftoken"
#: Maximum bytes of a body with a definition or a long description.
MAX_BODY_BYTES = 2 << 20
#: More than the longest passwords, names and addresses take, with all letters escaped.
SMALL_BODY_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Forwarded:
    """An endpoint that the proxy forwards.

    ``query`` contains the names of its parameters, ``takes`` the media types of its body (none if
    it has no body), ``most`` the maximum size of its body in bytes, ``sets`` the names of the
    cookies that its answer may set. ``ends_logins``: its success ends the login of a user.
    ``defines``: it may change the definition, which the proxy commits first. ``signed``: it may
    change an object in a roster; the proxy signs the change first. ``frees``: it deletes an object
    that a roster may name; the proxy then frees the name in the roster. ``shows``: "datasets" or
    "schemas": its answer lists them, and the proxy replaces their names with those of the roster.
    ``structure`` is that of the JSON in its answer; None if it has no JSON or various objects.
    """

    method: str
    template: str
    query: frozenset[str] = frozenset()
    takes: frozenset[str] = frozenset()
    most: int = SMALL_BODY_BYTES
    sets: frozenset[str] = frozenset()
    ends_logins: bool = False
    defines: bool = False
    signed: bool = False
    frees: bool = False
    shows: str = ""
    structure: Any = None

    @property
    def resources(self) -> str:
        """The collection that the endpoint belongs to, such as "datasets"."""
        return self.template.split("/")[2]

    @property
    def references(self) -> Mapping[str, str]:
        """Members of the body and parameters that name a resource, with the resource's
        collection.
        """
        return _REFERENCES.get(self.template, {})


_DATASET, _ORGANIZATION = {"dataset": "datasets"}, {"organization": "organizations"}
_REFERENCES: Mapping[str, Mapping[str, str]] = {
    "/api/datasets/": _ORGANIZATION,
    "/api/datasets/{dataset}/": _ORGANIZATION,
    "/api/schemas/": _DATASET | _ORGANIZATION,
    "/api/schemas/{schema}/": _DATASET,
    "/api/records/": {"schema": "schemas"},
    "/api/tokens/": {"datasets": "datasets"},
    "/api/organizations/{organization}/audit-log/": {"user": "users"},
}


def _get(template: str, structure: Any, *query: str, shows: str = "") -> Forwarded:
    return Forwarded("GET", template, frozenset(query), shows=shows, structure=structure)


def _list(template: str, kind: Any, *query: str, shows: str = "") -> Forwarded:
    structure = None if kind is None else ListPage[kind]
    return _get(template, structure, "limit", "offset", *query, shows=shows)


def _send(
    method: str, template: str, structure: Any = None, most: int = SMALL_BODY_BYTES
) -> Forwarded:
    return Forwarded(method, template, takes=frozenset({JSON}), most=most, structure=structure)


def _change(method: str, template: str, structure: Any, *, defines: bool = False) -> Forwarded:
    return Forwarded(
        method,
        template,
        takes=frozenset({JSON}),
        most=MAX_BODY_BYTES,
        defines=defines,
        signed=True,
        structure=structure,
    )


def _account(
    name: str,
    structure: Any = resources.DetailResource,
    *,
    sets: frozenset[str] = frozenset(),
    ends_logins: bool = False,
) -> Forwarded:
    return Forwarded(
        "POST",
        f"/api/accounts/{name}/",
        takes=frozenset({JSON}),
        sets=sets,
        ends_logins=ends_logins,
        structure=structure,
    )


_BOTH = frozenset({SESSION, CSRF})
_ONE = "/api/organizations/{organization}/"
_FACTOR = "/api/accounts/second-factor/"

FORWARDED: tuple[Forwarded, ...] = (
    Forwarded("GET", "/api/csrf/", sets=frozenset({CSRF}), structure=resources.CsrfResource),
    _get("/api/users/self/", resources.UserResource),
    _get("/api/users/{user}/", resources.UserResource),
    _account("login", sets=_BOTH),
    Forwarded(
        "POST",
        "/api/accounts/logout/",
        sets=_BOTH,
        ends_logins=True,
        structure=resources.DetailResource,
    ),
    # The request's session continues, with a new cookie.
    _account("change-password", sets=_BOTH, ends_logins=True),
    _account("register", resources.MessageResource),
    _account("verify-registration"),
    _account("change-email", resources.MessageResource),
    _account("confirm-email", ends_logins=True),
    _get("/api/accounts/delete/", resources.Deletion),
    _account("delete", sets=_BOTH, ends_logins=True),
    _account("send-reset-password-link", resources.MessageResource),
    _account("reset-password", ends_logins=True),
    _get(_FACTOR, resources.SecondFactorResource),
    _account("second-factor", resources.NewSecondFactor),
    _account("second-factor/confirm", resources.RecoveryCodesResource),
    _account("second-factor/recovery-codes", resources.RecoveryCodesResource),
    _account("second-factor/remove"),
    _send("POST", "/api/token/", resources.Tokens),
    _send("POST", "/api/token/refresh/", resources.Tokens),
    _send("POST", "/api/token/verify/"),
    _list("/api/tokens/", resources.ApiTokenResource),
    _send("POST", "/api/tokens/", resources.CreatedApiTokenResource),
    Forwarded("DELETE", "/api/tokens/{token}/"),
    _list("/api/organizations/", resources.OrganizationResource),
    _send("POST", "/api/organizations/", resources.OrganizationResource),
    _get("/api/organizations/by-slug/{slug}/", resources.OrganizationResource),
    _get(_ONE, resources.OrganizationResource),
    _get(f"{_ONE}dataset/{{slug}}/", resources.DatasetResource, shows="datasets"),
    _send("PUT", _ONE, resources.OrganizationResource),
    _send("PATCH", _ONE, resources.OrganizationResource),
    _list(f"{_ONE}members/", resources.MemberResource),
    _send("PATCH", f"{_ONE}members/{{member}}/", resources.MemberResource),
    Forwarded("DELETE", f"{_ONE}members/{{member}}/"),
    _list(f"{_ONE}invitations/", resources.InvitationResource),
    _send("POST", f"{_ONE}invitations/", resources.InvitationResource),
    Forwarded("DELETE", f"{_ONE}invitations/{{invitation}}/"),
    _list(f"{_ONE}audit-log/", resources.AuditEntryResource, "action", "without", "user", "until"),
    _list("/api/invitations/", resources.InvitationResource),
    Forwarded("DELETE", "/api/invitations/{invitation}/"),
    Forwarded("POST", "/api/invitations/{invitation}/accept/", structure=resources.MemberResource),
    _list(
        "/api/datasets/",
        resources.DatasetResource,
        *("organization", "slug", "name"),
        shows="datasets",
    ),
    _send("POST", "/api/datasets/", resources.DatasetResource, MAX_BODY_BYTES),
    _get("/api/datasets/{dataset}/", resources.DatasetResource, shows="datasets"),
    _get("/api/datasets/{dataset}/schema/{slug}/", resources.SchemaResource, shows="schemas"),
    _change("PUT", "/api/datasets/{dataset}/", resources.DatasetResource),
    _change("PATCH", "/api/datasets/{dataset}/", resources.DatasetResource),
    Forwarded("DELETE", "/api/datasets/{dataset}/", frozenset({"cascade"}), frees=True),
    _list(
        "/api/schemas/",
        resources.SchemaResource,
        *("organization", "dataset", "slug", "name"),
        shows="schemas",
    ),
    _send("POST", "/api/schemas/", resources.SchemaResource, MAX_BODY_BYTES),
    _get("/api/schemas/{schema}/", resources.SchemaResource, shows="schemas"),
    _change("PUT", "/api/schemas/{schema}/", resources.SchemaResource, defines=True),
    _change("PATCH", "/api/schemas/{schema}/", resources.SchemaResource, defines=True),
    Forwarded("DELETE", "/api/schemas/{schema}/", frozenset({"cascade"}), frees=True),
    # Only with ?sealed=true, which asks for the API's ciphertext. The API does not know that
    # parameter but repeats it in links to further pages, which therefore are sealed, too.
    _list("/api/records/", None, "schema", "id", "sealed", "dead"),
    _get("/api/records/{record}/", None, "sealed"),
)

_LOG = "only proxies follow a log and fetch what it names; a client would have to check it"
_ROSTER = "only proxies read and sign the roster, and seal grants; a client could check neither"
_JOB = "only proxies run jobs; at a proxy these paths are its own jobs"
_ERASURE = "the proxy asks for it, and merges first what lists dead rows"

#: (method, path) -> the reason why a proxy never forwards it
NEVER: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("GET", "/api/status/"): "the proxy answers it, with the answer of the API",
        ("POST", "/api/token/session/"): "a page that runs here must not trade its session",
        ("POST", "/api/commits/"): "only proxies write; a mistaken body here could be plaintext",
        ("GET", "/api/schemas/{schema}/manifest/"): _LOG,
        ("GET", "/api/schemas/{schema}/checkpoints/"): _LOG,
        ("POST", "/api/schemas/{schema}/checkpoints/"): _LOG,
        ("POST", "/api/schemas/{schema}/pages/"): _LOG,
        ("POST", "/api/schemas/{schema}/rows/"): _LOG,
        ("POST", "/api/schemas/{schema}/digests/"): _LOG,
        ("POST", "/api/schemas/{schema}/names/"): _LOG,
        (
            "GET",
            "/api/schemas/{schema}/damage/",
        ): "proxies ask for it, and make a schema whole again",
        ("GET", "/api/schemas/{schema}/erasure/"): _ERASURE,
        ("POST", "/api/schemas/{schema}/erasure/"): _ERASURE,
        ("GET", "/api/schemas/{schema}/holds/"): _ERASURE,
        ("PUT", "/api/schemas/{schema}/holds/"): _ERASURE,
        ("DELETE", "/api/schemas/{schema}/holds/"): _ERASURE,
        ("POST", "/api/schemas/{schema}/staging/"): _JOB,
        ("DELETE", "/api/jobs/{job}/"): _JOB,
        ("DELETE", "/api/jobs/{job}/parts/"): _JOB,
        ("POST", "/api/jobs/{job}/publish/"): _JOB,
        ("POST", "/api/jobs/{job}/token/"): _JOB,
        ("GET", "/api/organizations/{organization}/roster/"): _ROSTER,
        ("POST", "/api/organizations/{organization}/roster/"): _ROSTER,
        ("GET", "/api/organizations/{organization}/grants/"): _ROSTER,
        ("GET", "/api/organizations/{organization}/answers/"): _ROSTER,
        ("GET", "/api/organizations/{organization}/requests/"): _ROSTER,
        ("PUT", "/api/organizations/{organization}/requests/"): _ROSTER,
        (
            "DELETE",
            "/api/organizations/{organization}/requests/{dataset}/{user}/",
        ): _ROSTER,
        ("GET", "/api/organizations/{organization}/services/"): _ROSTER,
        ("POST", "/api/organizations/{organization}/services/"): _ROSTER,
        ("GET", "/api/invitations/{invitation}/answer/"): _ROSTER,
        ("PUT", "/api/invitations/{invitation}/answer/"): _ROSTER,
    }
)


def _compiled(template: str) -> re.Pattern[str]:
    parts = re.split(r"(\{\w+\})", template)
    forms = {"{user}": rf"(?:self|{ids.PATTERN})", "{slug}": ids.SLUG}
    return re.compile(
        "".join(
            forms.get(part, ids.PATTERN) if part.startswith("{") else re.escape(part)
            for part in parts
        )
    )


def _by_path() -> tuple[tuple[re.Pattern[str], Mapping[str, Forwarded]], ...]:
    methods_of: dict[str, dict[str, Forwarded]] = {}
    for request in FORWARDED:
        methods_of.setdefault(request.template, {})[request.method] = request
    return tuple((_compiled(template), methods) for template, methods in methods_of.items())


_BY_PATH = _by_path()
_FORMS = [
    re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(template)))
    for template in {request.template for request in FORWARDED}
    if "{" in template
]


def has_form(path: str) -> bool:
    """Whether a path matches a forwarded path, except that an identifier in it is malformed."""
    return any(form.fullmatch(path) for form in _FORMS)


def methods_of(path: str) -> Mapping[str, Forwarded]:
    """The forwarded endpoints at the path of a request, by method; empty for other paths."""
    for form, methods in _BY_PATH:
        if form.fullmatch(path):
            return methods
    return {}
