"""Parsers of what is not sealed: frames, the log, and JSON of several kinds."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import suppress

import msgspec

from encrypted_records.crypto import values
from encrypted_records.errors import (
    BadInput,
    Closed,
    Conflict,
    InvalidDefinition,
    InvalidQuery,
    KeyMissing,
    LogBroken,
    Malformed,
    NotAllowed,
    TooLarge,
    Unsupported,
)
from encrypted_records.http import problem
from encrypted_records.index.log import checkpoint
from encrypted_records.index.log import checkpoint as taking
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.query.condition import Condition
from encrypted_records.model import ids, strict_json, wire
from encrypted_records.model.ciphertext_lengths import is_class_of, least_class
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.predicates import Joins, matches
from encrypted_records.model.queries import MAX_COMPARISONS, parse_query
from encrypted_records.model.records import ManifestDelta, PageRef, Receipt, RowRef, StoredRow
from encrypted_records.model.roster import AccessRequest, Grant, RosterEntry
from encrypted_records.model.wire import Checkpoint
from encrypted_records.proxy.uploads import tus
from encrypted_records.proxy.uploads import tus as tus_headers
from encrypted_records.proxy.uploads.store import format_of
from encrypted_records.proxy.uploads.tus import Append, Create, Kind, UploadStatus
from tests.fuzz import known
from tests.fuzz.known import COMMIT, DEFINITION, GROUP, KEY, KEYS, SEGMENT, UPLOAD
from tests.fuzz.mutations import json_text, msgpack, raw
from tests.fuzz.target import Target
from tests.reference.loading import vectors

# --- frames and the log ------------------------------------------------------------------------


def a_body_of_frames(data: bytes) -> None:
    items = list(wire.decode(data))
    assert list(wire.decode(wire.encode(items))) == items


def a_frame(data: bytes) -> None:
    """Of every kind, with the right length, so that the payload is read."""
    for kind in wire.KINDS:
        with suppress(Malformed):
            a_body_of_frames(wire.MAGIC + bytes((kind,)) + len(data).to_bytes(4, "big") + data)


def a_body_of_commits(data: bytes) -> None:
    uploads = wire.decode_uploads(data)
    assert wire.decode_uploads(b"".join(wire.encode_uploads(uploads))) == uploads


def the_body_of_a_commit(data: bytes) -> None:
    body = wire.decode_commit_body(known.signed(data))
    assert wire.decode_commit_body(known.signed(wire.encode_commit_body(body))) == body


def a_manifest(data: bytes) -> None:
    ledger = Ledger(KEYS, bytes(16))
    ledger.extend(wire.decode_single(data, ManifestDelta))
    _holds_together(ledger)


def a_commit_under_the_right_key(data: bytes) -> None:
    """As a hostile holder of the key could write it, after a good one."""
    ledger = known.ledger()
    ledger.extend(known.delta(known.signed(data), first=2))
    _holds_together(ledger)


def the_state_of_a_checkpoint(data: bytes) -> None:
    """As a hostile holder of the key could write it; a good log goes on from what is taken."""
    body = wire.encode_checkpoint_body(known.replace(_SUM, state=data))
    made = Checkpoint(body, KEY.checkpoint.compute(body), b"")
    ledger = taking.take(made, KEYS, bytes(16), None, 1 << 62)
    _holds_together(ledger)
    checkpoint.encode(ledger.state(), requests_since=0, ends={})
    ledger.extend(known.delta(known.signed(_LATER[0]), first=2))
    _holds_together(ledger)


def _holds_together(ledger: Ledger) -> None:
    snapshot = ledger.snapshot()
    groups = {uid: state.group.count for uid, state in snapshot.groups.items()}
    dead = {uid: len(snapshot.dead.get(uid, ())) for uid in groups}
    assert all(dead[uid] <= count for uid, count in groups.items())
    assert snapshot.count == sum(groups.values()) - sum(dead.values()) >= 0
    covered = [uid for segment in snapshot.segments for uid, _ in segment.groups]
    assert sorted(covered) == sorted(groups)


# --- JSON --------------------------------------------------------------------------------------


def json_of_any_kind(data: bytes) -> None:
    strict_json.loads(data)
    strict_json.loads(data.decode("utf-8-sig"))


def a_definition(data: bytes) -> None:
    """What is accepted has keys and a digest, and its extremes can be sealed."""
    found = parse_definition(data)
    assert len(found.digest) == 32
    for spec in found.fields.values():
        assert len(spec.binding) == 32
        stated = least_class(spec)
        assert is_class_of(spec, stated)
        assert len(values.encode(spec, None, stated)) == 1 + stated.length
        if spec.number is not None:
            for point in (spec.number.lowest, spec.number.highest):
                value = values.from_offset(spec, point - spec.number.lowest)
                assert values.decode(spec, values.encode(spec, value, stated), stated) == value


_OPENED, _RECORDS = known.opened(), known.records()


def a_search(data: bytes) -> None:
    """What can be asked has an answer, and the index and the records agree on it."""
    body = strict_json.loads(data)
    if not isinstance(body, dict):
        return
    query = parse_query(body, DEFINITION)
    found = Condition.of(query.where, KEY, DEFINITION).match(_OPENED)
    right = {at for at, one in enumerate(_RECORDS) if matches(query.where, one.data, DEFINITION)}
    assert set(found.certain) <= right <= set(found.possible)


def a_search_of_other_schemas(data: bytes) -> None:
    """What is asked of other schemas is noted, each with its place, and read no further."""
    body = strict_json.loads(data)
    if not isinstance(body, dict):
        return
    joins = Joins()
    parse_query(body, DEFINITION, joins)
    for one in joins.found:
        assert one.spec.name in DEFINITION.fields
        assert one.pointer.startswith("/where")
    assert len(joins.found) <= MAX_COMPARISONS


def the_other_sides_problem(data: bytes) -> None:
    """Any body becomes an error that can be passed on; the first byte makes a status."""
    error = problem.to_error(400 + (data[0] if data else 0), data[1:])
    document = msgspec.json.decode(msgspec.json.encode(problem.of_error(error)))
    assert 400 <= document["status"] < 600


# --- identifiers -------------------------------------------------------------------------------


def an_identifier(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    assert ids.to_text(ids.from_text(text)) == text


def a_reference(data: bytes) -> None:
    text = data.decode("latin-1")
    found = ids.from_reference(text, "schemas", pointer="/schema", own_hosts=("http://[::1]:80",))
    assert text.endswith(ids.reference("schemas", found))


# --- resumable uploads -------------------------------------------------------------------------


def a_request_of_tus(data: bytes) -> None:
    """A line per header, as HTTP servers give them; what is admitted fits the upload."""
    first, *lines = data.decode("latin-1").split("\n")
    headers = {name.lower(): value for name, _, value in (line.partition(":") for line in lines)}
    headers |= {"tus-resumable": "1.0.0"}
    upload = UploadStatus(Kind.WHOLE, 5, 10)
    for on_upload in (False, True):
        asked = tus.read(tus.method_of(first, headers), headers, on_upload=on_upload)
        if isinstance(asked, Append):
            length = tus.admit(asked, upload)
            assert asked.offset == 5
            assert length == 10
            assert (asked.body.size or 0) <= 5
        elif isinstance(asked, Create):
            length = asked.status.length
            assert length is None or 0 <= length <= tus_headers.MAX_SIZE
            assert len(asked.parts) <= tus_headers.MAX_PARTS
            assert length is None or asked.body is None or (asked.body.size or 0) <= length
            format_of(asked.metadata)
            assert "\n" not in "".join(tus.show(asked.status).values())


def metadata_of_an_upload(data: bytes) -> None:
    """What is accepted is said again in one way, and means the same then."""
    found = tus_headers.read_metadata(data.decode("latin-1"))
    again = ",".join(f"{key} {b64encode(value).decode()}" for key, value in found.items())
    with suppress(TooLarge):  # padding that was not sent
        assert tus_headers.read_metadata(again) == found
    format_of(found)


# -----------------------------------------------------------------------------------------------

_FRAMES = (Malformed, Unsupported)
_ITEMS: list[msgspec.Struct] = [
    UPLOAD.commit,
    *UPLOAD.rows,
    *UPLOAD.pages,
    known.delta(UPLOAD.commit),
    RowRef(GROUP.uid, 3),
    PageRef(SEGMENT.uid, 0),
    StoredRow(GROUP.uid, 3, UPLOAD.rows[0].present[3]),
    Receipt(COMMIT.id, KEY.schema, 1),
    RosterEntry(b"body", bytes(64), [b"opening"]),
    Grant(b"body", bytes(64)),
    AccessRequest(b"body", bytes(64), 0),
]
_MANIFEST = wire.encode([known.delta(UPLOAD.commit)])
_LATER = [wire.encode_commit_body(body) for body in known.next_commits()]
# The short one more often: each of its tokens matters.
_DEFINITIONS = [
    text.encode() for entry in vectors("definitions.json") for text in entry["definitions"]
] + [b'{"type":"object","properties":{"n":{"type":"integer","minimum":0,"maximum":9}}}'] * 4
_SEARCHES = [
    json.dumps(body).encode()
    for body in (
        {
            "where": {
                "and": [
                    {"field": "age", "op": "between", "value": [1, 41]},
                    {"not": {"field": "city", "op": "prefix", "value": "Z\u00fc"}},
                    {"or": [{"field": "balance", "op": "ge", "value": -0.5}]},
                ]
            },
            "fields": ["age", "city"],
            "limit": 10,
            "count": True,
        },
        {"where": {"field": known.NAMES[3], "op": "lt", "value": "x" * 48 + "b"}},
        {"where": {"field": "city", "op": "in", "value": ["Oslo", "Z\u00fcrich"]}},
        {"where": {"field": "city", "op": "eq", "value": "Oslo"}},
        {"where": {"field": "age", "op": "is_null", "value": False}, "cursor": "abc"},
        {"filters": [{"label": "age", "value": 41}, {"label": "city", "value": "Oslo"}]},
    )
]
_JOINS = [
    json.dumps({"where": {"not": {"field": "city", "op": "in", "of": of}}}).encode()
    for of in (
        {"schema": "visits", "field": "city"},
        {"schema": f"/api/schemas/{'2' * 22}/", "field": "x", "where": {"and": [{"op": "eq"}]}},
    )
]
_PROBLEMS = [
    b"\t" + json.dumps(body).encode()
    for body in (
        problem.document(409, "conflict", "the state has moved on", hint="try again"),
        {"code": "conflict", "detail": "the state has moved on"},
    )
]
_METADATA = [b"filename cGVvcGxlLmNzdg==,filetype dGV4dC9jc3Y=", b"is_final,schema eg=="]
_SENT = b"\nupload-checksum:md5 1B2M2Y8AsgTpgAmY7PhCfg==\ncontent-length:5\ncontent-type:"
_TUS = [
    b"PATCH\nupload-offset:5" + _SENT + tus_headers.CONTENT_TYPE.encode(),
    b"POST\nupload-length:9\nupload-metadata:" + _METADATA[0],
    b"POST\nupload-defer-length:1\ntransfer-encoding:chunked" + _SENT,
    b"POST\nupload-concat:final;/api/files/a /api/files/b\nx-http-method-override:POST",
]
_REFERENCE = ids.reference("schemas", KEY.schema).encode()

_LEDGER = known.ledger()
_SUM = wire.decode_checkpoint_body(taking.make(_LEDGER, _LEDGER.state(), 0))

TARGETS = [
    Target(a_body_of_frames, _FRAMES, [known.BODY, _MANIFEST, wire.encode(_ITEMS)], raw),
    Target(
        a_frame,
        _FRAMES,
        [msgspec.msgpack.encode(item) for item in _ITEMS],
        msgpack,
    ),
    Target(a_body_of_commits, _FRAMES, [known.BODY], raw),
    Target(the_body_of_a_commit, (Malformed,), [UPLOAD.commit.body, *_LATER], msgpack),
    Target(a_manifest, (*_FRAMES, Closed, LogBroken, KeyMissing), [_MANIFEST], raw),
    Target(a_commit_under_the_right_key, (Closed, LogBroken, KeyMissing), _LATER, msgpack),
    Target(the_state_of_a_checkpoint, (Closed,), [_SUM.state], msgpack),
    Target(json_of_any_kind, (Malformed,), [*_DEFINITIONS, *_SEARCHES], json_text),
    Target(a_definition, (InvalidDefinition,), _DEFINITIONS, json_text),
    Target(a_search, (Malformed, InvalidQuery), _SEARCHES, json_text),
    Target(a_search_of_other_schemas, (Malformed, InvalidQuery), _JOINS, json_text),
    Target(the_other_sides_problem, (), _PROBLEMS, json_text),
    Target(a_request_of_tus, (BadInput, Conflict, NotAllowed, Unsupported), _TUS, raw),
    Target(metadata_of_an_upload, (BadInput,), _METADATA, raw),
    Target(an_identifier, (Malformed,), [ids.to_text(KEY.schema).encode(), b"z" * 22], raw),
    Target(a_reference, (BadInput,), [_REFERENCE, b"http://[::1]:80" + _REFERENCE], raw),
]
