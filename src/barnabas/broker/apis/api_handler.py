"""The registration of an API module: its key, the versions that it serves, its functions and their
parts.

A module says first what it touches: ``handle`` takes one component of the broker, or several in a
``Parts`` of the module. The function ``parts`` takes these out of `Services`, once for each broker.

In Kafka: the cases of `KafkaApis.handle`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from barnabas.broker.apis.request_sizes import LIMIT_OF_ALL, most_request_bytes
from barnabas.broker.apis.services import Services
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.requests.request import Request
from barnabas.broker.requests.request_handler import RequestHandler
from barnabas.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey, api
from barnabas.wire.kafka.errors import ErrorCode

__all__ = ["ApiHandler", "no_parts"]

Parts = TypeVar("Parts")


@dataclass(frozen=True, slots=True)
class ApiHandler(Generic[Parts]):
    """An API key, the versions served, and the function that serves them."""

    key: ApiKey
    min_version: int
    max_version: int
    handle: Callable[[Parts, Request], None]
    parts: Callable[[Services], Parts]
    """What ``handle`` is given of a broker; `no_parts` for a handler that needs none."""
    fail: Callable[[Any, int, ErrorCode], Any] | None = None
    """Makes the response that carries an error, from the request's message, its
    version and the code. A response of None closes the connection.

    None for APIs whose response has a field ``error_code`` of its own: that is then
    all that is set.
    """
    inter_broker: bool = False
    """Whether only brokers may send it: it needs CLUSTER_ACTION where there is an authorizer."""
    or_alter: bool = False
    """Whether ALTER of the cluster is enough for what only brokers may send otherwise: operators'
    tools send it, too."""
    administrative: bool = False
    """Whether it changes the cluster: the audit log has a line for what its client may do, where
    there is an authorizer."""
    max_request_bytes: int = 0
    """The largest request; 0 for what `most_request_bytes` says of its form, and no
    limit for those of brokers."""
    too_large: ErrorCode | None = None
    """The error for a larger one, of which there is no message. None closes the connection, as
    Kafka does for a request larger than socket.request.max.bytes."""
    refusal: Callable[[Parts, memoryview, int, int], str | None] | None = None
    """See `RequestHandler.refusal`."""

    @property
    def versions(self) -> range:
        """The versions served."""
        return range(self.min_version, self.max_version + 1)

    def bind(self, services: Services) -> RequestHandler:
        """The handler of one broker."""
        parts = self.parts(services)
        handle = partial(self.handle, parts)
        if self.inter_broker:
            handle = partial(_of_brokers, services.auth_helper, self.or_alter, handle)
        if self.administrative:
            handle = partial(_of_administrators, handle)
        return RequestHandler(
            self.key,
            self.min_version,
            self.max_version,
            handle,
            self.fail or self._error_only,
            self.max_request_bytes
            or (LIMIT_OF_ALL if self.inter_broker else most_request_bytes(api(self.key).request)),
            self.too_large,
            None if self.refusal is None else partial(self.refusal, parts),
        )

    def _error_only(self, _message: Any, _version: int, code: ErrorCode) -> Any:
        return api(self.key).response(error_code=code)


def _of_brokers(auth_helper: AuthHelper, or_alter: bool, handle: Callable[[Request], None], request: Request) -> None:
    """Serve what only brokers may send."""
    if not or_alter or not auth_helper.authorize(
        request, AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False
    ):
        auth_helper.authorize_cluster_action(request)
    handle(request)


def _of_administrators(handle: Callable[[Request], None], request: Request) -> None:
    """Serve what changes the cluster."""
    request.administrative_actions = []
    handle(request)


def no_parts(_: Services) -> None:
    """For a handler that answers from the request alone."""
