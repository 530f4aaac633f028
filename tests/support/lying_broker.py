"""A broker that lies: it relays to an honest one, and changes the decoded answers of one API.

`lies` derives the lies of an answer from the declaration of its message, so that each field of each
API is lied about: elements missing, doubled, invented, numbers out of range, texts that are empty,
too long or hold control characters, nulls. `WIRE_LIES` change the bytes: another request's
correlation id, a body that ends early, bytes that follow it.

A lie is *detectable* where no honest broker could give the answer; a group's state of an unknown
name is not, nor a larger offset. Commands must not fail in an unclear way on either.
"""

import copy
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Self

from barnabas.wire.kafka.api import ApiKey, api
from barnabas.wire.kafka.codec import decode
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.frames import (
    decode_request_header,
    decode_response_header,
    encode_response,
    response_version,
)
from barnabas.wire.kafka.messages import (
    alter_client_quotas,
    api_versions,
    consumer_group_describe,
    describe_client_quotas,
    describe_topic_partitions,
    unregister_broker,
)
from barnabas.wire.kafka.schema import Field, Message, Struct
from support.frames import framed, read_frame

_LENGTH = struct.Struct(">i")
FieldPath = tuple[str, ...]


class Lie(NamedTuple):
    """``change`` turns an honest response into a lie; it may also give the frame's bytes."""

    name: str
    change: Callable[[Message, int, int], Message | bytes]
    """Arguments: the response, its version, its correlation id."""


