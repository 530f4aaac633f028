"""`LeaderForwarding`: hands a request that writes to the instance that leads.

The request keeps its method, path, body and credentials, and gets the header ``X-Forward``, by
which the other one knows that it must not be forwarded again. The answer comes back as it is.

In Confluent's registry: `KafkaSchemaRegistry` forwards by `RestService`.
"""

import ssl
from collections.abc import Mapping
from typing import NamedTuple

import aiohttp
from yarl import URL

from barnabas.registry.errors import ErrorCode, RegistryError
from barnabas.registry.http.settings import HttpSettings
from barnabas.registry.storage.identity import RegistryIdentity

__all__ = ["FORWARDED", "READ_POSITION", "ForwardedAnswer", "LeaderAbsentError", "LeaderForwarding"]

FORWARDED = "X-Forward"
READ_POSITION = "X-Registry-Position"
"""The offset up to which the leader has read the topic: who forwarded waits until it has, too."""
_KEPT = ("Content-Type", "Accept", "Authorization")


class LeaderAbsentError(RegistryError):
    """Nothing listens at the leader's address: it has not got the request."""


class ForwardedAnswer(NamedTuple):
    """The leader's answer."""

    status: int
    body: bytes
    content_type: str
    position: int | None


class LeaderForwarding:
    """Connections to the leader. Made on the event loop, and closed there."""

    def __init__(self, settings: HttpSettings, tls: ssl.SSLContext) -> None:
        """``tls`` verifies the leader, and shows it the own certificate, if there is one."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls),
            timeout=aiohttp.ClientTimeout(
                total=(settings.leader_connect_timeout_ms + settings.leader_read_timeout_ms) / 1000,
                sock_connect=settings.leader_connect_timeout_ms / 1000,
                sock_read=settings.leader_read_timeout_ms / 1000,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=True,
        )

    async def forward(
        self, leader: RegistryIdentity, method: str, raw_path: str, headers: Mapping[str, str], body: bytes
    ) -> ForwardedAnswer:
        """The leader's answer, whatever it is.

        Raises RegistryError FORWARDING_FAILED, `LeaderAbsentError` where it was not sent."""
        kept = {name: headers[name] for name in _KEPT if name in headers}
        try:
            async with self._session.request(
                method,
                URL(leader.url + raw_path, encoded=True),
                headers={**kept, FORWARDED: "true"},
                data=body or None,
                allow_redirects=False,
            ) as response:
                position = response.headers.get(READ_POSITION, "")
                return ForwardedAnswer(
                    response.status,
                    await response.read(),
                    response.headers.get("Content-Type", ""),
                    int(position) if position.isascii() and position.isdecimal() and len(position) < 19 else None,
                )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            kind = LeaderAbsentError if isinstance(error, aiohttp.ClientConnectorError) else RegistryError
            raise kind(
                ErrorCode.FORWARDING_FAILED,
                f"Unexpected error while forwarding the {method} request to {leader.url}: {error or type(error).__name__}",
            ) from error

    async def close(self) -> None:
        """End the connections."""
        await self._session.close()
