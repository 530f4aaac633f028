"""Consumers of version 2: instances that are made, subscribed, read, committed and deleted.

Kafka has no counterpart; Confluent's are ConsumersResource and KafkaConsumerManager.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from barnabas.client.errors import ClientError
from barnabas.rest.clients.consumer_instance import ConsumerInstance, ReadBounds
from barnabas.rest.core.instances import InstanceConfig, InstanceTable, read_instance_config
from barnabas.rest.core.read_requests import (
    offsets_to_commit,
    partitions_of,
    seek_wishes,
    subscribed_topics,
    value_text_of,
)
from barnabas.rest.errors import RestCode, RestError, topic_error_of
from barnabas.rest.http.exchange import (
    VERSION_2,
    Backend,
    accepted_format,
    base_url,
    content_format,
    json_answer,
    read_json_body,
    records_type,
)

__all__ = ["Consumers"]

logger = logging.getLogger("barnabas.rest")

_INSTANCE_PATH = "/consumers/{group}/instances/{instance}"
_LOOKS = 4  # at expired instances, within the time of one
_MOST_LOOK_S = 5.0


class Consumers:
    """The instances of this proxy."""

    def __init__(self, backend: Backend) -> None:
        settings = backend.settings
        self._backend = backend
        self._loop = asyncio.get_running_loop()
        self._timeout_s = settings.seconds("consumer.instance.timeout.ms")
        self.table: InstanceTable[ConsumerInstance] = InstanceTable(
            settings["consumer.instance.timeout.ms"], settings["consumer.instances.max"]
        )
        self._expiring = self._loop.create_task(self._expire())

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """What instances are asked."""
        router.add_route("POST", "/consumers/{group}", self._create)
        router.add_route("DELETE", _INSTANCE_PATH, self._delete)
        router.add_route("GET", f"{_INSTANCE_PATH}/records", self._records)
        for method, path, function in (
            ("POST", "subscription", _subscribe),
            ("GET", "subscription", _subscription),
            ("DELETE", "subscription", _unsubscribe),
            ("POST", "assignments", _assign),
            ("GET", "assignments", _assignments),
            ("POST", "positions", _seek),
            ("POST", "positions/beginning", _seek_to_beginning),
            ("POST", "positions/end", _seek_to_end),
            ("POST", "offsets", _commit),
            ("GET", "offsets", _committed),
        ):
            router.add_route(method, f"{_INSTANCE_PATH}/{path}", self._asks(function))

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(min(_MOST_LOOK_S, self._timeout_s / _LOOKS))
            for instance in self.table.expire(self._now_ms()):
                logger.info("The consumer instance %s of group %s ends: it was not used", instance.name, instance.group)
                await _close(instance)

    async def close(self) -> None:
        """End all instances."""
        self._expiring.cancel()
        await asyncio.gather(*(_close(instance) for instance in self.table.clear()))

    # Making, reading, deleting

    async def _create(self, request: web.Request) -> web.StreamResponse:
        _check_type(request)
        config = read_instance_config(await read_json_body(request))
        group = request.match_info["group"]
        server_id = self._backend.settings["id"]
        name = config.name or f"rest-consumer-{f'{server_id}-' if server_id else ''}{uuid.uuid4()}"
        self.table.check_room(group, name)
        try:
            instance = await asyncio.to_thread(self._new_instance, group, name, config)
        except ClientError as error:
            raise RestError(RestCode.INVALID_CONSUMER_CONFIG, f"Invalid consumer configuration: {error}") from error
        try:
            self.table.add(group, name, instance, self._now_ms())
        except RestError:  # another request was faster
            await _close(instance)
            raise
        uri = f"{base_url(request)}/consumers/{group}/instances/{name}"
        return json_answer({"instance_id": name, "base_uri": uri}, content_type=VERSION_2)

    def _new_instance(self, group: str, name: str, config: InstanceConfig) -> ConsumerInstance:
        schemas, form = self._backend.schemas, config.format
        text = value_text_of(form, (lambda data: schemas.decode(form, data)) if form.has_schema else None)
        return ConsumerInstance(group, name, config, self._backend.settings.clients["consumer"], text)

    async def _delete(self, request: web.Request) -> web.StreamResponse:
        await _close(self.table.remove(request.match_info["group"], request.match_info["instance"]))
        return web.Response(status=204)

    async def _records(self, request: web.Request) -> web.StreamResponse:
        wanted = accepted_format(request)
        async with self._using(request) as instance:
            if wanted not in (None, instance.config.format):
                raise RestError(
                    RestCode.FORMAT_MISMATCH,
                    "The requested embedded data format does not match the deserializer for this consumer instance",
                )
            data = await _run(instance, instance.read, self._limits(request, instance.config))
        kind = records_type(instance.config.format)
        return web.Response(body=data, content_type=kind)

    def _limits(self, request: web.Request, config: InstanceConfig) -> ReadBounds:
        settings = self._backend.settings
        most_ms = config.request_timeout_ms or settings["consumer.request.timeout.ms"]
        timeout_ms, max_bytes = _number(request, "timeout"), _number(request, "max_bytes")
        most_bytes = settings["consumer.request.max.bytes"]
        min_bytes = settings["fetch.min.bytes"] if config.fetch_min_bytes is None else config.fetch_min_bytes
        return ReadBounds(
            (most_ms if timeout_ms <= 0 else min(timeout_ms, most_ms)) / 1000,
            most_bytes if max_bytes <= 0 else min(max_bytes, most_bytes),
            min_bytes,
            settings["consumer.request.max.records"],
        )

    @asynccontextmanager
    async def _using(self, request: web.Request) -> AsyncIterator[ConsumerInstance]:
        """The instance of a request, which does not end meanwhile. Raises `RestError`."""
        group, name = request.match_info["group"], request.match_info["instance"]
        instance = self.table.begin_use(group, name)
        try:
            yield instance
        finally:
            self.table.end_use(group, name, self._now_ms())

    def _asks(
        self, function: Callable[[ConsumerInstance, Any], Awaitable[Any]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """A request that asks something of an instance; without a result it has no content."""

        async def handle(request: web.Request) -> web.StreamResponse:
            if request.can_read_body:
                _check_type(request)
            document = await read_json_body(request)
            async with self._using(request) as instance:
                found = await function(instance, document)
            if found is None:
                return web.Response(status=204)
            return json_answer(found, content_type=VERSION_2)

        return handle


async def _close(instance: ConsumerInstance) -> None:
    try:
        await instance.close()
    except ClientError as error:
        logger.warning("The consumer instance %s of group %s: %s", instance.name, instance.group, error)


async def _run(instance: ConsumerInstance, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return await instance.run(function, *arguments)
    except ClientError as error:
        raise topic_error_of(error) from error


def _check_type(request: web.Request) -> None:
    if request.content_type not in ("application/json", "application/octet-stream"):
        content_format(request)


def _number(request: web.Request, name: str) -> int:
    text = request.query.get(name, "-1")
    try:
        return int(text)
    except ValueError:
        raise RestError(RestCode.NOT_FOUND, "HTTP 404 Not Found") from None


async def _subscribe(instance: ConsumerInstance, document: Any) -> None:
    await _run(instance, instance.subscribe, subscribed_topics(document))


async def _subscription(instance: ConsumerInstance, _: Any) -> Any:
    return {"topics": instance.topics}


async def _unsubscribe(instance: ConsumerInstance, _: Any) -> None:
    await _run(instance, instance.unsubscribe)


async def _assign(instance: ConsumerInstance, document: Any) -> None:
    await _run(instance, instance.assign, partitions_of(document))


async def _assignments(instance: ConsumerInstance, _: Any) -> Any:
    found = await _run(instance, instance.assignment)
    return {"partitions": [{"topic": topic, "partition": partition} for topic, partition in found]}


async def _seek(instance: ConsumerInstance, document: Any) -> None:
    await _run(instance, instance.seek, seek_wishes(document))


async def _seek_to_beginning(instance: ConsumerInstance, document: Any) -> None:
    await _run(instance, instance.seek_to_beginning, partitions_of(document))


async def _seek_to_end(instance: ConsumerInstance, document: Any) -> None:
    await _run(instance, instance.seek_to_end, partitions_of(document))


async def _commit(instance: ConsumerInstance, document: Any) -> Any:
    await _run(instance, instance.commit, offsets_to_commit(document))
    return []


async def _committed(instance: ConsumerInstance, document: Any) -> Any:
    return {"offsets": await _run(instance, instance.committed, partitions_of(document))}