class LyingBroker:
    """Listens on ``port`` in front of the honest broker at ``target_port``.

    Addresses in answers are its own. Without a lie it is honest. ``seen`` has the APIs that were
    asked since the last `tell`, and in which version.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.api_key = -1
        self.lie: Lie | None = None
        self.seen: dict[int, int] = {}
        self._sockets: set[socket.socket] = set()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="lying broker", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        for each in list(self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def tell(self, api_key: int, lie: Lie | None) -> None:
        """From now on change the answers of this API."""
        self.api_key, self.lie, self.seen = api_key, lie, {}

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(("127.0.0.1", self._target_port)) as target:
            self._sockets |= {client, target}
            try:
                while (request := read_frame(client)) is not None:
                    if invented := _invented(request):
                        client.sendall(self._changed(*invented))
                        continue
                    target.sendall(framed(request))
                    header = decode_request_header(request)
                    if header.api_key == ApiKey.PRODUCE and _acks(request, header) == 0:
                        continue
                    answer = read_frame(target)
                    if answer is None:
                        return
                    client.sendall(self._changed(header.api_key, header.api_version, answer))
            finally:
                self._sockets -= {client, target}

    def _changed(self, api_key: int, version: int, answer: bytes) -> bytes:
        self.seen[api_key] = version
        lie = self.lie if api_key == self.api_key else None
        if lie is None and api_key not in _COMPLETED:
            return framed(answer)
        version = response_version(answer, api_key, version)
        header = decode_response_header(answer, api_key, version)
        response = decode(api(api_key).response, version, answer, header.body_offset)
        _redirect(response, self._target_port, self.port)
        if api_key == ApiKey.API_VERSIONS and response.api_keys:  # type: ignore[attr-defined]
            response.api_keys += _offers()  # type: ignore[attr-defined]
        changed: Message | bytes = response
        if lie is not None:
            changed = lie.change(response, version, header.correlation_id)
        if isinstance(changed, Message):
            return joined(changed, version, header.correlation_id)
        return changed


_COMPLETED = frozenset((ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER, ApiKey.API_VERSIONS))
"""Their honest answers have addresses of brokers, or the APIs that the liar invents."""


# APIs that our brokers do not serve


def _quotas(request: Any) -> Message:
    asked = [(item.entity_type, item.match) for item in request.components] or [("user", "ann")]
    entity = [describe_client_quotas.EntityData(entity_type=kind, entity_name=name or "ann") for kind, name in asked]
    values = [describe_client_quotas.ValueData(key="producer_byte_rate", value=1e6)]
    entry = describe_client_quotas.EntryData(entity=entity, values=values)
    return describe_client_quotas.DescribeClientQuotasResponse(entries=[entry])


def _altered_quotas(request: Any) -> Message:
    return alter_client_quotas.AlterClientQuotasResponse(
        entries=[
            alter_client_quotas.AlterClientQuotasResponseEntryData(
                entity=[
                    alter_client_quotas.AlterClientQuotasResponseEntityData(
                        entity_type=part.entity_type, entity_name=part.entity_name
                    )
                    for part in entry.entity
                ]
            )
            for entry in request.entries
        ]
    )


def _groups(request: Any) -> Message:
    """Groups of the new protocol where the name begins so."""
    assignment = consumer_group_describe.Assignment(
        topic_partitions=[consumer_group_describe.TopicPartitions(topic_name="orders", partitions=[0, 1])]
    )
    member = consumer_group_describe.Member(
        member_id="m", client_id="c", client_host="/127.0.0.1", assignment=assignment
    )
    return consumer_group_describe.ConsumerGroupDescribeResponse(
        groups=[
            consumer_group_describe.DescribedGroup(
                group_id=group, group_state="Stable", assignor_name="uniform", members=[member]
            )
            if group.startswith("new")
            else consumer_group_describe.DescribedGroup(group_id=group, error_code=ErrorCode.GROUP_ID_NOT_FOUND)
            for group in request.group_ids
        ]
    )


def _topic_partitions(request: Any) -> Message:
    """One partition an answer, and a cursor to the next."""
    names = [topic.name for topic in request.topics]
    first = request.cursor.topic_name if request.cursor else names[0]
    partition = describe_topic_partitions.DescribeTopicPartitionsResponsePartition(
        eligible_leader_replicas=[0], last_known_elr=[]
    )
    topic = describe_topic_partitions.DescribeTopicPartitionsResponseTopic(name=first, partitions=[partition])
    later = [name for name in names if name > first]
    cursor = describe_topic_partitions.DescribeTopicPartitionsResponseCursor(topic_name=later[0]) if later else None
    return describe_topic_partitions.DescribeTopicPartitionsResponse(topics=[topic], next_cursor=cursor)


def _unregistered(_: Any) -> Message:
    return unregister_broker.UnregisterBrokerResponse()


_INVENTED: Mapping[int, Callable[[Any], Message]] = {
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: _altered_quotas,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _groups,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _topic_partitions,
    ApiKey.UNREGISTER_BROKER: _unregistered,
}


def _offers() -> list[api_versions.ApiVersion]:
    return [
        api_versions.ApiVersion(api_key=key, min_version=api(key).versions.first, max_version=api(key).versions.last)
        for key in _INVENTED
    ]


def _invented(request: bytes) -> tuple[int, int, bytes] | None:
    """The API, its version and an honest answer, where the liar answers itself."""
    header = decode_request_header(request)
    answer = _INVENTED.get(header.api_key)
    if answer is None:
        return None
    message = decode(api(header.api_key).request, header.api_version, request, header.body_offset)
    return header.api_key, header.api_version, joined(answer(message), header.api_version, header.correlation_id)[4:]


def joined(response: Message, version: int, correlation_id: int) -> bytes:
    """A response as bytes."""
    return b"".join(bytes(part) for part in encode_response(response, version, correlation_id))  # type: ignore[arg-type]


def _acks(request: bytes, header: Any) -> int:
    message: Any = decode(api(ApiKey.PRODUCE).request, header.api_version, request, header.body_offset)
    return int(message.acks)


def _redirect(value: object, honest: int, liar: int) -> None:
    """Clients come back to the liar."""
    if isinstance(value, Struct):
        for field in value.FIELDS:
            inner = getattr(value, field.name)
            if field.name == "port" and inner == honest:
                value.port = liar  # type: ignore[attr-defined]
            elif isinstance(inner, list | Struct):
                _redirect(inner, honest, liar)
    elif isinstance(value, list):
        for item in value:
            _redirect(item, honest, liar)


# Lies


_NUMBERS: Mapping[str, tuple[int, ...]] = {
    "int8": (-128, 77, 127),
    "int16": (-32768, 9999, 32767),
    "int32": (-(2**31), -2, 77, 2**31 - 1),
    "int64": (-(2**63), -2, 2**63 - 1),
    "uint16": (0, 65535),
    "uint32": (0, 2**32 - 1),
}
_TEXTS = ("", "not-asked-for", "\x1b[31m\nforged\r", "x" * 30_000, ".", "..", "a" * 64 + ".example")
_MOST = 1_000_000


def lies(api_key: int, version: int) -> Iterator[Lie]:
    """All lies about one API's answers in a version."""
    yield from _of_structure(api(api_key).response, version, ())
    yield from WIRE_LIES


def _of_structure(kind: type[Struct], version: int, path: FieldPath) -> Iterator[Lie]:
    for field in kind.FIELDS:
        if version in field.versions:
            yield from _of_field(field, version, (*path, field.name))


def _of_field(field: Field, version: int, path: FieldPath) -> Iterator[Lie]:
    for shown, value in _values(field):
        yield _setting(path, shown, value)
    if version in field.nullable:
        yield _setting(path, "null", None)
    if field.kind == "array":
        yield _setting(path, "empty", [])
        yield _listing(path, "the first missing", lambda items: items[1:])
        yield _listing(path, "the last missing", lambda items: items[:-1])
        yield _listing(path, "all twice", lambda items: [*items, *items])
        yield _listing(path, "reversed", lambda items: items[::-1])
        if isinstance(field.element, type):
            kind = field.element
            yield _listing(path, "an empty one more", lambda items: [*items, kind()])
            yield from _of_structure(kind, version, path)
        elif field.element == "int32":
            for number in (-1, 77):
                yield _listing(path, f"{number} more", lambda items, number=number: [*items, number])
        else:
            yield _listing(path, "another one more", lambda items: [*items, "not-asked-for"])
    elif field.kind == "struct" and isinstance(field.element, type):
        yield from _of_structure(field.element, version, path)


