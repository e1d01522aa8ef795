"""Every version byte, label and length of the sealed formats, in one place (docs/SPEC.md).

The derivation tree; each arrow is HKDF-Expand with SHA-256 (RFC 5869, section 2.3) and the info
string :func:`info` makes of the label and what is written beside it::

    root[kv]                       32 random bytes, one per keyring version kv
     ├─ "fingerprint"              8 bytes that name the root key to people
     ├─ "job" job, kv              K_job    AES-256-GCM, what the proxy keeps of a job
     ├─ "spool" upload, kv         K_spool
     │   └─ "session" salt         K_session AES-256-GCM, what one append wrote
     └─ "schema" org, schema, kv   K_schema
         ├─ "id"                   key id, 8 bytes, known to the API
         ├─ "log"                  K_log    HMAC-SHA256 of commits
         ├─ "uid"                  K_uid    HMAC-SHA256 that hedges uids
         ├─ "meta"  segment uid    K_meta   AES-256-GCM, one segment header
         └─ "field" name, binding  K_field
             ├─ "seal"  group uid    K_seal   AES-256-GCM, the field's values in one group
             ├─ "index" segment uid  K_index  AES-256-GCM, the field's pages in one segment
             └─ "tail"               K_tail   HMAC-SHA256 of long strings' index keys

The extract step of HKDF is left out: every input key is uniform already (RFC 5869, section 3.3).
"""

from __future__ import annotations

import struct

PREFIX = b"ERS1"

FINGERPRINT = b"fingerprint"
SCHEMA = b"schema"
KEY_ID = b"id"
LOG = b"log"
UID = b"uid"
META = b"meta"
FIELD = b"field"
SEAL = b"seal"
INDEX = b"index"
TAIL = b"tail"
SPOOL = b"spool"
JOB = b"job"
SESSION = b"session"

KEY_BYTES = 32
KEY_ID_BYTES = 8
FINGERPRINT_BYTES = 8
UID_BYTES = 16
NONCE_BYTES = 12

#: First byte of a field's plaintext. Numbers are never reused.
TYPE_ABSENT = 0
TYPE_INTEGER = 1
TYPE_NUMBER = 2
TYPE_STRING = 3

#: First byte of a page's nonce and associated data. Numbers are never reused.
PAGE_MINI = 1
PAGE_DIRECTORY = 2
PAGE_DATA = 3
PAGE_DUMMY = 4

#: Longest index key of a string that is kept as it is, and the keyed hash after longer ones.
INDEX_KEY_PREFIX = 48
INDEX_KEY_TAIL = 16
INDEX_KEY_BYTES = INDEX_KEY_PREFIX + INDEX_KEY_TAIL

#: The keyring file (docs/SPEC.md, section 8).
KEYRING_MAGIC = b"ERSKEYRING"
KEYRING_VERSION = 1
WRAP_MACHINE_KEY = 1
WRAP_PASSPHRASE = 2
WRAP_KEYCHAIN = 3
WRAP_TRANSIT = 4
#: Stands for the owner of a keyring file that leaves the proxy as a backup.
NO_OWNER = bytes(16)
SALT_BYTES = 16
#: A recovery phrase (section 8.1).
PHRASE_WORDS = 24
#: What a reader derives a key with; more would let a hostile file exhaust the machine.
ARGON2_MEMORY_KIB = range(8_192, 1_048_576 + 1)
ARGON2_PASSES = range(1, 16 + 1)
ARGON2_LANES = range(1, 16 + 1)

#: The spool file (docs/SPEC.md, section 11).
SPOOL_MAGIC = b"ERSSPOOL"
SPOOL_VERSION = 1
#: What a spool file holds. Numbers are never reused.
SPOOL_PLAIN = 1
SPOOL_JOINED = 2
SPOOL_NOTE = 3
#: The byte before a session's salt, and the one before a frame.
SPOOL_SESSION = 1
SPOOL_FRAME = 2
SPOOL_SALT_BYTES = 32
#: Plaintext in one frame, at most.
SPOOL_FRAME_BYTES = 1 << 18
SPOOL_SESSION_FRAMES = 1 << 20


def info(*parts: bytes) -> bytes:
    """The info string of a derivation: ``ERS1`` and the parts, each after its 16-bit length.

    The lengths make it injective: no two lists of parts give the same string.
    """
    return b"".join(struct.pack(">H", len(part)) + part for part in (PREFIX, *parts))
