"""Endpoints of datasets and schemas.

A schema's row is locked before its definition changes or it is deleted. Commits lock it too, so no
record is ever sealed under a definition that was replaced meanwhile.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import msgspec
from django.db import IntegrityError, transaction
from django.db.models import Model, QuerySet
from drf_spectacular.utils import (
    OpenApiParameter,
    extend_schema,
    extend_schema_field,
    extend_schema_view,
)
from rest_framework import serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from encrypted_records.errors import BadInput, Conflict, Flaw, NotAllowed, PreconditionFailed
from encrypted_records.model import ids, resources
from encrypted_records.model.definition_changes import refuse_reserved
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.server import permissions
from encrypted_records.server.accounts.authentication import CHANGES, CHANGES_ALL, READS, JobToken
from encrypted_records.server.accounts.models import User
from encrypted_records.server.datasets.models import Dataset, Schema
from encrypted_records.server.db.fields import (
    MAX_SLUG,
    ReferenceField,
    free_slug,
    identifier,
    random_slug,
)
from encrypted_records.server.erasure import removing
from encrypted_records.server.http.bodies import (
    KnownMembers,
    RawDefinitionParser,
    Shown,
    SlugField,
    TextField,
)
from encrypted_records.server.http.openapi import BY_ID, BY_SLUG
from encrypted_records.server.organizations import audit
from encrypted_records.server.organizations.models import DatasetKey, Place
from encrypted_records.server.organizations.roster_data import placed_elsewhere

# Datasets and schemas as requests write them and responses show them.


@extend_schema_field(resources.DEFINITION)
class DefinitionField(serializers.Field[Any, Any, msgspec.Raw, Any]):
    """A definition as the text it was sent as: kept, and given back, to the letter."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        text = bytes(data).decode()
        parsed = parse_definition(text)
        return {
            "definition": text,
            "canonical": parsed.canonical.decode(),
            "definition_digest": parsed.digest,
        }


class _Common(Shown, KnownMembers, serializers.ModelSerializer[Any]):
    name = TextField(max_length=200)
    slug = SlugField(max_length=MAX_SLUG, required=False)
    description = TextField(max_length=100_000, allow_blank=True, trim_whitespace=False, default="")


class DatasetSerializer(_Common):
    structure = resources.DatasetResource
    organization = ReferenceField("organizations")

    class Meta:
        model = Dataset
        fields = ["name", "slug", "description", "organization"]
        # The database checks uniqueness; see the views.
        validators: list[Any] = []

    def to_representation(self, instance: Dataset) -> Any:
        return resources.DatasetResource(
            id=instance.id,
            url=instance.url,
            name=instance.name,
            slug=instance.slug,
            description=instance.description,
            organization=ids.reference("organizations", instance.organization_id),
            created=instance.created,
            modified=instance.modified,
        )


class SchemaSerializer(_Common):
    structure = resources.SchemaResource
    dataset = ReferenceField("datasets")
    schema = DefinitionField(source="definition")

    class Meta:
        model = Schema
        fields = ["name", "slug", "description", "dataset", "schema"]
        validators: list[Any] = []

    def to_representation(self, instance: Schema) -> Any:
        return resources.SchemaResource(
            id=instance.id,
            url=instance.url,
            name=instance.name,
            slug=instance.slug,
            description=instance.description,
            dataset=ids.reference("datasets", instance.dataset_id),
            schema=msgspec.Raw(instance.definition.encode()),
            organization=ids.reference("organizations", instance.dataset.organization_id),
            key_id=None if instance.key_id is None else bytes(instance.key_id).hex(),
            key_version=instance.key_version,
            first_key_version=instance.first_key_version,
            created=instance.created,
            modified=instance.modified,
        )

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        values: dict[str, Any] = super().to_internal_value(data)
        definition = values.pop("definition", None)
        return values if definition is None else values | definition


M = TypeVar("M", bound=Model)
_SLUG_ATTEMPTS = 5


