"""What the account endpoints take. Passwords are taken as they are, spaces included."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError as DjangoValidationError
from rest_framework import serializers

from encrypted_records.model import ids
from encrypted_records.server.accounts.models import User
from encrypted_records.server.organizations.models import Membership
from encrypted_records.server.prepared import Prepared


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

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        check_same(attrs)
        check_new_password(attrs["password"], self.context["request"].user)
        return attrs


class EmailSerializer(serializers.Serializer[Any]):
    email = serializers.EmailField(max_length=254)


_organizations_of = Prepared(
    lambda: Membership.objects.order_by("organization_id").values_list("organization_id"),
    "organizations_membership.user_id",
)


class UserSerializer(serializers.ModelSerializer[User]):
    id = serializers.CharField(read_only=True)
    organizations = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = User
        fields = ["id", "url", "email", "first_name", "last_name", "organizations", "date_joined"]
        read_only_fields = fields

    def to_representation(self, instance: User) -> dict[str, Any]:
        """Without the fields above, which describe it: proxies ask this for each caller."""
        reached = _organizations_of.rows(ids.from_text(instance.pk))
        return {
            "id": instance.pk,
            "url": instance.url,
            "email": instance.email,
            "first_name": instance.first_name,
            "last_name": instance.last_name,
            "organizations": [ids.reference("organizations", one) for (one,) in reached],
            "date_joined": instance.date_joined,
        }


class RefreshSerializer(serializers.Serializer[Any]):
    refresh = serializers.CharField(max_length=4096)


class VerifySerializer(serializers.Serializer[Any]):
    token = serializers.CharField(max_length=4096)
