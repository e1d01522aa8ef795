"""What the proxy's endpoints take beside a body, and answer with: parts of an OpenAPI document.

:mod:`.reference` puts them together with what routes and docstrings say by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from encrypted_records.proxy.jobs import MAX_BATCH
from encrypted_records.proxy.tus import headers as header

Key = tuple[str, str]
Part = dict[str, Any]

_TEXT: Part = {"type": "string"}
_NUMBER: Part = {"type": "integer", "minimum": 0}
_URL: Part = {"type": "string", "format": "uri"}
_UUID: Part = {"type": "string", "format": "uuid"}
_VERSION: Part = {"const": header.VERSION}


def _object(required: Mapping[str, Any], **optional: Any) -> Part:
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **optional},
        "additionalProperties": False,
    }


def _array(items: Part) -> Part:
    return {"type": "array", "items": items}


def _json(schema: Part, *, said: str = "docs/http-api.md explains it", **headers: Part) -> Part:
    return _kinds(said, {"application/json": schema}, **headers)


def _kinds(said: str, schemas: Mapping[str, Part], **headers: Part) -> Part:
    found = _empty(said, **headers)
    return found | {"content": {kind: {"schema": schema} for kind, schema in schemas.items()}}


def _empty(said: str, **headers: Part) -> Part:
    """An answer with these headers; ``Upload_Offset`` stands for ``Upload-Offset``."""
    named = {name.replace("_", "-"): {"schema": schema} for name, schema in headers.items()}
    return {"description": said} | ({"headers": named} if named else {})


def _parameter(where: str, name: str, schema: Part, said: str = "", *, must: bool = False) -> Part:
    found = {"name": name, "in": where, "required": must, "schema": schema}
    return found | ({"description": said} if said else {})


def _page(results: Part, **more: Part) -> Part:
    link = {"type": ["string", "null"]}
    listed = {"count": _NUMBER, "next": link, "previous": link, "results": _array(results)}
    return _object(listed | more)


_LIMITS = (
    _parameter("query", "limit", {"type": "integer", "minimum": 1, "maximum": 1000}),
    _parameter("query", "offset", _NUMBER),
)
_SCHEMA = _parameter("query", "schema", _TEXT, "id or path of a schema", must=True)
_SEALED = _parameter("query", "sealed", {"enum": ["true", "false"]}, "as the API has it")
_IF_MATCH = _parameter("header", "If-Match", _TEXT, "ETags of the versions that may be changed")

# --- records -----------------------------------------------------------------------------------

_NAMED = {"id": _TEXT, "url": _TEXT, "schema": _TEXT}
_RECORD = _object(_NAMED | {"data": {"type": "object"}})
_ANY = {"type": "object"}
_CHANGED = _json(_RECORD, ETag=_TEXT)
_DELETED = _json(_object({"deleted": _NUMBER}))
_SEGMENTS = _object({"live": _NUMBER, "mini": _NUMBER, "paged": _NUMBER})

# --- jobs --------------------------------------------------------------------------------------

_PROGRESS_FIELDS: dict[str, Part] = {
    "status": {"enum": ["uploading", "processing", "completed", "failed"]},
    "processed": _NUMBER,
    "total": _NUMBER,
    "current_batch": _NUMBER,
    "total_batches": _NUMBER,
}
_PROGRESS = _object(_PROGRESS_FIELDS, error=_TEXT)
_LISTED = _object({"job_id": _UUID} | _PROGRESS_FIELDS, error=_TEXT)
_FLAW = _object(
    {
        "row": {"type": ["integer", "null"]},
        "field": {"type": ["string", "null"]},
        "code": _TEXT,
        "detail": _TEXT,
    }
)
_ORDER = (
    _parameter("header", "X-Batch-Size", {"type": "integer", "minimum": 1, "maximum": MAX_BATCH}),
    _parameter("header", "X-On-Invalid", {"enum": ["fail", "skip"]}),
)

# --- resumable uploads -------------------------------------------------------------------------

_RESUMABLE = _parameter("header", "Tus-Resumable", _VERSION, must=True)
_LENGTH = _parameter("header", "Upload-Length", _NUMBER, "in bytes")
_CHECKSUM = _parameter("header", "Upload-Checksum", _TEXT, "an algorithm, and a digest in Base64")
_OFFSET = _parameter("header", "Upload-Offset", _NUMBER, "where the body begins", must=True)
_ALWAYS: dict[str, Part] = {"Tus_Resumable": _VERSION}
_REACHED: dict[str, Part] = _ALWAYS | {"Upload_Offset": _NUMBER, "Upload_Expires": _TEXT}
_SPOKEN = _empty(
    "What is spoken here",
    **_ALWAYS,
    Tus_Version=_TEXT,
    Tus_Extension=_TEXT,
    Tus_Max_Size=_NUMBER,
    Tus_Checksum_Algorithm=_TEXT,
)
_UPLOADING = (410, 423, 460, 507)

# -----------------------------------------------------------------------------------------------

#: (method, path) -> status -> answer, of what is no problem
ANSWERS: Mapping[Key, Mapping[int, Part]] = {
    ("POST", "/api/records/ingest/"): {201: _json(_array(_object(_NAMED)))},
    ("POST", "/api/records/decrypt/"): {
        200: _json({"oneOf": [_RECORD, _array(_RECORD)]}),
    },
    ("GET", "/api/records/"): {200: _json(_page(_ANY))},
    ("DELETE", "/api/records/"): {200: _DELETED},
    ("GET", "/api/records/{id}/"): {200: _json(_ANY, ETag=_TEXT)},
    ("PUT", "/api/records/{id}/"): {200: _CHANGED},
    ("PATCH", "/api/records/{id}/"): {200: _CHANGED},
    ("DELETE", "/api/records/{id}/"): {204: _empty("It is deleted")},
    ("POST", "/api/records/delete/"): {200: _DELETED},
    ("POST", "/api/records/search/"): {
        200: _json(
            _object(
                {
                    "count": {"type": ["integer", "null"]},
                    "next_cursor": {"type": ["string", "null"]},
                    "results": _array(_RECORD),
                }
            )
        )
    },
    ("POST", "/api/records/export/"): {
        200: _kinds("Every match, as it is found", {"application/x-ndjson": {}, "text/csv": {}})
    },
    ("POST", "/api/records/aggregate/"): {
        200: _json(
            {
                "oneOf": [
                    _object({"measures": _array(_ANY)}),
                    _object(
                        {
                            "total": _NUMBER,
                            "groups": _array(_object({"group": _ANY, "measures": _array(_ANY)})),
                        }
                    ),
                ]
            }
        )
    },
    ("POST", "/api/records/explain/"): {200: _json(_ANY)},
    ("GET", "/api/records/status/"): {
        200: _json(
            _object(
                {
                    "version": _NUMBER,
                    "records": _NUMBER,
                    "dead": _NUMBER,
                    "segments": _SEGMENTS,
                    "merge_pending": {"type": "boolean"},
                    "memory": _ANY,
                }
            )
        )
    },
    ("POST", "/api/schemas/infer/"): {
        200: _json(_object({"schema": _ANY, "sampled": _NUMBER, "fields": _array(_ANY)}))
    },
    ("POST", "/api/schemas/estimate/"): {200: _json(_ANY)},
    ("POST", "/api/schemas/{id}/merge/"): {
        200: _json(
            _object(
                {
                    "merged": _NUMBER,
                    "records": _NUMBER,
                    "segments": _NUMBER,
                    "done": {"type": "boolean"},
                }
            )
        )
    },
    ("GET", "/api/keyring/"): {200: _json(_ANY)},
    ("GET", "/api/keyring/schemas/"): {200: _json(_array(_ANY))},
    ("POST", "/api/keyring/rotate/"): {201: _json(_ANY)},
    ("POST", "/api/keyring/backup/"): {
        200: _json(_array(_object({"version": _NUMBER, "phrase": _TEXT})))
    },
    ("POST", "/api/keyring/backup/file/"): {
        200: _kinds("A keyring file", {"application/octet-stream": {}})
    },
    ("POST", "/api/keyring/backup/confirm/"): {200: _json(_ANY)},
    ("POST", "/api/keyring/restore/"): {201: _json(_ANY)},
    ("POST", "/api/keyring/unlock/"): {200: _json(_ANY)},
    ("POST", "/api/keyring/lock/"): {200: _json(_object({"locked": {"const": True}}))},
    ("POST", "/api/keyring/passphrase/"): {
        200: _json(_object({"wrapping": {"const": "passphrase"}, "left": _NUMBER}))
    },
    ("POST", "/api/jobs/upload/"): {
        201: _json(
            _object({"job_id": _UUID}),
            said="The job goes on by itself",
            X_Job_ID=_UUID,
            X_Job_Status_URL=_TEXT,
            X_Job_Websocket_URL=_TEXT,
        )
    },
    ("GET", "/api/jobs/"): {200: _json(_page(_LISTED))},
    ("GET", "/api/jobs/{id}/"): {200: _json(_PROGRESS)},
    ("DELETE", "/api/jobs/{id}/"): {204: _empty("It is cancelled, or forgotten if it had ended")},
    ("GET", "/api/jobs/{id}/errors/"): {
        200: _kinds(
            "The rows that do not fit",
            {"application/json": _page(_FLAW, rows=_NUMBER), "text/csv": {}},
        )
    },
    ("GET", "/api/ws/jobs/{id}/"): {101: _empty("Progress payloads, as they change")},
    ("OPTIONS", "/api/files/"): {204: _SPOKEN},
    ("POST", "/api/files/"): {
        201: _empty(
            "The upload is made",
            **_REACHED,
            Location=_URL,
            X_Job_Id=_UUID,
            X_Job_Status_Url=_URL,
            X_Job_Websocket_Url=_URL,
        )
    },
    ("OPTIONS", "/api/files/{id}/"): {204: _SPOKEN},
    ("HEAD", "/api/files/{id}/"): {
        200: _empty(
            "How far the upload is",
            **_REACHED,
            Upload_Length=_NUMBER,
            Upload_Defer_Length={"const": 1},
            Upload_Metadata=_TEXT,
            Upload_Concat=_TEXT,
        )
    },
    ("PATCH", "/api/files/{id}/"): {204: _empty("Upload-Offset bytes are on disk", **_REACHED)},
    ("DELETE", "/api/files/{id}/"): {204: _empty("The upload has ended", **_ALWAYS)},
    ("GET", "/api/openapi.json"): {200: _json(_ANY)},
    ("GET", "/api/docs/"): {200: _kinds("The same for people", {"text/html": {}})},
}

#: (method, path) -> parameters beside those of the path
PARAMETERS: Mapping[Key, tuple[Part, ...]] = {
    ("POST", "/api/records/ingest/"): (
        _parameter("header", "Idempotency-Key", _UUID, "of version 7; the same for a repetition"),
    ),
    ("GET", "/api/records/"): (_SCHEMA, _SEALED, *_LIMITS),
    ("DELETE", "/api/records/"): (_parameter("query", "id", _array(_TEXT), must=True),),
    ("GET", "/api/records/{id}/"): (_SEALED,),
    ("PUT", "/api/records/{id}/"): (_IF_MATCH,),
    ("PATCH", "/api/records/{id}/"): (_IF_MATCH,),
    ("DELETE", "/api/records/{id}/"): (_IF_MATCH,),
    ("POST", "/api/records/delete/"): (
        _parameter("query", "confirm", _NUMBER, "how many records match"),
    ),
    ("GET", "/api/records/status/"): (_SCHEMA,),
    ("POST", "/api/jobs/upload/"): (
        _parameter("query", "schema", _TEXT, "of records that name none"),
        *_ORDER,
    ),
    ("GET", "/api/jobs/"): _LIMITS,
    ("GET", "/api/jobs/{id}/errors/"): (
        *_LIMITS,
        _parameter("query", "format", {"enum": ["json", "csv"]}),
    ),
    ("POST", "/api/files/"): (
        _RESUMABLE,
        _LENGTH,
        _parameter("header", "Upload-Defer-Length", {"const": 1}, "the length comes later"),
        _parameter("header", "Upload-Metadata", _TEXT, "keys, and values in Base64"),
        _parameter("header", "Upload-Concat", _TEXT, "partial, or final; and URLs of parts"),
        _CHECKSUM,
        *_ORDER,
    ),
    ("HEAD", "/api/files/{id}/"): (_RESUMABLE,),
    ("PATCH", "/api/files/{id}/"): (_RESUMABLE, _OFFSET, _LENGTH, _CHECKSUM),
    ("DELETE", "/api/files/{id}/"): (_RESUMABLE,),
}

#: (method, path) -> statuses of problems that other endpoints do not have
PROBLEMS: Mapping[Key, tuple[int, ...]] = {
    ("POST", "/api/jobs/upload/"): (507,),
    ("POST", "/api/files/"): _UPLOADING,
    ("HEAD", "/api/files/{id}/"): _UPLOADING,
    ("PATCH", "/api/files/{id}/"): _UPLOADING,
    ("DELETE", "/api/files/{id}/"): _UPLOADING,
}

#: (method, path) -> summary, where one function answers several methods
SUMMARIES: Mapping[Key, str] = {
    ("OPTIONS", "/api/files/"): "versions, extensions and limits of resumable uploads (TUS 1.0.0).",
    ("POST", "/api/files/"): "begin a resumable upload, perhaps with its first bytes.",
    ("OPTIONS", "/api/files/{id}/"): "the same as of /api/files/.",
    ("HEAD", "/api/files/{id}/"): "how far an upload is, and what was said of it.",
    ("PATCH", "/api/files/{id}/"): "add bytes to an upload.",
    ("DELETE", "/api/files/{id}/"): "end an upload, and its job.",
}