class _Collection(viewsets.ModelViewSet[M]):
    """Shared behaviour of both collections: reach, filters, slugs, locking."""

    #: query parameter -> (collection of the resource it names, or None for plain text; lookup)
    filters: dict[str, tuple[str | None, str]] = {}
    #: the name of the resource: in default slugs, and in the audit log
    kind: str

    @abstractmethod
    def siblings(self, data: dict[str, Any]) -> QuerySet[Any]:
        """Resources with a slug in the parent that a new resource names."""

    @abstractmethod
    def organization_id(self, row: M) -> str: ...

    @abstractmethod
    def facts(self, row: M) -> list[str]:
        """Values that a change of the row can change; its entity tag is derived from them."""

    @abstractmethod
    def require_deleter(self, row: M) -> None:
        """
        Raises:
            NotAllowed: the user may not delete the row and its content.
        """

    def note(self, verb: str, row: M) -> None:
        path = ids.reference(f"{self.kind}s", row.pk)
        audit.note(self.user, audit.Action(f"{self.kind}.{verb}"), self.organization_id(row), path)

    @property
    def user(self) -> User:
        return cast(User, self.request.user)

    def reachable(self, collection: str) -> QuerySet[Any]:
        return {"organizations": permissions.organizations, "datasets": permissions.datasets}[
            collection
        ](self.user)

    def get_authenticators(self) -> list[Any]:
        # A job reads a schema and its dataset, and may do nothing else here.
        reads_one = (
            self.request is not None and self.request.method == "GET" and "pk" in self.kwargs
        )
        return [*([JobToken()] if reads_one else []), *super().get_authenticators()]

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "reachable": self.reachable}

    def get_object(self) -> M:
        return permissions.find(self.get_queryset(), self.kwargs["pk"])

    def filter_queryset(self, queryset: QuerySet[M, Any]) -> QuerySet[M, Any]:
        for name, (collection, lookup) in self.filters.items():
            wanted = self.request.query_params.get(name)
            if wanted is None:
                continue
            if collection is not None:
                wanted = identifier(self.request, wanted, collection, parameter=name)
            elif "\0" in wanted:
                raise BadInput(
                    "a filter is not valid",
                    flaws=(Flaw("null_characters_not_allowed", "contains NUL", parameter=name),),
                )
            queryset = queryset.filter(**{lookup: wanted})
        return queryset

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """``Allow`` has DELETE for those to whom it would not be refused."""
        row = self.get_object()
        try:
            self.require_deleter(row)
        except NotAllowed:
            left = [method for method in self.allowed_methods if method != "DELETE"]
            self.headers["Allow"] = ", ".join(left)
        return Response(self.get_serializer(row).data, headers={"ETag": self._tag(row)})

    def update(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        with transaction.atomic():
            response = super().update(request, *args, **kwargs)
            response.headers["ETag"] = self._tag(self.get_object())
            return response

    def get_success_headers(self, data: Any) -> dict[str, str]:
        return {"Location": data.url}

    def _tag(self, row: M) -> str:
        facts = msgspec.json.encode(self.facts(row))
        return f'"{hashlib.sha256(facts).hexdigest()[:32]}"'

    def require_match(self, row: M) -> None:
        """
        Raises:
            PreconditionFailed: no entity tag in If-Match is the row's (RFC 9110, section 13.1.1).
        """
        wanted = self.request.headers.get("If-Match", "").strip()
        tags = [tag.strip() for tag in wanted.split(",")]
        if wanted and wanted != "*" and self._tag(row) not in tags:
            raise PreconditionFailed(
                f"the {self.kind} was changed after it was read",
                hint=f"read the {self.kind} again, and repeat the change if it still makes sense",
            )

    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        with transaction.atomic():
            return super().destroy(request, *args, **kwargs)

    @property
    def cascade(self) -> bool:
        return self.request.query_params.get("cascade") == "true"

    def store(self, serializer: serializers.BaseSerializer[Any], **extra: Any) -> None:
        """Save, with a free slug if none is given.

        Raises:
            Conflict: ``slug_taken``.
        """
        data = cast(dict[str, Any], serializer.validated_data)
        if serializer.instance is not None or "slug" in data:
            self._try(serializer, extra)
            return
        for attempt in range(_SLUG_ATTEMPTS):
            # After losing two races, draw a random slug instead of counting along with the others.
            make = free_slug if attempt <= 1 else random_slug
            extra["slug"] = make(self.siblings(data), data["name"], self.kind)
            try:
                self._try(serializer, extra)
            except Conflict:  # another request took the slug just now
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
                f"a {self.kind} with this slug already exists",
                code="slug_taken",
                hint="choose another slug, or leave it out to have one created",
                flaws=(Flaw("slug_taken", "is already used", pointer="/slug"),),
            ) from None


