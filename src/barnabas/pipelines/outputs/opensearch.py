"""An index of OpenSearch as a sink, through its bulk protocol over HTTP.

The id of a document is the row's key, so a row that comes again replaces itself. The index keeps
which query of which flow fills it, in ``_meta`` of its mapping:

    {"barnabas": {FLOW: QUERY}}

OpenSearch makes an index that is missing when documents come. So an index that was deleted while
the flow ran, or since, is there again and lacks rows, but it has another UUID and no such note.

Failures that pass (no connection, 429 and 5xx, for the whole request or for one document) are tried
again with growing pauses for a minute; others end the flow with the server's reason.
"""

import hashlib
import http.client
import json
import logging
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from barnabas.base.json_text import parse_json
from barnabas.client.registry.web import basic_authorization, open_request
from barnabas.pipelines.errors import REFILL_ADVICE
from barnabas.pipelines.outputs.declared import OpenSearchSink, OutputError
from barnabas.pipelines.outputs.table import DELETION_MARK
from barnabas.pipelines.values.arrow_values import row_dicts
from barnabas.pipelines.values.texts import as_json, as_text_value

__all__ = ["OpenSearchIndex"]

logger = logging.getLogger(__name__)
_REQUEST_BYTES = 5 * 1024 * 1024
_MAX_ID_BYTES = 512
_ANSWER_BYTES = 128 * 1024 * 1024
"""An answer to a bulk request has some hundred bytes for each document."""
_NOTES = "barnabas"
_PATIENCE_S = 60.0
_PATIENCE_AT_START_S = 15.0
_LONGEST_PAUSE_S = 5.0
_TYPES = {
    "tinyint": "byte",
    "smallint": "short",
    "int": "integer",
    "bigint": "long",
    "boolean": "boolean",
    "float": "float",
    "double": "double",
    "binary": "binary",
    "date": "date",
    "timestamp": "date",
    "timestamp_ntz": "date",
    "string": "keyword",
}
_LIMITS: dict[str, dict[str, Any]] = {
    "float": {"ignore_malformed": True},
    "double": {"ignore_malformed": True},
    "keyword": {"ignore_above": 32_766 // 4},
}
"""What documents may have, and no search finds: numbers that are none (NaN), texts longer than a
term. Otherwise the server refuses them."""


@dataclass(frozen=True, slots=True)
class _IndexState:
    """An index as it is found."""

    uuid: str | None
    """None if the server does not say."""
    meta: dict[str, Any]

    def query_of(self, flow: str) -> str | None:
        """The query that fills the index for the flow."""
        noted = self.meta.get(_NOTES)
        query = noted.get(flow) if isinstance(noted, dict) else None
        return query if isinstance(query, str) else None


class OpenSearchIndex:
    """An index, made with the columns' types if it is not there.

    Without ``types`` it is only looked at."""

    def __init__(
        self,
        sink: OpenSearchSink,
        types: Mapping[str, str] | None,
        *,
        is_stopped: Callable[[], bool] = lambda: False,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        if types is not None and (missing := [name for name in sink.text if name not in types]):
            raise OutputError(
                f"text of the index {sink.table} names {', '.join(missing)}, but the rows have {', '.join(types)}"
            )
        self._sink = sink
        self._is_stopped = is_stopped
        self._wait = wait
        self._patience_s = _PATIENCE_AT_START_S
        self._uuid: str | None = None
        """The uuid of the index that this run writes to."""
        parts = urllib.parse.urlsplit(sink.url)
        host = parts.hostname or ""
        host = f"[{host}]" if ":" in host else host
        self._url = urllib.parse.urlunsplit(
            (parts.scheme, f"{host}:{parts.port}" if parts.port else host, parts.path, "", "")
        )
        self._headers = {"Content-Type": "application/x-ndjson"}
        if parts.username:
            user, password = urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or "")
            self._headers["Authorization"] = basic_authorization(user, password)
        if types is not None:
            self._create(types)
            self._patience_s = _PATIENCE_S

    def is_there(self) -> bool:
        """Whether there is such an index.

        Raises `OutputError` if the server does not answer that."""
        status, answer = self._send("HEAD", "")
        if status >= 300 and status != 404:
            raise self._refused(status, answer)
        return status != 404

    def _create(self, types: Mapping[str, str]) -> None:
        if self.is_there():
            return
        mapping = {"mappings": {"properties": {name: self._type(name, each) for name, each in types.items()}}}
        status, answer = self._send("PUT", "", json.dumps(mapping).encode())
        if status >= 300 and "already_exists" not in json.dumps(answer):
            raise self._refused(status, answer)

    def _type(self, name: str, type_name: str) -> dict[str, Any]:
        if name in self._sink.text:
            return {"type": "text"}
        if type_name.startswith("decimal"):
            return {"type": "double", **_LIMITS["double"]}
        known = _TYPES.get(type_name)
        return {"type": known, **_LIMITS.get(known, {})} if known else {"type": "object"}

    def apply(self, rows: pa.Table, flow: str, query: str, epoch: int) -> bool:  # noqa: ARG002  # the protocol's
        """Index the rows; returns when they can be searched."""
        self._claim(flow, query)
        requests = list(self._requests(rows))
        for number, lines in enumerate(requests):
            self._bulk(lines, is_last=number == len(requests) - 1)
        return True

    def _claim(self, flow: str, query: str) -> None:
        """Keep in the index that the query fills it.

        Raises `OutputError` if it is not the index that it filled before."""
        state = self._state()
        if state is None or (self._uuid and state.uuid != self._uuid):
            raise OutputError(
                f"OpenSearch at {self._url}, index {self._sink.table}: it was deleted while the flow ran, and the rows up to now "
                f"with it. Restore it; or delete what is there of it, and {REFILL_ADVICE}"
            )
        self._uuid = state.uuid
        if state.uuid and state.query_of(flow) != query:
            noted = state.meta.get(_NOTES)
            notes = {**(noted if isinstance(noted, dict) else {}), flow: query}
            body = json.dumps({"_meta": {**state.meta, _NOTES: notes}}).encode()
            status, answer = self._send("PUT", "/_mapping", body)
            if status >= 300:
                raise self._refused(status, answer)

    def last_epoch(self, flow: str, query: str) -> int | None:
        """-1 if the index does not have the note of the query.

        An index keeps no epochs, so more is not known."""
        state = self._state()
        if state is None:
            return -1
        return None if state.uuid is None or state.query_of(flow) == query else -1

    def _state(self) -> _IndexState | None:
        """None if there is no index."""
        status, answer = self._send("GET", "")
        if status == 404:
            return None
        if status >= 300:
            raise self._refused(status, answer)
        found = (
            next(iter(answer.values()), None) if isinstance(answer, dict) else None
        )  # an alias has the index's name here
        uuid, meta = _at(found, "settings", "index", "uuid"), _at(found, "mappings", "_meta")
        return _IndexState(uuid if isinstance(uuid, str) else None, meta if isinstance(meta, dict) else {})

    def _requests(self, rows: pa.Table) -> Iterator[list[bytes]]:
        """Pairs of lines, an action and a document, up to a request's size.

        A deletion has no document."""
        lines: list[bytes] = []
        size = 0
        for row in row_dicts(rows):
            is_deleted = row.pop(DELETION_MARK, False)
            kind = "delete" if is_deleted else "index"
            pair = json.dumps({kind: {"_id": self._id(row)}}, ensure_ascii=False).encode() + b"\n"
            if not is_deleted:
                pair += as_json(row).encode() + b"\n"
            if lines and size + len(pair) > _REQUEST_BYTES:
                yield lines
                lines, size = [], 0
            lines.append(pair)
            size += len(pair)
        if lines:
            yield lines

    def _id(self, row: Mapping[str, Any]) -> str:
        values = [as_text_value(row[name]) for name in self._sink.key]
        text = json.dumps(values, ensure_ascii=False, separators=(",", ":"), default=str)
        return text if len(text.encode()) <= _MAX_ID_BYTES else hashlib.sha256(text.encode()).hexdigest()

    def _bulk(self, lines: list[bytes], *, is_last: bool) -> None:
        path = "/_bulk" + ("?refresh=true" if is_last else "")
        for pause_s in self._pauses():
            status, answer = self._send("POST", path, b"".join(lines))
            if status < 300:
                lines = self._left(lines, answer)
                if not lines:
                    return
            elif not _passes(status):
                raise self._refused(status, answer)
            if pause_s is None or status >= 300:  # it was tried again already
                break
            self._wait(pause_s)
        reason = f"{len(lines)} documents were not taken: the server is overloaded. Start the flow again later; it goes on from its checkpoint"
        raise OutputError(f"OpenSearch at {self._url}, index {self._sink.table}: {reason}")

    def _pauses(self) -> Iterator[float | None]:
        """Growing pauses between attempts, as long as there is patience; then None."""
        pause_s, waited_s = 0.1, 0.0
        while waited_s < self._patience_s and not self._is_stopped():
            yield pause_s
            waited_s += pause_s
            pause_s = min(3 * pause_s, _LONGEST_PAUSE_S)
        yield None

    def _left(self, lines: list[bytes], answer: Any) -> list[bytes]:
        """The documents to send again; raises for one that the server will never take."""
        if not answer.get("errors"):
            return []
        left = []
        for line, item in zip(lines, answer["items"], strict=True):
            ((kind, result),) = item.items()
            status = int(result["status"])
            if _passes(status):
                left.append(line)
            elif status >= 300 and (kind, status) != ("delete", 404):  # the document was not there
                raise self._refused(status, result)
        return left

    def _send(self, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
        """The status and the answer.

        A server that cannot be reached, or is not ready, is tried again."""
        url = f"{self._url}/{urllib.parse.quote(self._sink.table)}{path}"
        headers = self._headers if path.startswith("/_bulk") else {**self._headers, "Content-Type": "application/json"}
        for pause_s in self._pauses():
            request = urllib.request.Request(url, body, headers, method=method)  # noqa: S310  # http or https, by the spec
            try:
                status, answer = self._ask(request)
                reason: object = f"HTTP {status}"
                if not _passes(status) or pause_s is None:
                    return status, answer
            except (OSError, http.client.HTTPException) as error:
                # The library's error hides its reason in its text.
                reason = getattr(error, "reason", error)
                reason = getattr(reason, "strerror", None) or reason
                if pause_s is None:
                    raise OutputError(
                        f"cannot reach OpenSearch at {self._url}: {reason}. Is the address right, and does it run? Start the flow "
                        "again then; it goes on from its checkpoint"
                    ) from error
            logger.warning("OpenSearch at %s does not take a request: %s; trying again", self._url, reason)
            self._wait(pause_s)
        raise AssertionError

    def _ask(self, request: urllib.request.Request) -> tuple[int, Any]:
        try:
            with open_request(request, self._sink.timeout_ms / 1000) as response:
                return response.status, _parsed(_bounded(response))
        except urllib.error.HTTPError as error:
            with error:
                return error.code, {"error": error.reason} if error.code < 400 else _parsed(_bounded(error))

    def _refused(self, status: int, answer: Any) -> OutputError:
        error = answer.get("error") if isinstance(answer, dict) else None
        reason = str(error.get("reason")) if isinstance(error, dict) else str(error or "no reason given")
        cause = error.get("caused_by") if isinstance(error, dict) else None
        if isinstance(cause, dict) and cause.get("reason"):
            reason += f": {cause['reason']}"
        return OutputError(f"OpenSearch at {self._url} refuses, index {self._sink.table}: HTTP {status}: {reason}")

    def close(self) -> None:
        """Connections last a request."""


def _passes(status: int) -> bool:
    """Whether the same request may succeed later."""
    return status == 429 or status >= 500


def _at(value: Any, *path: str) -> Any:
    """What a JSON value has there; None if it is not so deep."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _bounded(answer: Any) -> bytes:
    """The body of an answer; of one that is too large its beginning, which is no JSON."""
    return bytes(answer.read(_ANSWER_BYTES))


def _parsed(body: bytes) -> Any:
    try:
        return parse_json(body) if body else {}
    except ValueError:
        return {"error": body[:200].decode(errors="replace")}
