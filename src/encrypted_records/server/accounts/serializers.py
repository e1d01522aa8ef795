"""What the account endpoints take. Passwords are taken as they are, spaces included."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError as DjangoValidationError
from django.db import transaction
from rest_framework import serializers
from rest_framework_simplejwt.exceptions import TokenError
from rest_framework_simplejwt.serializers import (
    TokenObtainPairSerializer,
    TokenRefreshSerializer,
    TokenVerifySerializer,
)
from rest_framework_simplejwt.settings import api_settings
from rest_framework_simplejwt.tokens import Token, UntypedToken
from rest_framework_simplejwt.utils import get_md5_hash_password
from rest_registration.exceptions import UserNotFound

from encrypted_records.model import ids
from encrypted_records.server.accounts.models import User


class PasswordField(serializers.CharField):
    def __init__(self, **options: Any) -> None:
        options |= {"trim_whitespace": False, "write_only": True, "max_length": 1024}
        super().__init__(**options)


def check_new_password(password: str, user: User | None) -> None:
    try:
        validate_password(password, user=user)
    except DjangoValidationError as error:
        details = [serializers.ErrorDetail(e.messages[0], code=e.code) for e in error.error_list]
        raise serializers.ValidationError({"password": details}) from None


def check_same(attrs: dict[str, Any]) -> None:
    if attrs["password"] != attrs["password_confirm"]:
        raise serializers.ValidationError(
            {"password_confirm": "differs from password"}, code="password_mismatch"
        )


class RegisterSerializer(serializers.Serializer[Any]):
    email = serializers.EmailField(max_length=254)
    password = PasswordField()
    password_confirm = PasswordField()
    organization_name = serializers.CharField(max_length=200)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        check_same(attrs)
        check_new_password(attrs["password"], User(email=attrs["email"]))
        return attrs


class LoginSerializer(serializers.Serializer[Any]):
    email = serializers.CharField(max_length=254)
    password = PasswordField()


class SignedLinkSerializer(serializers.Serializer[Any]):
    user_id = serializers.CharField(max_length=100)
    timestamp = serializers.IntegerField(min_value=0, max_value=2**40)
    signature = serializers.CharField(max_length=200)


class ResetPasswordSerializer(SignedLinkSerializer):
    password = PasswordField()

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        try:
            user = User.objects.filter(pk=attrs["user_id"]).first()
        except ValueError:
            user = None
        check_new_password(attrs["password"], user)
        return attrs


class ChangePasswordSerializer(serializers.Serializer[Any]):
    old_password = PasswordField()
    password = PasswordField()
    password_confirm = PasswordField()

    def validate_old_password(self, value: str) -> str:
        if not self.context["request"].user.check_password(value):
            raise serializers.ValidationError("is not the present password", code="wrong_password")
        return value

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        check_same(attrs)
        check_new_password(attrs["password"], self.context["request"].user)
        return attrs


class EmailSerializer(serializers.Serializer[Any]):
    email = serializers.EmailField(max_length=254)


def find_by_email(data: dict[str, Any], **_: Any) -> User:
    """Who may get a reset link: whoever could log in."""
    user = User.objects.with_email(data["email"]).filter(is_active=True).first()
    if user is None:
        raise UserNotFound
    return user


class UserSerializer(serializers.ModelSerializer[User]):
    id = serializers.CharField(read_only=True)
    organizations = serializers.SerializerMethodField()

    class Meta:
        model = User
        fields = ["id", "url", "email", "first_name", "last_name", "organizations", "date_joined"]
        read_only_fields = fields

    def get_organizations(self, user: User) -> list[str]:
        found = user.memberships.order_by("organization_id").values_list(
            "organization_id", flat=True
        )
        return [ids.reference("organizations", identifier) for identifier in found]


# --- tokens -------------------------------------------------------------------------------


def check_holder(token: Token) -> User:
    """The user whom a token stands for.

    Raises:
        TokenError: gone or deactivated, or the password was changed since.
    """
    user = User.objects.filter(pk=token.get(api_settings.USER_ID_CLAIM), is_active=True).first()
    if user is None or token.get(api_settings.REVOKE_TOKEN_CLAIM) != get_md5_hash_password(
        user.password
    ):
        raise TokenError("the token was revoked")
    return user


class ObtainSerializer(TokenObtainPairSerializer):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["password"] = PasswordField()


class RefreshSerializer(TokenRefreshSerializer):
    """The library's, which does not look at the password claim and forgives two at once."""

    def validate(self, attrs: dict[str, Any]) -> dict[str, str]:
        user = check_holder(self.token_class(attrs["refresh"]))
        with transaction.atomic():
            User.objects.select_for_update().get(pk=user.pk)
            rotated: dict[str, str] = super().validate(attrs)
            return rotated


class VerifySerializer(TokenVerifySerializer):
    def validate(self, attrs: dict[str, Any]) -> dict[Any, Any]:
        try:
            super().validate(attrs)
        except serializers.ValidationError:  # the library's answer to a revoked token
            raise TokenError("the token was revoked") from None
        check_holder(UntypedToken(attrs["token"]))
        return {}