def _filtered_by(*names: str) -> Callable[[Any], Any]:
    """Describe a collection's query parameters."""
    cascade = OpenApiParameter("cascade", bool, description="Also delete everything in it")
    of_version = OpenApiParameter(
        "If-Match",
        str,
        OpenApiParameter.HEADER,
        description="ETags of the versions that may be changed",
    )
    return extend_schema_view(
        list=extend_schema(parameters=[OpenApiParameter(name, str) for name in names]),
        update=extend_schema(parameters=[of_version]),
        partial_update=extend_schema(parameters=[of_version]),
        destroy=extend_schema(parameters=[cascade]),
    )


class DatasetBySlug(APIView):
    token_uses = READS

    @extend_schema(parameters=[BY_SLUG], responses=DatasetSerializer)
    def get(self, request: Request, organization_id: str, slug: str) -> Response:
        """The organization's dataset of that slug."""
        user = cast(User, request.user)
        organization = permissions.find(permissions.organizations(user), organization_id)
        reached = permissions.datasets(user).filter(organization=organization)
        return Response(DatasetSerializer(permissions.find_by_slug(reached, slug)).data)


class SchemaBySlug(APIView):
    token_uses = READS

    @extend_schema(parameters=[BY_SLUG], responses=SchemaSerializer)
    def get(self, request: Request, dataset_id: str, slug: str) -> Response:
        """The dataset's schema of that slug."""
        user = cast(User, request.user)
        dataset = permissions.find(permissions.datasets(user), dataset_id)
        reached = permissions.schemas(user).filter(dataset=dataset)
        return Response(SchemaSerializer(permissions.find_by_slug(reached, slug)).data)


@BY_ID
@_filtered_by("organization", "slug", "name")
class Datasets(_Collection[Dataset]):
    serializer_class = DatasetSerializer
    queryset = Dataset.objects.none()
    token_uses = CHANGES_ALL
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

    def facts(self, row: Dataset) -> list[str]:
        return [row.name, row.slug, row.description]

    def get_queryset(self) -> QuerySet[Dataset]:
        return permissions.datasets(self.user)

    def get_object(self) -> Dataset:
        reached = self.get_queryset()
        # Saving writes every column, also a name that the roster changed meanwhile.
        if self.request.method in ("PUT", "PATCH"):
            reached = reached.select_for_update(of=("self",))
        return permissions.find(reached, self.kwargs["pk"])

    def perform_create(self, serializer: serializers.BaseSerializer[Any]) -> None:
        organization = serializer.validated_data["organization"]
        permissions.require_owner_where_signed(self.user, organization)
        self.store(serializer, creator=self.user)

    def perform_update(self, serializer: serializers.BaseSerializer[Any]) -> None:
        dataset = cast(Dataset, serializer.instance)
        self.require_match(dataset)
        permissions.require_owner_where_signed(self.user, dataset.organization)
        _keep_dataset(dataset, serializer.validated_data)
        wanted = serializer.validated_data.get("organization")
        if wanted is not None and wanted.pk != dataset.organization_id:
            raise _fixed_organization("/organization")
        self.store(serializer)

    def require_deleter(self, row: Dataset) -> None:
        permissions.require_owner_where_signed(self.user, row.organization)
        # Without its dataset, Django would query each schema again: many statements, and an error
        # if one of them is deleted meanwhile.
        schemas = row.schemas.only("creator", "dataset")
        permissions.require_deleter(self.user, row.organization_id, row, *schemas)

    def perform_destroy(self, instance: Dataset) -> None:
        permissions.require_owner_where_signed(self.user, instance.organization)
        schemas = instance.schemas.order_by("pk").select_for_update() if self.cascade else ()
        permissions.require_deleter(self.user, instance.organization_id, instance, *schemas)
        if instance.schemas.exists():
            if not self.cascade:
                raise Conflict(
                    "the dataset has schemas",
                    code="dataset_not_empty",
                    hint="delete them first, or repeat with ?cascade=true",
                )
            for schema in schemas:
                erase(schema)
        self.note("deleted", instance)
        instance.delete()


