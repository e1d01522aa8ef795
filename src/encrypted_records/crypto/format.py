"""Every version byte, label and length of the sealed formats, in one place (docs/SPEC.md).

The derivation tree; each arrow is HKDF-Expand with SHA-256 (RFC 5869, section 2.3) and the info
string :func:`info` makes of the label and what is written beside it::

    root[kv]                       32 random bytes, one per keyring version kv
     ├─ "fingerprint"              8 bytes that name the root key to people
     ├─ "verifier"                 32 bytes by which a proxy knows the words of a key again
     ├─ "identity" "sign"   org, member, kv   Ed25519 seed
     ├─ "identity" "x25519" org, member, kv   X25519 private key
     ├─ "identity" "mlkem"  org, member, kv   ML-KEM-768 seed, 64 bytes
     ├─ "anchor" org, member, kv   K_anchor HMAC-SHA256 over an organization's first entry
     ├─ "token"  member            a service account's token at the API, 32 bytes
     ├─ "job" job, kv              K_job    AES-256-GCM, what the proxy keeps of a job
     ├─ "question" id, kv          K_question AES-256-GCM, a question that was saved by name
     ├─ "spool" upload, kv         K_spool
     │   └─ "session" salt         K_session AES-256-GCM, what one append wrote
     └─ "schema" org, schema, kv   K_schema
         ├─ "id"                   key id, 8 bytes, known to the API
         ├─ "log"                  K_log    HMAC-SHA256 of commits
         ├─ "ledger"               K_ledger AES-256-GCM, what the proxy keeps of a log
         ├─ "checkpoint"           K_checkpoint HMAC-SHA256 of checkpoints
         ├─ "uid"                  K_uid    HMAC-SHA256 that hedges uids
         ├─ "cover"                K_cover  HMAC-SHA256 that draws what is asked for beside
         ├─ "meta"  segment uid    K_meta   AES-256-GCM, one segment header
         └─ "field" id, binding    K_field
             ├─ "seal"  group uid    K_seal   AES-256-GCM, the field's values in one group
             ├─ "index" segment uid  K_index  AES-256-GCM, the field's pages in one segment
             └─ "tail"               K_tail   HMAC-SHA256 of long strings' index keys

    D[e]                           32 random bytes, one per dataset and epoch e
     ├─ "commitment" org, dataset, e   32 bytes, public
     └─ "schema" org, schema, e    K_schema, as above, but for
         └─ "metas"                K_metas
             └─ "meta" segment uid   K_meta

The extract step of HKDF is left out: every input key is uniform already (RFC 5869, section 3.3).
"""

from __future__ import annotations

from encrypted_records.model.signatures import info

__all__ = ["info"]

FINGERPRINT = b"fingerprint"
SCHEMA = b"schema"
KEY_ID = b"id"
LOG = b"log"
LEDGER = b"ledger"
CHECKPOINT = b"checkpoint"
UID = b"uid"
COVER = b"cover"
META = b"meta"
FIELD = b"field"
SEAL = b"seal"
INDEX = b"index"
TAIL = b"tail"
SPOOL = b"spool"
JOB = b"job"
QUESTION = b"question"
LINK = b"link"
VERIFIER = b"verifier"
SESSION = b"session"
COMMITMENT = b"commitment"
IDENTITY = b"identity"
SIGN = b"sign"
X25519 = b"x25519"
MLKEM = b"mlkem"
ANCHOR = b"anchor"
TOKEN = b"token"
SERVICE = b"service"
METAS = b"metas"
GRANT = b"grant"
INVITATION = b"invitation"
ANSWER = b"answer"
CHECK = b"check"
FILE = b"file"

KEY_BYTES = 32
KEY_ID_BYTES = 8
FINGERPRINT_BYTES = 8
UID_BYTES = 16
NONCE_BYTES = 12
MLKEM_SEED_BYTES = 64
#: An invitation's secret, and its words (docs/SPEC.md, section 15.6).
INVITATION_BYTES = 16
INVITATION_WORDS = 12

#: First byte of a page's nonce and associated data. Numbers are never reused.
PAGE_MINI = 1
PAGE_DIRECTORY = 2
PAGE_DATA = 3
PAGE_DUMMY = 4

#: Longest index key of a string that is kept as it is, and the keyed hash after longer ones.
INDEX_KEY_PREFIX = 48
INDEX_KEY_TAIL = 16
INDEX_KEY_BYTES = INDEX_KEY_PREFIX + INDEX_KEY_TAIL
#: Index key of a uuid.
UUID_KEY_BYTES = 16
#: In a column of words: keys of words are from the second on, those of undecided rows from the
#: first on, and those of all other rows below.
UNDECIDED_FROM = 1 << 62
WORDS_FROM = 1 << 63

#: The keyring file (docs/SPEC.md, section 8).
KEYRING_MAGIC = b"ERSKEYRING"
KEYRING_VERSION = 1
WRAP_MACHINE_KEY = 1
WRAP_PASSPHRASE = 2
WRAP_KEYCHAIN = 3
WRAP_VAULT = 4
WRAP_AWS_KMS = 5
WRAP_GOOGLE_KMS = 6
WRAP_AZURE_KEY_VAULT = 7
WRAP_PKCS11 = 8
#: Wrappings under a key that a service decrypts, by the service.
WRAP_SERVICES = (WRAP_VAULT, WRAP_AWS_KMS, WRAP_GOOGLE_KMS, WRAP_AZURE_KEY_VAULT, WRAP_PKCS11)
#: Stands for the owner of a keyring file that leaves the proxy as a backup.
NO_OWNER = bytes(16)
COMMITMENT_BYTES = 32
SALT_BYTES = 16
#: A recovery phrase (section 8.1).
PHRASE_WORDS = 24
#: Most that a reader derives a key with; more would let a hostile file exhaust the machine.
ARGON2_MEMORY_KIB = range(8_192, 1_048_576 + 1)
ARGON2_PASSES = range(1, 16 + 1)
ARGON2_LANES = range(1, 16 + 1)
#: KiB times passes: five times what a writer spends. Derivations wait for one another.
ARGON2_WORK = 1_048_576

#: The spool file (docs/SPEC.md, section 11).
SPOOL_MAGIC = b"ERSSPOOL"
SPOOL_VERSION = 1
#: Contents of a spool file. Numbers are never reused.
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
