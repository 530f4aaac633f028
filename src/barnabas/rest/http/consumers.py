"""Consumers of version 2: instances that are made, subscribed, read, committed and deleted.

In Confluent's proxy: ConsumersResource and KafkaConsumerManager.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import quote

from aiohttp import web

from barnabas.client.errors import ClientError
from barnabas.rest.clients.consumer_instance import ConsumerInstance, ReadBounds
from barnabas.rest.core.instances import InstanceConfig, read_instance_config
from barnabas.rest.core.read_requests import offsets_to_commit, partitions_of, seek_wishes, subscribed_topics
from barnabas.rest.core.settings import RestSettings
from barnabas.rest.errors import RestCode, RestError, topic_error_of
from barnabas.rest.http.exchange import (
    VERSION_2,
    accepted_format,
    backend_of,
    base_url,
    content_format,
    json_answer,
    read_json_body,
    records_type,
)

__all__ = ["add_consumers"]

_MOST_WAIT_MS = 300_000
_INSTANCE_PATH = "/consumers/{group}/instances/{instance}"


def add_consumers(router: web.UrlDispatcher) -> None:
    """What consumer instances are asked."""
    router.add_route("POST", "/consumers/{group}", _create)
    router.add_route("DELETE", _INSTANCE_PATH, _delete)
    router.add_route("GET", f"{_INSTANCE_PATH}/records", _records)
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
        router.add_route(method, f"{_INSTANCE_PATH}/{path}", _asks(function))


async def _create(request: web.Request) -> web.StreamResponse:
    if request.can_read_body:
        _check_type(request)
    config = read_instance_config(await read_json_body(request))
    group = request.match_info["group"]
    name = await backend_of(request).consumers.create(group, config)
    uri = f"{base_url(request)}/consumers/{quote(group, safe='')}/instances/{name}"
    return json_answer({"instance_id": name, "base_uri": uri}, content_type=VERSION_2)


async def _delete(request: web.Request) -> web.StreamResponse:
    await backend_of(request).consumers.remove(request.match_info["group"], request.match_info["instance"])
    return web.Response(status=204)


def _using(request: web.Request) -> AbstractAsyncContextManager[ConsumerInstance]:
    return backend_of(request).consumers.using(request.match_info["group"], request.match_info["instance"])


async def _records(request: web.Request) -> web.StreamResponse:
    wanted = accepted_format(request)
    async with _using(request) as instance:
        if wanted not in (None, instance.config.format):
            raise RestError(
                RestCode.FORMAT_MISMATCH,
                "The requested embedded data format does not match the deserializer for this consumer instance",
            )
        bounds = _bounds(request, backend_of(request).settings, instance.config)
        async with instance.reading:
            data, records = await _run(instance, instance.read, bounds)
            if request.transport is None or request.transport.is_closing():
                await instance.run(instance.put_back, records)
    return web.Response(body=data, content_type=records_type(instance.config.format))


def _bounds(request: web.Request, settings: RestSettings, config: InstanceConfig) -> ReadBounds:
    most_ms = min(config.request_timeout_ms or settings["consumer.request.timeout.ms"], _MOST_WAIT_MS)
    timeout_ms, max_bytes = _number(request, "timeout"), _number(request, "max_bytes")
    most_bytes = settings["consumer.request.max.bytes"]
    min_bytes = settings["fetch.min.bytes"] if config.fetch_min_bytes is None else config.fetch_min_bytes
    return ReadBounds(
        (most_ms if timeout_ms <= 0 else min(timeout_ms, most_ms)) / 1000,
        most_bytes if max_bytes <= 0 else min(max_bytes, most_bytes),
        min_bytes,
        settings["consumer.request.max.records"],
    )


def _asks(
    function: Callable[[ConsumerInstance, Any], Awaitable[Any]],
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """A request that asks something of an instance; without a result it has no content."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.can_read_body:
            _check_type(request)
        document = await read_json_body(request)
        async with _using(request) as instance:
            found = await function(instance, document)
        if found is None:
            return web.Response(status=204)
        return json_answer(found, content_type=VERSION_2)

    return handle


async def _run(instance: ConsumerInstance, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return await instance.run(function, *arguments)
    except ClientError as error:
        raise topic_error_of(error) from error


def _check_type(request: web.Request) -> None:
    if request.content_type != "application/json":
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
