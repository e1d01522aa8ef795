"""Bodies of the account endpoints. Passwords are taken as they are, spaces included; they are
compared and judged in NFC.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError as DjangoValidationError
from rest_framework import serializers

from encrypted_records.model import ids
from encrypted_records.model.texts import normalized
from encrypted_records.server import sql
from encrypted_records.server.accounts.models import User
from encrypted_records.server.accounts.passwords import MAX_ADDRESS
from encrypted_records.server.db.statements import Statement
from encrypted_records.server.http.parameters import KnownMembers, TextField


class PasswordField(TextField):
    def __init__(self, **options: Any) -> None:
        options |= {"trim_whitespace": False, "write_only": True, "max_length": 1024}
        super().__init__(**options)


def check_new_password(password: str, user: User | None) -> None:
    try:
        validate_password(normalized("NFC", password), user=user)
    except DjangoValidationError as error:
        details = [serializers.ErrorDetail(e.messages[0], code=e.code) for e in error.error_list]
        raise serializers.ValidationError({"password": details}) from None


def check_same(attrs: dict[str, Any]) -> None:
    first, second = (normalized("NFC", attrs[name]) for name in ("password", "password_confirm"))
    if first != second:
        raise serializers.ValidationError(
            {"password_confirm": "differs from password"}, code="password_mismatch"
        )


class RegisterSerializer(KnownMembers):
    email = serializers.EmailField(max_length=MAX_ADDRESS)
    password = PasswordField()
    password_confirm = PasswordField()
    organization_name = TextField(max_length=200, allow_blank=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        check_same(attrs)
        check_new_password(attrs["password"], User(email=attrs["email"]))
        return attrs


class CodeField(TextField):
    """A code of the second factor, or a recovery code; needed where the account has one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"max_length": 64, "write_only": True} | options)


class LoginSerializer(KnownMembers):
    email = TextField(max_length=MAX_ADDRESS)
    password = PasswordField()
    code = CodeField(required=False, allow_blank=True)


class PasswordSerializer(KnownMembers):
    password = PasswordField()
    code = CodeField(required=False, allow_blank=True)


class ChangeEmailSerializer(PasswordSerializer):
    email = serializers.EmailField(max_length=MAX_ADDRESS)


class DeleteAccountSerializer(PasswordSerializer):
    """``unsigned``: also where a roster has the person, who then stays there until an owner removes
    them."""

    unsigned = serializers.BooleanField(default=False)


class CodeSerializer(KnownMembers):
    code = CodeField()


class SignedLinkSerializer(KnownMembers):
    user_id = TextField(max_length=100)
    timestamp = serializers.IntegerField(min_value=0, max_value=2**40)
    signature = TextField(max_length=200)


class ResetPasswordSerializer(SignedLinkSerializer):
    """The password is judged once the link is: it must not be like the user's name or address."""

    password = PasswordField()


class ChangePasswordSerializer(KnownMembers):
    old_password = PasswordField()
    password = PasswordField()
    password_confirm = PasswordField()
    code = CodeField(required=False, allow_blank=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        check_same(attrs)
        check_new_password(attrs["password"], self.context["request"].user)
        return attrs


class EmailSerializer(KnownMembers):
    email = serializers.EmailField(max_length=MAX_ADDRESS)


_organizations_of = Statement(sql.ORGANIZATIONS)


class UserSerializer(serializers.ModelSerializer[User]):
    id = serializers.CharField(read_only=True)
    organizations = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = User
        fields = ["id", "url", "email", "first_name", "last_name", "organizations", "date_joined"]
        read_only_fields = fields

    def to_representation(self, instance: User) -> dict[str, Any]:
        """Without the fields above, which describe it: proxies ask this for each caller."""
        rows = _organizations_of.rows(account=ids.from_text(instance.pk))
        reached = [ids.to_text(bytes(organization)) for (organization,) in rows]
        token = instance.acting
        if token is not None and token.limited:
            within = set(token.datasets.values_list("organization_id", flat=True))
            reached = [organization for organization in reached if organization in within]
        return {
            "id": instance.pk,
            "url": instance.url,
            "email": instance.email,
            "first_name": instance.first_name,
            "last_name": instance.last_name,
            "organizations": [
                ids.reference("organizations", organization) for organization in reached
            ],
            "date_joined": instance.date_joined,
        }


class RefreshSerializer(KnownMembers):
    refresh = TextField(max_length=4096)


class VerifySerializer(KnownMembers):
    token = TextField(max_length=4096)
