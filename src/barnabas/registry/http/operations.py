"""Which operation of the core answers which request: a line for each method and path.

An entry reads what a request gives and calls the core; nothing is decided here.

In Confluent's registry: the resources of the package `rest.resources`, such as `SubjectsResource`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from barnabas.registry.core.decisions import Answer, Decision
from barnabas.registry.core.registry import Registry
from barnabas.registry.core.requests import RegisterRequest
from barnabas.registry.http.content import HttpError
from barnabas.registry.http.context_paths import in_path_of_context

__all__ = ["OPERATIONS", "Call", "RestOperation", "Right"]


class Right(NamedTuple):
    """What an operation is, for access: its name, and whether it writes."""

    name: str
    writes: bool


_READ = Right("read", writes=False)
_REGISTER = Right("register", writes=True)
_DELETE = Right("delete", writes=True)
_CONFIGURE = Right("configure", writes=True)
_READ_CONFIG = Right("read configuration", writes=False)


@dataclass(frozen=True, slots=True)
class Call:
    """What a request gives: the parts of its path, its query, its body."""

    path: Mapping[str, str]
    query: Mapping[str, Sequence[str]]
    body: object = None

    @classmethod
    def meant(
        cls,
        registry: Registry,
        operation: "RestOperation",
        path: Mapping[str, str],
        query: Mapping[str, Sequence[str]],
        body: object,
    ) -> Self:
        """What a request gives, with the subjects that are meant: in the context of the path, and
        those for which aliases stand.

        As Confluent's AliasFilter: subjects of configurations and modes have no aliases."""
        path, query = in_path_of_context(operation.path, path, query)
        if "/subjects/{subject}" in operation.path:
            path = {**path, "subject": registry.subject_named(path["subject"])}
        elif operation.path.startswith("/schemas/ids/") and "subject" in query:
            query = {**query, "subject": [registry.subject_named(each) for each in query["subject"]]}
        return cls(path, query, body)

    @property
    def subject(self) -> str:
        return self.path["subject"]

    @property
    def version(self) -> str:
        return self.path["version"]

    @property
    def optional_subject(self) -> str | None:
        """The subject of a query, or None."""
        return self.text("subject") or None

    def text(self, name: str, default: str = "") -> str:
        """A query parameter; the first one counts."""
        values = self.query.get(name)
        return values[0] if values else default

    def texts(self, name: str) -> Sequence[str]:
        """A query parameter that may be repeated."""
        return self.query.get(name, ())

    def flag(self, name: str) -> bool:
        """Whether a query parameter is true; any other text is false, as in Java."""
        return self.text(name).lower() == "true"

    def number(self, name: str, default: int) -> int:
        """A query parameter that is a number; raises `HttpError` 404, as Confluent's does."""
        text = self.text(name)
        return default if text == "" else _number(text)

    @property
    def page(self) -> dict[str, int]:
        """Which part of a list is wanted."""
        return {"offset": self.number("offset", 0), "limit": self.number("limit", -1)}

    @property
    def schema_id(self) -> int:
        return _number(self.path["id"])

    @property
    def request(self) -> RegisterRequest:
        """The body as a schema. Raises RegistryError."""
        return RegisterRequest.from_json(self.body)

    @property
    def forms(self) -> dict[str, str]:
        return {"form": self.text("format"), "reference_format": self.text("referenceFormat")}


def _number(text: str) -> int:
    digits = text.removeprefix("-").removeprefix("+")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 10) or not -(1 << 31) <= int(text) < 1 << 31:
        raise HttpError(404, "HTTP 404 Not Found")
    return int(text)


Handler = Callable[[Registry, Call], Answer | Decision]


@dataclass(frozen=True, slots=True)
class RestOperation:
    """A method and a path, in whose braces are the names of `Call.path`, and what answers it."""

    method: str
    path: str
    right: Right
    handle: Handler
    is_text: bool = False
    """Whether the answer is a text that is sent as it is, rather than as JSON."""