@BY_ID
@_filtered_by("organization", "dataset", "slug", "name")
class SchemasView(_Collection[Schema]):
    serializer_class = SchemaSerializer
    queryset = Schema.objects.none()
    token_uses = CHANGES
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

    def facts(self, row: Schema) -> list[str]:
        return [row.name, row.slug, row.description, row.dataset_id, row.definition]

    def get_queryset(self) -> QuerySet[Schema]:
        return permissions.schemas(self.user)

    def get_object(self) -> Schema:
        reached = self.get_queryset()
        if self.request.method in ("PUT", "PATCH", "DELETE"):
            reached = reached.select_for_update(of=("self",))
        return permissions.find(reached, self.kwargs["pk"])

    def perform_create(self, serializer: serializers.BaseSerializer[Any]) -> None:
        definition = parse_definition(serializer.validated_data["definition"])
        refuse_reserved(definition.fields)
        permissions.require_writer_of_all(self.user, serializer.validated_data["dataset"])
        self.store(serializer, creator=self.user)

    def perform_update(self, serializer: serializers.BaseSerializer[Any]) -> None:
        schema = cast(Schema, serializer.instance)
        self.require_match(schema)
        data = serializer.validated_data
        wanted = data.get("dataset")
        if wanted is not None and wanted.organization_id != schema.dataset.organization_id:
            raise _fixed_organization("/dataset")
        permissions.require_writer(self.user, schema)
        if wanted is not None and wanted.pk != schema.dataset_id:
            permissions.require_writer_of_all(self.user, wanted)
        _keep_schema(schema, data)
        if "definition" in data:
            before, after = schema.parse(), parse_definition(data["definition"])
            refuse_reserved(after.fields.keys() - before.fields.keys())
            if schema.version > 0:
                _keep_definition(schema, data)
        self.store(serializer)

    def require_deleter(self, row: Schema) -> None:
        permissions.require_owner_where_signed(self.user, row.dataset.organization)
        permissions.require_deleter(self.user, row.dataset.organization_id, row)

    def perform_destroy(self, instance: Schema) -> None:
        self.require_deleter(instance)
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
    removing.erase(schema.uid)
    schema.delete()


def _keep_definition(schema: Schema, data: dict[str, Any]) -> None:
    """Accept another spelling of the log's definition, and no other definition.

    Raises:
        Conflict: ``through_a_proxy``.
    """
    present = schema.parse()
    if parse_definition(data["definition"]).following(present).digest != present.digest:
        detail = "the definition is part of the schema's log, and only a commit can change it"
        raise Conflict(
            detail,
            code="through_a_proxy",
            hint="send the change to the proxy, which signs it: PATCH /api/schemas/<id>/ there",
            flaws=(Flaw("through_a_proxy", detail, pointer="/schema"),),
        )
    data["canonical"], data["definition_digest"] = schema.canonical, present.digest


def _fixed_organization(pointer: str) -> Conflict:
    detail = "records are encrypted for their organization and cannot move to another"
    return Conflict(
        detail,
        code="organization_fixed",
        flaws=(Flaw("organization_fixed", detail, pointer=pointer),),
    )


# Properties of a dataset or schema that are in the roster, so that they cannot be changed at the
# API.


def _keep_dataset(dataset: Dataset, wanted: Mapping[str, Any]) -> None:
    """
    Raises:
        Conflict: ``through_a_proxy``; the roster has the dataset's name and slug.
    """
    if DatasetKey.objects.filter(dataset=dataset.pk, placed=True).exists():
        _keep(dataset, wanted, "name", "slug")


def _keep_schema(schema: Schema, wanted: Mapping[str, Any]) -> None:
    """
    Raises:
        Conflict: ``through_a_proxy``, as above, also of its definition; ``schema_placed``.
    """
    if not schema.dataset.organization.has_roster:
        return
    placed = Place.objects.filter(schema=schema.pk, placed=True).exists()
    dataset = wanted.get("dataset")
    if dataset is not None and dataset.pk != schema.dataset_id and (placed or schema.version):
        raise placed_elsewhere()
    if placed:
        _keep(schema, wanted, "name", "slug")
        # From the first commit on, _keep_definition protects the definition.
        if not schema.version:
            _keep(schema, wanted, "definition_digest", shown="schema")


def _keep(
    named: Dataset | Schema, wanted: Mapping[str, Any], *members: str, shown: str = ""
) -> None:
    changed = [
        member for member in members if member in wanted and _of(named, member) != wanted[member]
    ]
    if changed:
        detail = "is in the roster, and only an entry of the roster can change it"
        raise Conflict(
            "this is in the roster of the organization, and only an entry of the roster"
            " can change it",
            code="through_a_proxy",
            hint="send the change to a proxy, which signs it",
            flaws=tuple(
                Flaw("through_a_proxy", detail, pointer=f"/{shown or name}") for name in changed
            ),
        )


def _of(named: Dataset | Schema, member: str) -> Any:
    value = getattr(named, member)
    return bytes(value) if isinstance(value, memoryview) else value
