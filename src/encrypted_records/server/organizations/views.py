"""Organizations: list, read, rename."""

from __future__ import annotations

from typing import Any, cast

from django.db.models import QuerySet
from rest_framework import mixins, serializers, viewsets

from encrypted_records.server import access
from encrypted_records.server.accounts.models import User
from encrypted_records.server.openapi import BY_ID
from encrypted_records.server.organizations.models import Organization


class OrganizationSerializer(serializers.ModelSerializer[Organization]):
    id = serializers.CharField(read_only=True)

    class Meta:
        model = Organization
        fields = ["id", "url", "name", "slug", "created", "modified"]
        read_only_fields = ["id", "url", "slug", "created", "modified"]


@BY_ID
class Organizations(
    mixins.ListModelMixin,
    mixins.RetrieveModelMixin,
    mixins.UpdateModelMixin,
    viewsets.GenericViewSet[Organization],
):
    """Whoever registers founds one. Its owners may rename it; the slug stays."""

    serializer_class = OrganizationSerializer
    queryset = Organization.objects.none()

    @property
    def user(self) -> User:
        return cast(User, self.request.user)

    def get_queryset(self) -> QuerySet[Organization]:
        return access.organizations(self.user)

    def get_object(self) -> Organization:
        return access.find(self.get_queryset(), self.kwargs["pk"])

    def perform_update(self, serializer: serializers.BaseSerializer[Any]) -> None:
        access.require_owner(self.user, cast(Organization, serializer.instance))
        serializer.save()
