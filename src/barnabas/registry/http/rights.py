"""What a user may do, by the cluster's own access control lists.

A subject is protected as the topic for which it has the schemas: its name without the context and
without ``-key`` or ``-value``. Another subject, such as a record's name, is protected as the topic
of that name, which need not exist.

    read a schema                   Read or Write on the topic
    see the subject in lists        Describe on the topic (which Read and Write imply)
    register                        Write on the topic, and to read what the schema refers to
    delete                          Delete on the topic
    configuration and mode          DescribeConfigs and AlterConfigs on the topic, or on the cluster
                                    for the global ones and for contexts

A user who may read a subject may read its schemas by their ids and guids. Only users who may read
all subjects learn that an id has no schema; for others it looks like one that they may not read.
What a user may not see is left out of lists.

Confluent's registry has operations of its own on subjects instead.

In Confluent's registry: its ACL authorizer, with operations of its own on subjects.
"""

from collections.abc import Callable, Iterable, Sequence

from barnabas.broker.authorizer.authorizer import Authorizer
from barnabas.registry.core.decisions import Answer
from barnabas.registry.core.qualified_subject import QualifiedSubject
from barnabas.registry.core.registry import Registry
from barnabas.registry.errors import RegistryError
from barnabas.registry.http.content import HttpError
from barnabas.registry.http.operations import Call, RestOperation
from barnabas.security.acls import CLUSTER_NAME, WILDCARD, AclOperation, ResourceType

__all__ = ["AclRights", "topic_of_subject"]

_SUFFIXES = ("-key", "-value")
_FORBIDDEN = 40301

_OPERATIONS = {
    "read": (AclOperation.READ, AclOperation.WRITE),
    "register": (AclOperation.WRITE,),
    "delete": (AclOperation.DELETE,),
    "configure": (AclOperation.ALTER_CONFIGS,),
    "read configuration": (AclOperation.DESCRIBE_CONFIGS,),
}
"""By the names of rights: each of them is enough."""
_LISTED = {
    "/subjects": (AclOperation.DESCRIBE,),
    "/schemas": _OPERATIONS["read"],
    "/schemas/ids/{id}/subjects": (AclOperation.DESCRIBE,),
    "/schemas/ids/{id}/versions": (AclOperation.DESCRIBE,),
}
"""Lists, and what lets a user see an element."""
_OPEN = frozenset(("/schemas/types", "/contexts", "/schemas/guids/{guid}/ids"))
"""What says nothing of a subject."""
_OF_CONTEXTS = ("/config/", "/mode/")
"""What a context has, too, whose name stands for all subjects in it."""


def topic_of_subject(subject: str) -> str:
    """The topic by whose rights a subject is protected."""
    name = QualifiedSubject.parse(subject).name
    for suffix in _SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            return name.removesuffix(suffix)
    return name


class AclRights:
    """Decides with the lists of the moment."""

    def __init__(self, authorizer: Callable[[], Authorizer], registry: Registry) -> None:
        self._authorizer = authorizer
        self._registry = registry

    def check(self, operation: RestOperation, call: Call, user: str | None, host: str) -> None:
        """Raise `HttpError` 403 for what the user has no right to."""
        wanted = _OPERATIONS[operation.right.name]
        if "subject" in call.path and (topic_of_subject(call.subject) or not operation.path.startswith(_OF_CONTEXTS)):
            subjects = [(call.subject, wanted)]
            for each in _referenced(call.body):
                subjects += [(name, _OPERATIONS["read"]) for name in (each, self._registry.subject_named(each))]
            for subject, operations in subjects:
                if not self._may(user, host, operations, subject):
                    raise _forbidden(user, operation.right.name, f"subject {subject}")
        elif operation.path in _LISTED or operation.path in _OPEN:
            return  # `visible` leaves out what the user may not see
        elif "id" in call.path or "guid" in call.path:
            holders = list(self._with_schema(call))
            may_read = any(self._may(user, host, wanted, each) for each in holders)
            if not may_read and (holders or not self._may_on_all(user, host, wanted)):
                raise _forbidden(user, operation.right.name, "schema")
        elif not self._may_on_cluster(
            user, host, wanted if not operation.right.writes else (AclOperation.ALTER_CONFIGS,)
        ):
            raise _forbidden(user, operation.right.name, "cluster")

    def visible(self, operation: RestOperation, answer: Answer, user: str | None, host: str) -> Answer:
        """What the user may see of an answer."""
        wanted = _LISTED.get(operation.path)
        if wanted is None or not isinstance(answer, list):
            return answer
        return [
            each
            for each in answer
            if self._may(user, host, wanted, each["subject"] if isinstance(each, dict) else each)
        ]

    def _with_schema(self, call: Call) -> Iterable[str]:
        """The subjects that have a schema by its id or its guid, deleted ones too."""
        schemas = self._registry.schemas
        try:
            if "id" in call.path:
                yield from schemas.subjects(call.schema_id, subject=call.optional_subject, deleted=True)
                return
            for each in schemas.ids_of_guid(call.path["guid"]):
                context = each["context"]
                yield from schemas.subjects(each["id"], subject=f":{context}:", deleted=True)
        except RegistryError:
            return

    def _may(self, user: str | None, host: str, operations: Sequence[AclOperation], subject: str) -> bool:
        topic = topic_of_subject(subject)
        return self._is_allowed(user, host, operations, ResourceType.TOPIC, topic)

    def _may_on_all(self, user: str | None, host: str, operations: Sequence[AclOperation]) -> bool:
        return self._is_allowed(user, host, operations, ResourceType.TOPIC, WILDCARD) or self._may_on_cluster(
            user, host, operations
        )

    def _may_on_cluster(self, user: str | None, host: str, operations: Sequence[AclOperation]) -> bool:
        return self._is_allowed(user, host, operations, ResourceType.CLUSTER, CLUSTER_NAME)

    def _is_allowed(
        self, user: str | None, host: str, operations: Sequence[AclOperation], kind: ResourceType, name: str
    ) -> bool:
        authorizer = self._authorizer()
        principal = f"User:{user or 'ANONYMOUS'}"
        return any(authorizer.authorize(principal, host, operation, kind, name) for operation in operations)


def _referenced(body: object) -> Iterable[str]:
    """The subjects that a schema in a body refers to."""
    references = body.get("references") if isinstance(body, dict) else None
    for each in references if isinstance(references, list) else ():
        subject = each.get("subject") if isinstance(each, dict) else None
        if isinstance(subject, str):
            yield subject


def _forbidden(user: str | None, right: str, what: str) -> HttpError:
    return HttpError(403, f"User {user or 'ANONYMOUS'} is denied to {right} on {what}", code=_FORBIDDEN)
