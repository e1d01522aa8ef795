"""Users: an e-mail address and a password.

An address belongs to the user who proves access to its mail. Until then, any number of
registrations may be pending for the same address, each with its own password; the link that is used
decides which of them becomes the account. Addresses are case-insensitive.

A login is the result of a successful password check: a browser's session, or a refresh token with
all its successors. Sessions and tokens are valid only while their login exists.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.db import models
from django.db.models import Q, QuerySet, Value
from django.db.models.functions import Lower
from django.utils import timezone

from encrypted_records.model import ids
from encrypted_records.model.texts import normalized
from encrypted_records.server.db.fields import ShortIdField, new_id

M = TypeVar("M", bound=models.Model)


def of_address(rows: QuerySet[M, M], email: str) -> QuerySet[M, M]:
    """Rows with this e-mail address; the database folds case on both sides, as its indexes do."""
    matching = rows.alias(folded=Lower("email")).filter(folded=Lower(Value(email)))
    return cast("QuerySet[M, M]", matching)


class UserManager(BaseUserManager["User"]):
    def create_user(self, email: str, password: str, **fields: Any) -> User:
        user = self.model(email=self.normalize_email(email), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def with_email(self, email: str) -> QuerySet[User]:
        return of_address(self.all(), email)

    def unchanged(self, user: User) -> QuerySet[User]:
        """The row of a user, unless its credentials were changed since it was read."""
        return self.filter(
            pk=user.pk,
            email=user.email,
            password=user.password,
            has_second_factor=user.has_second_factor,
            is_active=user.is_active,
        )

    def lock_existing(self, user_id: str) -> bool:
        """Lock an account, which is then not deleted before this transaction ends; returns whether
        it exists. Organizations must be locked first.
        """
        accounts = self.select_for_update(no_key=True)
        return accounts.filter(pk=user_id, deleted=None).first() is not None

    def get_by_natural_key(self, username: str | None) -> User:
        if not username or "\0" in username:  # PostgreSQL cannot store this character in a text
            raise User.DoesNotExist
        return self.with_email(username).get(verified__isnull=False)


class User(AbstractBaseUser):
    id = ShortIdField(primary_key=True, default=new_id, editable=False)
    email = models.EmailField(max_length=254)
    first_name = models.CharField(max_length=150, blank=True, default="")
    last_name = models.CharField(max_length=150, blank=True, default="")
    #: when the link in the first message was used; the user cannot log in before
    verified = models.DateTimeField(null=True, editable=False)
    #: set by that link, cleared to deactivate an account; no link sets it again
    is_active = models.BooleanField(default=False)
    date_joined = models.DateTimeField(default=timezone.now, editable=False)
    #: whether a login needs more than the password; see :mod:`.passwords`
    has_second_factor = models.BooleanField(default=False, editable=False)
    #: when its holder deleted the account; only the id is left
    deleted = models.DateTimeField(null=True, editable=False)

    #: the API token of the request, or the token that began its job; its limits apply to the user
    acting: ApiToken | None = None

    objects = UserManager()

    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"
    REQUIRED_FIELDS = []

    class Meta:
        constraints = [
            models.UniqueConstraint(
                Lower("email"),
                condition=Q(verified__isnull=False),
                name="verified_email_unique_in_any_case",
            )
        ]

    @property
    def url(self) -> str:
        return ids.reference("users", self.id)

    def set_password(self, raw_password: str | None) -> None:
        """Store a hash of the password in NFC: keyboards spell the same letters differently."""
        super().set_password(raw_password and normalized("NFC", raw_password))

    # For Django's admin. The settings name the operators, so that no row of the database can make
    # one.

    @property
    def is_staff(self) -> bool:
        # Only ASCII: other letters may look like an operator's to one comparison and not to
        # another.
        named = self.email.isascii() and self.email.lower() in settings.OPERATORS
        return named and self.is_active

    def has_perm(self, _permission: str, _obj: object = None) -> bool:
        return self.is_staff

    def has_module_perms(self, _app: str) -> bool:
        return self.is_staff


class Login(models.Model):
    id = ShortIdField(primary_key=True, default=new_id, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="logins")
    created = models.DateTimeField(default=timezone.now, editable=False)
    expires = models.DateTimeField()
    #: SHA-256 of the secret in sessions and tokens of this login
    digest = models.BinaryField(max_length=32)
    #: SHA-256 of the refresh token that may be used next; empty for a session
    refresh = models.BinaryField(max_length=32, default=b"")
    #: SHA-256 of the previous refresh token, and when it was used
    refresh_before = models.BinaryField(max_length=32, default=b"")
    refreshed = models.DateTimeField(null=True)


class SecondFactor(models.Model):
    """The key of a user's authenticator app, which is active once the user has sent a code of
    it.
    """

    user = models.OneToOneField(
        User, on_delete=models.CASCADE, primary_key=True, related_name="second_factor"
    )
    #: the app's key is derived from this and ``secret.key``
    seed = models.BinaryField(max_length=20)
    #: the half minute, counted from 1970, of the last accepted code: no code is accepted twice
    step = models.BigIntegerField(default=0)

    class Meta:
        db_table = "second_factor"


class RecoveryCode(models.Model):
    """A recovery code, which replaces the authenticator app once."""

    #: SHA-256 of the code
    digest = models.BinaryField(primary_key=True, max_length=32)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="recovery_codes")

    class Meta:
        db_table = "recovery_code"


class Link(models.Model):
    """A signed link that was sent in a message and is not used yet.

    ``new_address`` is the address that it proves for the account; empty for other kinds of links,
    which are sent to the account's address.
    """

    #: SHA-256 of the link's ``signature``
    digest = models.BinaryField(primary_key=True, max_length=32)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="links")
    expires = models.DateTimeField(db_index=True)
    new_address = models.EmailField(max_length=254, default="", editable=False)


class Tally(models.Model):
    """A count that expires, for limits; its key is an HMAC of what it counts."""

    name = models.BinaryField(max_length=32, primary_key=True)
    count = models.IntegerField(default=0)
    #: all attempts are refused before this time
    until = models.DateTimeField(null=True)
    #: the count is zero from this time on
    forgotten = models.DateTimeField(db_index=True)


class ApiToken(models.Model):
    """A person's token for a program; see :mod:`.authentication`."""

    id = ShortIdField(primary_key=True, default=new_id, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    #: SHA-256 of the token
    digest = models.BinaryField(max_length=32, unique=True)
    writes = models.BooleanField()
    #: whether it reaches only the datasets below, which may all be deleted
    limited = models.BooleanField()
    datasets = models.ManyToManyField("datasets.Dataset", related_name="+")
    created = models.DateTimeField(default=timezone.now, editable=False)
    expires = models.DateTimeField()
    #: in UTC
    last_used = models.DateField(null=True)

    class Meta:
        db_table = "api_token"

    @property
    def url(self) -> str:
        return ids.reference("tokens", self.id)


class JobGrant(models.Model):
    """A grant to go on with a job for this user, for the bearer of its token; see
    :mod:`.authentication`.
    """

    digest = models.BinaryField(primary_key=True, max_length=32)
    user = models.ForeignKey(User, on_delete=models.CASCADE)
    job = models.BinaryField(max_length=16)
    #: changes with the user's password and with ``secret.key``
    seal = models.CharField(max_length=128)
    #: digest of the user's stored password hash: changes only with the password
    password_digest = models.BinaryField(max_length=32, default=b"")
    expires = models.DateTimeField()
    #: the API token that began the job, whose limits apply to it; null once it is revoked
    api_token = models.ForeignKey(ApiToken, null=True, on_delete=models.SET_NULL)
    #: whether an API token began the job, even if revoked since
    is_limited = models.BooleanField(default=False)

    class Meta:
        db_table = "job_grant"
        constraints = [models.UniqueConstraint("user", "job", name="job_grant_job")]
