"""Hashing of account passwords: Argon2id (RFC 9106), in one of two strengths.

A hash contains its parameters, so the strength may change at any time: a hash of the other strength
still verifies, and is replaced when its password is next used.
"""

from django.contrib.auth.hashers import Argon2PasswordHasher


class Standard(Argon2PasswordHasher):
    """100 MiB and eight lanes per password check: Django's choice."""


class Light(Argon2PasswordHasher):
    """19 MiB, two passes, one lane: the least that OWASP's Password Storage Cheat Sheet accepts.

    For machines where several logins at once would not fit into memory.
    """

    time_cost = 2
    memory_cost = 19 * 1024
    parallelism = 1