def _metadata(call: Call) -> dict[str, str]:
    keys, values = call.texts("key"), call.texts("value")
    if len(keys) != len(values):
        raise HttpError(400, "there is one value for each key")
    return dict(zip(keys, values, strict=True))


_V = "/subjects/{subject}/versions"
_C = "/compatibility/subjects/{subject}/versions"

OPERATIONS = (
    # /subjects
    RestOperation(
        "GET",
        "/subjects",
        _READ,
        lambda core, call: core.subjects.names(
            subject_prefix=call.text("subjectPrefix", ":*:"),
            deleted=call.flag("deleted"),
            deleted_only=call.flag("deletedOnly"),
            **call.page,
        ),
    ),
    RestOperation(
        "POST",
        "/subjects/{subject}",
        _READ,
        lambda core, call: core.subjects.look_up(
            call.subject,
            call.request,
            normalize=call.flag("normalize"),
            deleted=call.flag("deleted"),
            form=call.text("format"),
        ),
    ),
    RestOperation(
        "DELETE",
        "/subjects/{subject}",
        _DELETE,
        lambda core, call: core.subjects.delete(call.subject, permanent=call.flag("permanent")),
    ),
    RestOperation(
        "GET",
        "/subjects/{subject}/metadata",
        _READ,
        lambda core, call: core.subjects.latest_with_metadata(
            call.subject, _metadata(call), deleted=call.flag("deleted"), form=call.text("format")
        ),
    ),
    # /subjects/{subject}/versions
    RestOperation(
        "GET",
        _V,
        _READ,
        lambda core, call: core.subject_versions.numbers(
            call.subject,
            deleted=call.flag("deleted"),
            deleted_only=call.flag("deletedOnly"),
            deleted_as_negative=call.flag("deletedAsNegative"),
            **call.page,
        ),
    ),
    RestOperation(
        "POST",
        _V,
        _REGISTER,
        lambda core, call: core.subject_versions.register(
            call.subject, call.request, normalize=call.flag("normalize"), force=call.flag("force")
        ),
    ),
    RestOperation(
        "GET",
        f"{_V}/{{version}}",
        _READ,
        lambda core, call: core.subject_versions.get(
            call.subject, call.version, deleted=call.flag("deleted"), **call.forms
        ),
    ),
    RestOperation(
        "GET",
        f"{_V}/{{version}}/schema",
        _READ,
        lambda core, call: core.subject_versions.get_text(
            call.subject, call.version, deleted=call.flag("deleted"), form=call.text("format")
        ),
        is_text=True,
    ),
    RestOperation(
        "GET",
        f"{_V}/{{version}}/referencedby",
        _READ,
        lambda core, call: core.subject_versions.referenced_by(
            call.subject, call.version, deleted=call.flag("deleted"), **call.page
        ),
    ),
    RestOperation(
        "DELETE",
        f"{_V}/{{version}}",
        _DELETE,
        lambda core, call: core.subject_versions.delete(call.subject, call.version, permanent=call.flag("permanent")),
    ),
    # /schemas
    RestOperation(
        "GET",
        "/schemas",
        _READ,
        lambda core, call: core.schemas.search(
            subject_prefix=call.text("subjectPrefix"),
            aliases=call.flag("aliases"),
            deleted=call.flag("deleted"),
            latest_only=call.flag("latestOnly"),
            rule_type=call.text("ruleType"),
            **call.page,
        ),
    ),
    RestOperation("GET", "/schemas/types", _READ, lambda core, _: core.schemas.types()),
    RestOperation(
        "GET",
        "/schemas/ids/{id}",
        _READ,
        lambda core, call: core.schemas.get(
            call.schema_id, subject=call.optional_subject, fetch_max_id=call.flag("fetchMaxId"), **call.forms
        ),
    ),
    RestOperation(
        "GET",
        "/schemas/ids/{id}/schema",
        _READ,
        lambda core, call: core.schemas.get_text(
            call.schema_id, subject=call.optional_subject, form=call.text("format")
        ),
        is_text=True,
    ),
    RestOperation(
        "GET",
        "/schemas/ids/{id}/subjects",
        _READ,
        lambda core, call: core.schemas.subjects(
            call.schema_id, subject=call.optional_subject, deleted=call.flag("deleted"), **call.page
        ),
    ),
    RestOperation(
        "GET",
        "/schemas/ids/{id}/versions",
        _READ,
        lambda core, call: core.schemas.versions(
            call.schema_id, subject=call.optional_subject, deleted=call.flag("deleted"), **call.page
        ),
    ),
    RestOperation(
        "GET",
        "/schemas/guids/{guid}",
        _READ,
        lambda core, call: core.schemas.get_by_guid(call.path["guid"], form=call.text("format")),
    ),
    RestOperation(
        "GET", "/schemas/guids/{guid}/ids", _READ, lambda core, call: core.schemas.ids_of_guid(call.path["guid"])
    ),
    # /compatibility
    RestOperation(
        "POST",
        f"{_C}/{{version}}",
        _READ,
        lambda core, call: core.compatibility.test_version(
            call.subject,
            call.version,
            call.request,
            normalize=call.flag("normalize"),
            verbose=call.flag("verbose"),
        ),
    ),
    RestOperation(
        "POST",
        _C,
        _READ,
        lambda core, call: core.compatibility.test_all(
            call.subject, call.request, normalize=call.flag("normalize"), verbose=call.flag("verbose")
        ),
    ),
    # /config
    RestOperation(
        "GET",
        "/config",
        _READ_CONFIG,
        lambda core, call: core.configs.get(None, default_to_global=call.flag("defaultToGlobal")),
    ),
    RestOperation("PUT", "/config", _CONFIGURE, lambda core, call: core.configs.update(None, call.body)),
    RestOperation("DELETE", "/config", _CONFIGURE, lambda core, _: core.configs.delete(None)),
    RestOperation(
        "GET",
        "/config/{subject}",
        _READ_CONFIG,
        lambda core, call: core.configs.get(call.subject, default_to_global=call.flag("defaultToGlobal")),
    ),
    RestOperation(
        "PUT", "/config/{subject}", _CONFIGURE, lambda core, call: core.configs.update(call.subject, call.body)
    ),
    RestOperation("DELETE", "/config/{subject}", _CONFIGURE, lambda core, call: core.configs.delete(call.subject)),
    # /mode
    RestOperation(
        "GET",
        "/mode",
        _READ_CONFIG,
        lambda core, call: core.modes.get(None, default_to_global=call.flag("defaultToGlobal")),
    ),
    RestOperation(
        "PUT", "/mode", _CONFIGURE, lambda core, call: core.modes.update(None, call.body, force=call.flag("force"))
    ),
    RestOperation(
        "DELETE",
        "/mode",
        _CONFIGURE,
        lambda core, call: core.modes.delete(None, recursive=call.flag("recursive")),
    ),
    RestOperation(
        "GET",
        "/mode/{subject}",
        _READ_CONFIG,
        lambda core, call: core.modes.get(call.subject, default_to_global=call.flag("defaultToGlobal")),
    ),
    RestOperation(
        "PUT",
        "/mode/{subject}",
        _CONFIGURE,
        lambda core, call: core.modes.update(call.subject, call.body, force=call.flag("force")),
    ),
    RestOperation(
        "DELETE",
        "/mode/{subject}",
        _CONFIGURE,
        lambda core, call: core.modes.delete(call.subject, recursive=call.flag("recursive")),
    ),
    # /contexts
    RestOperation(
        "GET",
        "/contexts",
        _READ,
        lambda core, call: core.contexts.names(context_prefix=call.text("contextPrefix"), **call.page),
    ),
    RestOperation(
        "DELETE", "/contexts/{context}", _DELETE, lambda core, call: core.contexts.delete(call.path["context"])
    ),
)
"""All operations, in the order of Confluent's reference."""
