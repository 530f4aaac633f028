"""A broker whose clients have the rights that a test gives them."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from barnabas.base.ids import ZERO_UUID, Uuid
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.authorizer.authorizer import Authorizer, VersionedAcls
from barnabas.broker.metadata.internal_topics import OFFSETS_TOPIC
from barnabas.broker.requests.request import ANONYMOUS
from barnabas.security.acls import (
    AccessControlEntry,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.kafka.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from barnabas.wire.kafka.schema import Struct
from support.broker import DATA_PATH_APIS
from support.group_broker import GROUP_APIS, TOPIC_ID, GroupBroker

__all__ = ["IDS", "Right", "Rights", "RightsBroker", "errors_of"]

Right = tuple[AclOperation, ResourceType, str]
"""An operation on a resource."""

IDS = {"t": TOPIC_ID, "u": Uuid(bytes([7]) * 16)}
"""The topics that exist."""
_NAMES = {topic_id: topic for topic, topic_id in IDS.items()}
_APIS = tuple(sorted({*DATA_PATH_APIS, *GROUP_APIS, "metadata"}))


class CountingAuthorizer(Authorizer):
    """Counts what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[Right] = Counter()

    def authorize(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        self.asked[operation, resource_type, name] += 1
        return super().authorize(principal, host, operation, resource_type, name)


class Rights:
    """The entries of an authorizer, for clients without a name."""

    def __init__(self) -> None:
        self.authorizer = CountingAuthorizer()
        self.helper = AuthHelper(self.authorizer)
        self._entries: dict[ResourcePattern, set[AccessControlEntry]] = {}

    def allow(self, *rights: Right, principal: str = ANONYMOUS) -> None:
        for right in rights:
            self._set(right, AclPermissionType.ALLOW, principal, is_there=True)

    def withdraw(self, *rights: Right, principal: str = ANONYMOUS) -> None:
        for right in rights:
            self._set(right, AclPermissionType.ALLOW, principal, is_there=False)

    def deny(self, *rights: Right) -> None:
        for right in rights:
            self._set(right, AclPermissionType.DENY, ANONYMOUS, is_there=True)

    def allow_everything(self) -> None:
        """What is denied stays denied."""
        kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID)
        self.allow(*((AclOperation.ALL, kind, "*") for kind in kinds))

    def _set(self, right: Right, permission: AclPermissionType, principal: str, *, is_there: bool) -> None:
        operation, resource_type, name = right
        pattern = ResourcePattern(resource_type, name, PatternType.LITERAL)
        entries = self._entries.setdefault(pattern, set())
        entry = AccessControlEntry(principal, "*", operation, permission)
        if is_there:
            entries.add(entry)
        else:
            entries.remove(entry)
        self.authorizer.update(pattern, VersionedAcls(frozenset(entries), 1))


class CreatedTopics:
    """Stands for `Topics`: what clients have asked to be created."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def auto_create(self, names: Iterable[str]) -> None:
        self.names += names


class NoTransactions:
    """Stands for `TransactionService`."""

    def partition_for(self, _: str) -> int:
        return 0


class RightsBroker(GroupBroker):
    """A broker that leads the topics of `IDS`, or none, and coordinates the group g."""

    def __init__(
        self, directory: Path, *, is_fast: bool = True, has_authorizer: bool = True, has_topics: bool = True
    ) -> None:
        super().__init__(directory)
        self.rights = Rights()
        self.created = CreatedTopics()
        endpoint = UpdateMetadataEndpoint(port=9092, host="127.0.0.1", listener="PLAINTEXT", security_protocol=0)
        topics = IDS if has_topics else {}
        for topic, topic_id in topics.items():
            self.lead(topic, topic_id=topic_id)
        self.metadata.update(
            UpdateMetadataRequest(
                live_brokers=[UpdateMetadataBroker(id=0, endpoints=[endpoint]), UpdateMetadataBroker(id=1)],
                topic_states=[
                    UpdateMetadataTopicState(
                        topic_name=topic,
                        topic_id=topic_id,
                        partition_states=[
                            UpdateMetadataPartitionState(
                                partition_index=index, leader=0, replicas=[0], isr=[0], controller_epoch=1
                            )
                            for index in range(partitions)
                        ],
                    )
                    for topic, topic_id, partitions in (
                        *((topic, topic_id, 1) for topic, topic_id in topics.items()),
                        (OFFSETS_TOPIC, Uuid(bytes([8]) * 16), 50),
                    )
                ],
            )
        )
        self.load()
        if has_topics:
            self._commit()
        self.serve(
            _APIS,
            groups=self.groups,
            topics=self.created,
            transactions=NoTransactions(),
            auth_helper=self.rights.helper if has_authorizer else AuthHelper(None),
        )
        if not is_fast:
            self.dispatcher.fast_apis.clear()

    def _commit(self) -> None:
        """Make the group, by an offset that nobody needs a right for."""
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        topic = OffsetCommitRequestTopic(name="u", partitions=[partition])
        request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic])
        assert errors_of(self.connect().ask(request, 9)) == {}


def errors_of(response: Any) -> dict[str, ErrorCode]:
    """The errors in a response, by the topic, group or key that they concern; "" for all of it."""
    return dict(_errors(response, ""))


def _errors(part: Any, name: str) -> Iterator[tuple[str, ErrorCode]]:
    for field in ("topic", "name", "group_id", "key"):
        name = getattr(part, field, None) or name
    topic_id = getattr(part, "topic_id", ZERO_UUID)
    if topic_id != ZERO_UUID:
        name = _NAMES.get(topic_id, "?")
    if getattr(part, "error_code", ErrorCode.NONE):
        yield name, ErrorCode(part.error_code)
    for field in part.FIELDS:
        value = getattr(part, field.name, None)
        if isinstance(value, list):
            for each in value:
                if isinstance(each, Struct):
                    yield from _errors(each, name)
