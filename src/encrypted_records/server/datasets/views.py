"""Datasets and schemas: their whole life.

A schema's row is locked before its definition changes or it goes, as commits lock it, so no
record is ever sealed under a definition that was replaced meanwhile.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar, cast

from django.db import IntegrityError, transaction
from django.db.models import Model, QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import serializers, viewsets
from rest_framework.request import Request

from encrypted_records.errors import BadInput, Conflict, Flaw
from encrypted_records.model import ids
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.server import access
from encrypted_records.server.accounts.job_tokens import JobToken
from encrypted_records.server.accounts.models import User
from encrypted_records.server.datasets import changes
from encrypted_records.server.datasets.models import Dataset, Schema
from encrypted_records.server.datasets.serializers import DatasetSerializer, SchemaSerializer
from encrypted_records.server.fields import identifier
from encrypted_records.server.formats import RawDefinitionParser
from encrypted_records.server.openapi import BY_ID
from encrypted_records.server.organizations import audit
from encrypted_records.server.organizations.audit import Action
from encrypted_records.server.records import store
from encrypted_records.server.slugs import free_slug, random_slug

M = TypeVar("M", bound=Model)
_SLUG_ATTEMPTS = 5


class _Collection(viewsets.ModelViewSet[M]):
    """What both collections share: who reaches what, filters, slugs, locking."""

    #: query parameter -> (collection it refers to or None for plain text, lookup)
    filters: dict[str, tuple[str | None, str]] = {}
    #: what one is called: in slugs of nameless ones, and in the audit log
    kind: str

    @abstractmethod
    def siblings(self, data: dict[str, Any]) -> QuerySet[Any]:
        """Whatever has a slug in the parent that a new resource names."""

    @abstractmethod
    def organization_id(self, row: M) -> str: ...

    def note(self, verb: str, row: M) -> None:
        path = ids.reference(f"{self.kind}s", row.pk)
        audit.note(self.user, Action(f"{self.kind}.{verb}"), self.organization_id(row), path)

    @property
    def user(self) -> User:
        return cast(User, self.request.user)

    def reachable(self, collection: str) -> QuerySet[Any]:
        return {"organizations": access.organizations, "datasets": access.datasets}[collection](
            self.user
        )

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "reachable": self.reachable}

    def get_object(self) -> M:
        return access.find(self.get_queryset(), self.kwargs["pk"])

    def filter_queryset(self, queryset: QuerySet[M, Any]) -> QuerySet[M, Any]:
        for name, (collection, lookup) in self.filters.items():
            wanted = self.request.query_params.get(name)
            if wanted is None:
                continue
            if collection is not None:
                wanted = identifier(self.request, wanted, collection, pointer=name)
            elif "\0" in wanted:
                raise BadInput(
                    "a filter is not valid",
                    flaws=(Flaw("null_characters_not_allowed", "holds NUL", field=name),),
                )
            queryset = queryset.filter(**{lookup: wanted})
        return queryset

    def update(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        with transaction.atomic():
            return super().update(request, *args, **kwargs)

    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        with transaction.atomic():
            return super().destroy(request, *args, **kwargs)

    @property
    def cascade(self) -> bool:
        return self.request.query_params.get("cascade") == "true"

    def store(self, serializer: serializers.BaseSerializer[Any], **extra: Any) -> None:
        """Save, with a free slug where none is given.

        Raises:
            Conflict: ``slug_taken``.
        """
        data = cast(dict[str, Any], serializer.validated_data)
        if serializer.instance is not None or "slug" in data:
            self._try(serializer, extra)
            return
        for attempt in range(_SLUG_ATTEMPTS):
            # Who loses more than one race stops counting along with the others.
            make = free_slug if attempt <= 1 else random_slug
            extra["slug"] = make(self.siblings(data), data["name"], self.kind)
            try:
                self._try(serializer, extra)
            except Conflict:  # somebody took it this moment
                if attempt == _SLUG_ATTEMPTS - 1:
                    raise
            else:
                return

    def _try(self, serializer: serializers.BaseSerializer[Any], extra: dict[str, Any]) -> None:
        verb = "created" if serializer.instance is None else "changed"
        try:
            with transaction.atomic():
                self.note(verb, serializer.save(**extra))
        except IntegrityError:
            raise Conflict(
                "another one beside it has this slug",
                code="slug_taken",
                hint="choose another slug, or leave it out to have one made",
                flaws=(Flaw("slug_taken", "is taken", pointer="/slug"),),
            ) from None


def _filtered_by(*names: str) -> Callable[[Any], Any]:
    """Describe a collection's query parameters."""
    cascade = OpenApiParameter("cascade", bool, description="delete what is in it, too")
    return extend_schema_view(
        list=extend_schema(parameters=[OpenApiParameter(name, str) for name in names]),
        destroy=extend_schema(parameters=[cascade]),
    )


