"""Every version byte, label and length of the sealed formats, in one place (docs/SPEC.md).

The derivation tree; each arrow is HKDF-Expand with SHA-256 (RFC 5869, section 2.3) and the info
string that :func:`info` makes of the label and the values next to it::

    root[kv]                       32 random bytes, one per keyring version kv
     ├─ "fingerprint"              8 bytes that identify the root key to people
     ├─ "verifier"                 32 bytes by which a proxy recognises a key's words
     ├─ "identity" "sign"   org, member, kv   Ed25519 seed
     ├─ "identity" "x25519" org, member, kv   X25519 private key
     ├─ "identity" "mlkem"  org, member, kv   ML-KEM-768 seed, 64 bytes
     ├─ "anchor" org, member, kv   K_anchor HMAC-SHA256 over an organization's first entry
     ├─ "token"  member            a service account's token at the API, 32 bytes
     ├─ "job" job, kv              K_job    AES-256-GCM, the proxy's data of a job
     ├─ "question" id, kv          K_question AES-256-GCM, a saved query
     ├─ "spool" upload, kv         K_spool
     │   └─ "session" salt         K_session AES-256-GCM, the data of one append
     └─ "schema" org, schema, kv   K_schema
         ├─ "id"                   key id, 8 bytes, known to the API
         ├─ "log"                  K_log    HMAC-SHA256 of commits
         ├─ "ledger"               K_ledger AES-256-GCM, the proxy's data of a log
         ├─ "checkpoint"           K_checkpoint HMAC-SHA256 of checkpoints
         ├─ "uid"                  K_uid    HMAC-SHA256 that hedges uids
         ├─ "cover"                K_cover  HMAC-SHA256 that draws cover rows and pages
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

The extract step of HKDF is omitted: every input key is already uniform (RFC 5869, section 3.3).
"""

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

#: Longest index key of a string that is stored in full, and the keyed hash after longer ones.
INDEX_KEY_PREFIX = 48
INDEX_KEY_TAIL = 16
INDEX_KEY_BYTES = INDEX_KEY_PREFIX + INDEX_KEY_TAIL
#: Index key of a uuid.
UUID_KEY_BYTES = 16
#: In a column of words: keys of words start at ``WORDS_FROM``, keys of undecided rows at
#: ``UNDECIDED_FROM``, and keys of all other rows are below.
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
#: Wrappings under a key of an external service, which decrypts it.
WRAP_SERVICES = (WRAP_VAULT, WRAP_AWS_KMS, WRAP_GOOGLE_KMS, WRAP_AZURE_KEY_VAULT, WRAP_PKCS11)
#: Stands for the owner of a keyring file that is exported from the proxy as a backup.
NO_OWNER = bytes(16)
COMMITMENT_BYTES = 32
SALT_BYTES = 16
#: A recovery phrase (section 8.1).
PHRASE_WORDS = 24
#: Limits for readers of key derivation parameters; more would let a hostile file exhaust the
#: machine.
ARGON2_MEMORY_KIB = range(8_192, 1_048_576 + 1)
ARGON2_PASSES = range(1, 16 + 1)
ARGON2_LANES = range(1, 16 + 1)
#: KiB times passes: five times what a writer uses. Derivations run one at a time.
ARGON2_WORK = 1_048_576

#: The spool file (docs/SPEC.md, section 11).
SPOOL_MAGIC = b"ERSSPOOL"
SPOOL_VERSION = 1
#: Contents of a spool file. Numbers are never reused.
SPOOL_PLAIN = 1
SPOOL_JOINED = 2
SPOOL_NOTE = 3
#: The byte before a session's salt, and the byte before a frame.
SPOOL_SESSION = 1
SPOOL_FRAME = 2
SPOOL_SALT_BYTES = 32
#: Maximum plaintext bytes in a frame.
SPOOL_FRAME_BYTES = 1 << 18
SPOOL_SESSION_FRAMES = 1 << 20
