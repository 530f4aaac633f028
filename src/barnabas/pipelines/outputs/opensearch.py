"""An index of OpenSearch as a sink, through its bulk protocol over HTTP.

The id of a document is the row's key, so a row that comes again replaces itself and nothing needs to be noted about
batches. Failures that pass (429 and 5xx, for the whole request or for one document) are tried again with growing pauses;
others end the flow with the server's reason.
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
from typing import Any

import pyarrow as pa

from barnabas.client.web import basic_authorization, open_request
from barnabas.pipelines.arrow_values import row_dicts
from barnabas.pipelines.outputs.declared import OpenSearchSink, OutputError
from barnabas.pipelines.texts import as_json, as_text_value

__all__ = ["OpenSearchIndex"]

logger = logging.getLogger(__name__)
_REQUEST_BYTES = 5 * 1024 * 1024
_MAX_ID_BYTES = 512
_PAUSES_S = (0.1, 0.3, 1.0, 3.0, 10.0)
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


class OpenSearchIndex:
    """An index, made with the columns' types if it is not there. Without ``types`` it is only looked at."""

    def __init__(
        self, sink: OpenSearchSink, types: Mapping[str, str] | None, *, wait: Callable[[float], None] = time.sleep
    ) -> None:
        if types is not None and (missing := [name for name in sink.text if name not in types]):
            raise OutputError(
                f"text of the index {sink.table} names {', '.join(missing)}, but the rows have {', '.join(types)}"
            )
        self._sink = sink
        self._wait = wait
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
        self._is_new = types is not None and self._create(types)

    def is_there(self) -> bool:
        """Whether there is such an index; raises `OutputError` if the server does not answer that."""
        status, answer = self._send("HEAD", "")
        if status >= 300 and status != 404:
            raise self._refused(status, answer)
        return status != 404

    def _create(self, types: Mapping[str, str]) -> bool:
        """Whether there was no index."""
        if self.is_there():
            return False
        mapping = {"mappings": {"properties": {name: self._type(name, each) for name, each in types.items()}}}
        status, answer = self._send("PUT", "", json.dumps(mapping).encode())
        if status >= 300 and "already_exists" not in json.dumps(answer):
            raise self._refused(status, answer)
        return status < 300

    def _type(self, name: str, type_name: str) -> dict[str, Any]:
        if name in self._sink.text:
            return {"type": "text"}
        if type_name.startswith("decimal"):
            return {"type": "double"}
        return {"type": _TYPES[type_name]} if type_name in _TYPES else {"type": "object"}

    def apply(self, rows: pa.Table, flow: str, query: str, epoch: int) -> bool:  # noqa: ARG002  # the protocol's
        """Index the rows; returns when they can be searched."""
        requests = list(self._requests(rows))
        for number, lines in enumerate(requests):
            self._bulk(lines, is_last=number == len(requests) - 1)
        return True

    def last_epoch(self, flow: str, query: str) -> int | None:  # noqa: ARG002  # the protocol's
        """-1 if the index was made just now; an index keeps no epochs."""
        return -1 if self._is_new else None

    def _requests(self, rows: pa.Table) -> Iterator[list[bytes]]:
        """Pairs of lines, an action and a document, up to a request's size."""
        lines: list[bytes] = []
        size = 0
        for row in row_dicts(rows):
            action = json.dumps({"index": {"_id": self._id(row)}}, ensure_ascii=False).encode()
            pair = action + b"\n" + as_json(row).encode() + b"\n"
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
        for pause_s in (*_PAUSES_S, None):
            status, answer = self._send("POST", path, b"".join(lines))
            if status < 300:
                lines = self._left(lines, answer)
                if not lines:
                    return
            elif status != 429 and status < 500:
                raise self._refused(status, answer)
            if pause_s is None:
                reason = f"{len(lines)} documents were not taken: the server is overloaded"
                raise OutputError(f"OpenSearch at {self._url}, index {self._sink.table}: {reason}")
            self._wait(pause_s)

    def _left(self, lines: list[bytes], answer: Any) -> list[bytes]:
        """The documents to send again; raises for one that the server will never take."""
        if not answer.get("errors"):
            return []
        left = []
        for line, item in zip(lines, answer["items"], strict=True):
            (result,) = item.values()
            status = int(result["status"])
            if status == 429 or status >= 500:
                left.append(line)
            elif status >= 300:
                raise self._refused(status, result)
        return left

    def _send(self, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
        """The status and the answer; a server that cannot be reached is tried again, too."""
        url = f"{self._url}/{urllib.parse.quote(self._sink.table)}{path}"
        headers = self._headers if path.startswith("/_bulk") else {**self._headers, "Content-Type": "application/json"}
        timeout_s = self._sink.timeout_ms / 1000
        for pause_s in (*_PAUSES_S, None):
            request = urllib.request.Request(url, body, headers, method=method)  # noqa: S310  # http or https, by the spec
            try:
                with open_request(request, timeout_s) as response:
                    return response.status, _parsed(response.read())
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, {"error": error.reason} if error.code < 400 else _parsed(error.read())
            except (OSError, http.client.HTTPException) as error:
                reason = getattr(error, "reason", error)  # of the library's error, which hides it in its text
                reason = getattr(reason, "strerror", None) or reason
                if pause_s is None:
                    raise OutputError(
                        f"cannot reach OpenSearch at {self._url}: {reason}. Is the address right, and does it run? Start the flow "
                        "again then; it goes on from its checkpoint"
                    ) from error
                logger.warning("cannot reach OpenSearch at %s: %s; trying again", self._url, reason)
                self._wait(pause_s)
        raise AssertionError

    def _refused(self, status: int, answer: Any) -> OutputError:
        error = answer.get("error") if isinstance(answer, dict) else None
        reason = str(error.get("reason")) if isinstance(error, dict) else str(error or "no reason given")
        cause = error.get("caused_by") if isinstance(error, dict) else None
        if isinstance(cause, dict) and cause.get("reason"):
            reason += f": {cause['reason']}"
        return OutputError(f"OpenSearch at {self._url} refuses, index {self._sink.table}: HTTP {status}: {reason}")

    def close(self) -> None:
        """Connections last a request."""


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body) if body else {}
    except ValueError:
        return {"error": body[:200].decode(errors="replace")}
