"""Live reading: a topic's records as server-sent events, which a browser or ``curl -N`` reads.

A stream whose client does not read waits, and is closed when it has waited too long. The server
keeps no more for it than its connection's buffer.

Confluent's proxy has no counterpart.
"""

import asyncio
from collections.abc import Callable

from aiohttp import web

from barnabas.base.ids import TopicPartition
from barnabas.client.errors import ClientError
from barnabas.client.records import Record
from barnabas.rest.clients.topic_events import EventChunk
from barnabas.rest.core.embedded import EmbeddedFormat
from barnabas.rest.core.event_texts import (
    KEEP_ALIVE,
    error_event,
    position_line,
    positions_of,
    record_event,
    start_offset,
)
from barnabas.rest.core.read_requests import ValueText, value_text_of
from barnabas.rest.errors import RestCode, RestError, error_of
from barnabas.rest.http.exchange import Backend, backend_of
from barnabas.rest.http.resources import CLUSTER_PATH

__all__ = ["add_event_streams"]

_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
}
_HELD_BYTES = 1 << 15
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.005, 0.5
_MOST_DIGITS = 10
_KNOWN = {"partition", "offset", "format", "key_format"}


def add_event_streams(router: web.UrlDispatcher) -> None:
    """Reading records of a topic."""
    router.add_route("GET", f"{CLUSTER_PATH}/topics/{{topic_name}}/records", _read)


async def _read(request: web.Request) -> web.StreamResponse:
    backend = backend_of(request)
    backend.event_streams.take()
    try:
        return await _open(request, backend)
    finally:
        backend.event_streams.give_back()


async def _open(request: web.Request, backend: Backend) -> web.StreamResponse:
    """Raises `RestError` before the stream begins; an event says what ends it later."""
    if unknown := request.query.keys() - _KNOWN:
        raise RestError(RestCode.BAD_REQUEST, f"{min(unknown)[:50]} is not known: {', '.join(sorted(_KNOWN))} are")
    form = EmbeddedFormat.of(request.query.get("format", "BINARY"))
    key_form = EmbeddedFormat.of(request.query.get("key_format", form))
    start = start_offset(request.query.get("offset", "latest"))
    resumed = positions_of(request.headers.get("Last-Event-ID", ""))
    bounds = await backend.events.bounds(request.match_info["topic_name"], _partition(request))
    cursors = {}
    for place, (first, end) in bounds.items():
        wanted = resumed.get(place.partition, start)
        cursors[place] = end if wanted is None else min(max(wanted, first), end)
    response = web.StreamResponse(headers=_HEADERS)
    waker = asyncio.Event()
    backend.events.watch({place: end for place, (_, end) in bounds.items()}, waker)
    try:
        await response.prepare(request)
        stream = _EventStream(request, response, backend, cursors, waker, key_form, form)
        await stream.run()
    finally:
        backend.events.unwatch(cursors, waker)
    return response


def _partition(request: web.Request) -> int | None:
    text = request.query.get("partition")
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS and int(text) < 1 << 31):
        raise RestError(RestCode.BAD_REQUEST, "partition: a number is expected")
    return int(text)


class _EventStream:
    """One open stream: its places, and its connection."""

    __slots__ = ("_backend", "_cursors", "_forms", "_made", "_request", "_response", "_stall_s", "_waker")

    def __init__(
        self,
        request: web.Request,
        response: web.StreamResponse,
        backend: Backend,
        cursors: dict[TopicPartition, int],
        waker: asyncio.Event,
        key_form: EmbeddedFormat,
        form: EmbeddedFormat,
    ) -> None:
        self._request, self._response, self._backend = request, response, backend
        self._cursors, self._waker = cursors, waker
        self._forms = (key_form, form)
        self._made = _maker(backend, key_form, form)
        self._stall_s = backend.settings.seconds("event.stream.stall.timeout.ms")

    async def run(self) -> None:
        """Until the client goes, the topic is gone, or the server ends."""
        keep_alive_s = self._backend.settings.seconds("event.stream.keep.alive.ms")
        try:
            await self._write(self._position())
            while not self._backend.closing.is_set():
                self._waker.clear()
                if await self._send_what_is_there():
                    continue
                try:
                    async with asyncio.timeout(keep_alive_s):
                        await self._waker.wait()
                except TimeoutError:
                    await self._write(KEEP_ALIVE)
        except (ClientError, RestError) as error:
            await self._write(error_event(error_of(error)))
        except TimeoutError:  # it was not read for too long
            if self._request.transport is not None:
                self._request.transport.abort()
        except ConnectionError:
            pass  # the client has gone

    async def _send_what_is_there(self) -> bool:
        """Whether there was something, in any partition."""
        has_moved = False
        for place, at in self._cursors.items():
            chunk = await self._backend.events.chunk(place, at)
            if chunk is None:
                continue
            for text in await self._events(chunk):
                await self._write(text)
            self._cursors[place] = chunk.stop
            has_moved = True
        if has_moved:
            await self._write(self._position())
        return has_moved

    async def _events(self, chunk: EventChunk) -> list[bytes]:
        """Written in pieces: many small events together."""
        if any(form.has_schema for form in self._forms) and self._forms not in chunk.texts:
            events = await asyncio.to_thread(chunk.events, self._forms, self._made)
        else:
            events = chunk.events(self._forms, self._made)
        pieces, held, size = [], [], 0
        for event in events:
            held.append(event)
            size += len(event)
            if size >= _HELD_BYTES:
                pieces.append(b"".join(held))
                held, size = [], 0
        if held:
            pieces.append(b"".join(held))
        return pieces

    def _position(self) -> bytes:
        return position_line({place.partition: offset for place, offset in self._cursors.items()})

    async def _write(self, data: bytes) -> None:
        """Return when little of it waits in the connection. Raises TimeoutError for a client that
        does not read."""
        async with asyncio.timeout(self._stall_s):
            await self._response.write(data)
            pause_s = _FIRST_PAUSE_S
            while (transport := self._request.transport) is not None:
                if transport.get_write_buffer_size() <= _HELD_BYTES:
                    return
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LAST_PAUSE_S)
        raise ConnectionResetError


def _maker(backend: Backend, key_form: EmbeddedFormat, form: EmbeddedFormat) -> Callable[[Record[bytes, bytes]], bytes]:
    def text_of(each: EmbeddedFormat) -> ValueText:
        return value_text_of(each, (lambda data: backend.schemas.decode(each, data)) if each.has_schema else None)

    key_text, value_text = text_of(key_form), text_of(form)
    return lambda record: record_event(record, key_text, value_text)