@BY_ID
@_filtered_by("organization", "slug", "name")
class Datasets(_Collection[Dataset]):
    serializer_class = DatasetSerializer
    queryset = Dataset.objects.none()
    filters = {
        "organization": ("organizations", "organization"),
        "slug": (None, "slug"),
        "name": (None, "name"),
    }
    kind = "dataset"

    def siblings(self, data: dict[str, Any]) -> QuerySet[Any]:
        return Dataset.objects.filter(organization=data["organization"])

    def organization_id(self, row: Dataset) -> str:
        return row.organization_id

    def get_queryset(self) -> QuerySet[Dataset]:
        return access.datasets(self.user)

    def perform_create(self, serializer: serializers.BaseSerializer[Any]) -> None:
        self.store(serializer)

    def perform_update(self, serializer: serializers.BaseSerializer[Any]) -> None:
        dataset = cast(Dataset, serializer.instance)
        wanted = serializer.validated_data.get("organization")
        if wanted is not None and wanted.pk != dataset.organization_id:
            raise _fixed_organization("/organization")
        self.store(serializer)

    def perform_destroy(self, instance: Dataset) -> None:
        if instance.schemas.exists():
            if not self.cascade:
                raise Conflict(
                    "the dataset has schemas",
                    code="dataset_not_empty",
                    hint="delete them first, or repeat with ?cascade=true",
                )
            for schema in instance.schemas.select_for_update():
                erase(schema)
        self.note("deleted", instance)
        instance.delete()


@BY_ID
@_filtered_by("organization", "dataset", "slug", "name")
class Schemas(_Collection[Schema]):
    serializer_class = SchemaSerializer
    queryset = Schema.objects.none()
    parser_classes = [RawDefinitionParser]
    filters = {
        "organization": ("organizations", "dataset__organization"),
        "dataset": ("datasets", "dataset"),
        "slug": (None, "slug"),
        "name": (None, "name"),
    }
    kind = "schema"

    def siblings(self, data: dict[str, Any]) -> QuerySet[Any]:
        return Schema.objects.filter(dataset=data["dataset"])

    def organization_id(self, row: Schema) -> str:
        return row.dataset.organization_id

    def get_queryset(self) -> QuerySet[Schema]:
        return access.schemas(self.user)

    def get_object(self) -> Schema:
        reached = self.get_queryset()
        if self.request.method in ("PUT", "PATCH", "DELETE"):
            reached = reached.select_for_update(of=("self",))
        return access.find(reached, self.kwargs["pk"])

    def get_authenticators(self) -> list[Any]:
        # A job reads the definition of a schema, and has no other business here.
        one = self.request is not None and self.request.method == "GET" and "pk" in self.kwargs
        return [*([JobToken()] if one else []), *super().get_authenticators()]

    def perform_create(self, serializer: serializers.BaseSerializer[Any]) -> None:
        self.store(serializer)

    def perform_update(self, serializer: serializers.BaseSerializer[Any]) -> None:
        schema = cast(Schema, serializer.instance)
        data = serializer.validated_data
        wanted = data.get("dataset")
        if wanted is not None and wanted.organization_id != schema.dataset.organization_id:
            raise _fixed_organization("/dataset")
        if "definition" in data and schema.version > 0:
            changes.refuse_breaking(schema.parsed(), parse_definition(data["definition"]))
        self.store(serializer)

    def perform_destroy(self, instance: Schema) -> None:
        if instance.live_rows and not self.cascade:
            raise Conflict(
                "the schema has records",
                code="schema_not_empty",
                hint="delete them first, or repeat with ?cascade=true",
            )
        self.note("deleted", instance)
        erase(instance)


def erase(schema: Schema) -> None:
    """Delete a locked schema with its records."""
    store.erase(schema.uid)
    schema.delete()


def _fixed_organization(pointer: str) -> Conflict:
    detail = "records are sealed for their organization and cannot move to another"
    return Conflict(
        detail,
        code="organization_fixed",
        flaws=(Flaw("organization_fixed", detail, pointer=pointer),),
    )
