"""Requests that produce records: streams of version 3, its batches, and the requests of version 2.

A stream is read as it comes. The reports of its records leave in their order, each when the
record's fate is known. What waits for a report is bounded, so a stream is read no faster than the
brokers take it, and than its client reads reports.

In Confluent's proxy: ProduceAction, ProduceBatchAction and ProduceToTopicAction.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from barnabas.client.records import Delivery
from barnabas.rest.core.embedded import EmbeddedFormat
from barnabas.rest.core.json_stream import JsonStream, json_bytes
from barnabas.rest.core.produce_requests import (
    ProduceDatum,
    ProducedRecord,
    batch_entries,
    read_produce_record,
    read_records_of_version_2,
    report_of,
)
from barnabas.rest.errors import RestCode, RestError, error_of, topic_error_of
from barnabas.rest.http.exchange import (
    VERSION_2,
    Backend,
    backend_of,
    body_parts,
    content_format,
    json_answer,
    read_json_body,
    unsupported_type,
)
from barnabas.rest.http.resources import CLUSTER_PATH

__all__ = ["add_version_2_produce", "add_version_3_produce"]

_MOST_WAITING = 1000
_WRITE_BYTES = 1 << 16
_OK = 200
_LARGEST_PARTITION = (1 << 31) - 1
_MOST_DIGITS = 10
_TOPIC_PATH = f"{CLUSTER_PATH}/topics/{{topic_name}}/records"


def add_version_3_produce(router: web.UrlDispatcher) -> None:
    """Records and batches."""
    router.add_route("POST", _TOPIC_PATH, _produce)
    router.add_route("POST", f"{_TOPIC_PATH}:batch", _produce_batch)


def add_version_2_produce(router: web.UrlDispatcher) -> None:
    """Records for a topic, or for one of its partitions."""
    router.add_route("POST", "/topics/{topic_name}", _produce_of_version_2)
    router.add_route("POST", "/topics/{topic_name}/partitions/{partition_id}", _produce_of_version_2)


class _Sent:
    """A record on its way, or the error that it ended with."""

    __slots__ = ("delivery", "error", "key", "value")

    def __init__(
        self,
        delivery: "asyncio.Future[Delivery] | None",
        key: ProduceDatum | None = None,
        value: ProduceDatum | None = None,
        error: Exception | None = None,
    ) -> None:
        self.delivery, self.key, self.value, self.error = delivery, key, value, error

    async def result(self) -> Delivery:
        """Where it went. Raises what kept it from there."""
        if self.error is not None or self.delivery is None:
            raise self.error or RestError(RestCode.INTERNAL, "Internal Server Error")
        return await self.delivery


async def _send(backend: Backend, topic: str, record: ProducedRecord) -> _Sent:
    """Send a record; what keeps it from being sent is in what is returned."""
    try:
        key = await backend.schemas.encode(topic, record.key, is_key=True)
        value = await backend.schemas.encode(topic, record.value, is_key=False)
        delivery = await backend.producer.send(
            topic, record, None if key is None else key.data, None if value is None else value.data
        )
    except Exception as error:  # one record's error is not that of the others
        return _Sent(None, error=error)
    return _Sent(delivery, key, value)


# Version 3


async def _produce(request: web.Request) -> web.StreamResponse:
    backend = backend_of(request)
    if request.content_type != "application/json":
        raise unsupported_type()
    backend.produce_requests.take()
    try:
        return await _stream(request, backend)
    finally:
        backend.produce_requests.give_back()


async def _stream(request: web.Request, backend: Backend) -> web.StreamResponse:
    topic, cluster_id = request.match_info["topic_name"], request.match_info["cluster_id"]
    waiting: asyncio.Queue[_Sent | None] = asyncio.Queue(_MOST_WAITING)
    documents = _objects(request, backend)
    try:
        first = await anext(documents)
    except StopAsyncIteration:
        raise RestError(RestCode.INVALID_PAYLOAD, "Payload error. Request body is empty. Data is required.") from None
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    stall_s = backend.settings.seconds("request.idle.timeout.ms")
    writing = asyncio.create_task(_write_reports(response, cluster_id, waiting, stall_s))
    try:
        await _offer(waiting, writing, await _send_document(backend, topic, first))
        try:
            async for document in documents:
                if not await _offer(waiting, writing, await _send_document(backend, topic, document)):
                    break
        except RestError as error:  # the stream ends here, after the reports of what came before
            await _offer(waiting, writing, _Sent(None, error=error))
            response.force_close()
        await _offer(waiting, writing, None)
        await writing
    except (ConnectionError, TimeoutError):  # the client is gone, or does not read
        if request.transport is not None:
            request.transport.abort()
        return response
    finally:
        writing.cancel()
    await response.write_eof()
    return response


async def _offer(waiting: "asyncio.Queue[_Sent | None]", writing: "asyncio.Task[None]", sent: _Sent | None) -> bool:
    """Wait for room among the reports; whether they are still written."""
    if not waiting.full():
        waiting.put_nowait(sent)
        return not writing.done()
    putting = asyncio.create_task(waiting.put(sent))
    try:
        await asyncio.wait((putting, writing), return_when=asyncio.FIRST_COMPLETED)
    finally:
        putting.cancel()
    return not writing.done()


async def _objects(request: web.Request, backend: Backend) -> AsyncIterator[dict[str, Any] | RestError]:
    """The records as they come. Raises `RestError` for what ends the stream."""
    settings = backend.settings
    most = settings["api.v3.produce.request.size.limit.max.bytes"] or settings["max.request.bytes"]
    stream, held = JsonStream(most), 0
    length_s = settings.seconds("streaming.connection.max.duration.ms")
    end = time.monotonic() + length_s
    try:
        async for part in body_parts(request, length_s):
            for document in stream.feed(part):
                yield document
            backend.bodies.give_back(held)
            held = 0
            backend.bodies.take(stream.held_bytes)
            held = stream.held_bytes
            if time.monotonic() > end:
                raise RestError(
                    RestCode.REQUEST_TIMEOUT,
                    "Streaming connection open for longer than allowed: Connection will be closed.",
                )
        stream.check_end()
    finally:
        backend.bodies.give_back(held)


async def _send_document(backend: Backend, topic: str, document: dict[str, Any] | RestError) -> _Sent:
    if isinstance(document, RestError):
        return _Sent(None, error=document)
    try:
        record = read_produce_record(document)
    except RestError as error:
        return _Sent(None, error=error)
    return await _send(backend, topic, record)


async def _write_reports(
    response: web.StreamResponse, cluster_id: str, waiting: "asyncio.Queue[_Sent | None]", stall_s: float
) -> None:
    """Each report when it is there; those that are there together in one write.

    Raises ConnectionError for a client that is gone, TimeoutError for one that does not read."""
    held = bytearray()

    async def write() -> None:
        async with asyncio.timeout(stall_s):
            await response.write(bytes(held))
        held.clear()

    while True:
        if held and (waiting.empty() or len(held) > _WRITE_BYTES):
            await write()
        sent = await waiting.get()
        if sent is None:
            if held:
                await write()
            return
        if held and sent.delivery is not None and not sent.delivery.done():
            await write()
        held += json_bytes(await _report(cluster_id, sent)) + b"\r\n"


async def _report(cluster_id: str, sent: _Sent) -> dict[str, Any]:
    try:
        delivery = await sent.result()
    except Exception as error:  # one record's error is not that of the others
        return error_of(error).document
    return {"error_code": _OK, **report_of(cluster_id, delivery, sent.key, sent.value)}


async def _produce_batch(request: web.Request) -> web.StreamResponse:
    backend = backend_of(request)
    if request.content_type != "application/json":
        raise unsupported_type()
    topic, cluster_id = request.match_info["topic_name"], request.match_info["cluster_id"]
    backend.produce_requests.take()
    try:
        document = await read_json_body(request)
        entries = batch_entries(document, backend.settings["api.v3.produce.batch.maximum.entries"])
        sent = []
        for entry_id, entry in entries:
            try:
                record = read_produce_record(entry, more={"id"})
            except RestError as error:
                sent.append((entry_id, _Sent(None, error=error)))
                continue
            sent.append((entry_id, await _send(backend, topic, record)))
        successes, failures = [], []
        for entry_id, each in sent:
            report = await _report(cluster_id, each)
            code = report.pop("error_code")
            if code == _OK:
                successes.append({"id": entry_id, **report})
            else:
                failures.append({"id": entry_id, "error_code": code, **report})
    finally:
        backend.produce_requests.give_back()
    return json_answer({"successes": successes, "failures": failures}, 207)


# Version 2


async def _produce_of_version_2(request: web.Request) -> web.StreamResponse:
    backend = backend_of(request)
    form = content_format(request) or EmbeddedFormat.BINARY
    topic, partition = request.match_info["topic_name"], _partition_of(request)
    backend.produce_requests.take()
    try:
        records = read_records_of_version_2(await read_json_body(request), form, partition)
        sent: list[_Sent] = []
        for record in records:
            each = await _send(backend, topic, record)
            if each.error is not None:
                await _settle(sent)
                raise topic_error_of(each.error)
            sent.append(each)
        offsets = [await _offset_of(each) for each in sent]
    finally:
        backend.produce_requests.give_back()
    document = {
        "offsets": offsets,
        "key_schema_id": _schema_id(each.key for each in sent),
        "value_schema_id": _schema_id(each.value for each in sent),
    }
    return json_answer(document, content_type=VERSION_2)


def _partition_of(request: web.Request) -> int | None:
    text = request.match_info.get("partition_id")
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS and int(text) <= _LARGEST_PARTITION):
        raise RestError(RestCode.PARTITION_NOT_FOUND, "Partition not found.")
    return int(text)


async def _settle(sent: list[_Sent]) -> None:
    """Wait for the records that were sent before one that cannot be: none is under way when the
    request is answered."""
    await asyncio.gather(*(each.delivery for each in sent if each.delivery is not None), return_exceptions=True)


async def _offset_of(sent: _Sent) -> dict[str, Any]:
    try:
        delivery = await sent.result()
    except Exception as error:  # one record's error is not that of the others
        found = topic_error_of(error)
        return {"partition": None, "offset": None, "error_code": found.code, "error": found.message}
    return {"partition": delivery.partition, "offset": delivery.offset, "error_code": None, "error": None}


def _schema_id(data: Any) -> int | None:
    for datum in data:
        if datum is not None and datum.schema is not None:
            return int(datum.schema.schema_id)
    return None