def _values(field: Field) -> Iterator[tuple[str, object]]:
    if field.kind in _NUMBERS:
        for number in _NUMBERS[field.kind]:
            yield str(number), number
    elif field.kind == "string":
        for text in _TEXTS:
            yield repr(text) if len(text) < 100 else f"{len(text)} letters", text
    elif field.kind == "float64":
        for shown in ("nan", "inf", "-1"):
            yield shown, float(shown)
    elif field.kind == "bool":
        yield "true", True
        yield "false", False
    elif field.kind == "bytes":
        for data in (b"", b"\xff" * 40, b"\0" * 40, b"\0\x03\x7f\xff\xff\xff"):
            yield data[:8].hex() or "empty", data
    elif field.kind == "uuid":
        yield "zeroes", bytes(16)
    elif field.kind == "records":
        yield "garbage", b"\xff" * 200
        yield "zeroes", b"\0" * 200
        yield "empty", b""


def _setting(path: FieldPath, shown: str, value: object) -> Lie:
    def change(response: Message, _: int, __: int) -> Message:
        for owner in _owners(response, path[:-1]):
            setattr(owner, path[-1], copy.deepcopy(value))
        return response

    return Lie(f"{'.'.join(path)} is {shown}", change)


def _listing(path: FieldPath, shown: str, made: Callable[[list[Any]], list[Any]]) -> Lie:
    def change(response: Message, _: int, __: int) -> Message:
        for owner in _owners(response, path[:-1]):
            setattr(owner, path[-1], made(getattr(owner, path[-1]) or []))
        return response

    return Lie(f"{'.'.join(path)}: {shown}", change)


def _owners(value: Any, path: FieldPath) -> Iterator[Any]:
    """The structures at a path, in all elements."""
    if value is None:
        return
    if isinstance(value, list):
        for item in value:
            yield from _owners(item, path)
    elif path:
        yield from _owners(getattr(value, path[0]), path[1:])
    else:
        yield value


def huge_lies(api_key: int, version: int, count: int = _MOST) -> Iterator[Lie]:
    """A million elements in each list of an answer."""
    yield from _huge(api(api_key).response, version, (), count)


def _huge(kind: type[Struct], version: int, path: FieldPath, count: int) -> Iterator[Lie]:
    for field in kind.FIELDS:
        if version not in field.versions or field.kind != "array":
            continue
        yield _listing((*path, field.name), f"{count} elements", _many(field, count))
        if isinstance(field.element, type):
            yield from _huge(field.element, version, (*path, field.name), count)


def _many(field: Field, count: int) -> Callable[[list[Any]], list[Any]]:
    def made(_: list[Any]) -> list[Any]:
        if isinstance(field.element, type):
            return _Many(field.element, count)
        return list(range(count)) if field.element != "string" else [f"name-{number}" for number in range(count)]

    return made


class _Many(list[Any]):
    """Many small structures with other keys, of which only one is held at a time."""

    def __init__(self, kind: type[Struct], count: int) -> None:
        self._kind = kind
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        item = self._kind()
        key = next((each for each in self._kind.FIELDS if each.kind in ("string", "int32", "int16")), None)
        for number in range(self._count):
            if key is not None:
                setattr(item, key.name, f"name-{number}" if key.kind == "string" else number % 32768)
            yield item


def _with_bytes(name: str, change: Callable[[bytes], bytes]) -> Lie:
    return Lie(name, lambda response, version, correlation_id: change(joined(response, version, correlation_id)))


def _reframed(body: bytes) -> bytes:
    return framed(body)


WIRE_LIES = (
    Lie("another request's answer", lambda response, version, number: joined(response, version, number + 1)),
    _with_bytes("half of the body", lambda data: _reframed(data[4 : 8 + (len(data) - 8) // 2])),
    _with_bytes("no body", lambda data: _reframed(data[4:8])),
    _with_bytes("bytes behind the body", lambda data: _reframed(data[4:] + b"\0" * 100)),
    _with_bytes("ones for a body", lambda data: _reframed(data[4:8] + b"\xff" * 200)),
    _with_bytes("a length below zero", lambda data: _LENGTH.pack(-5) + data[4:]),
    _with_bytes("a length of 2 GiB", lambda data: _LENGTH.pack(2**31 - 1) + data[4:]),
    _with_bytes("a web server's answer", lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n"),
)
