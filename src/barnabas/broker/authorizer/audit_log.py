"""The audit log: a line for each operation that was denied, and for each administrative one.

    Principal = User:bob is Denied Operation = Read from host = 10.0.0.7 on resource =
    Topic:LITERAL:orders for request = Fetch with resourceRefCount = 1

Up to here a line is Kafka's. Behind it stands what Kafka does not write: what became of an
administrative request and what it changes, or how often the same was denied again. Lines never
have values: neither of settings, nor of passwords. The parts of a line are also in the attribute
``audit`` of its log record, for a log in JSON.

Denied operations are summed up (`RepeatedEvents`): an application that lacks a right may ask for it
thousands of times a second. Lines of administrative requests are not: each of them is a change of
the cluster, or an attempt.

Text that a client chose is cut. A line of text does not separate it from the words around it; JSON
does.

In Kafka: `AclAuthorizer.logAuditMessage`, and the logger ``kafka.authorizer.logger``. There lines
of allowed operations, administrative or not, are of level DEBUG.
"""

import logging
from typing import Any, NamedTuple

from barnabas.base.clock import CallLater
from barnabas.base.repeated_events import SUM_INTERVAL_MS, WITHIN_INTERVAL, EventCount, RepeatedEvents
from barnabas.broker.authorizer.administration import MAX_SHOWN, SHOWN_CHARACTERS, Outcomes, changes_of, cut_text
from barnabas.broker.requests.request import Request
from barnabas.security.acls import AclOperation, ResourceType, pascal_case
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode

__all__ = ["AuthorizerLog", "RequestedAction", "authorizer_logger", "log_decision"]

authorizer_logger = logging.getLogger("kafka.authorizer.logger")


class RequestedAction(NamedTuple):
    """What somebody wants to do (Kafka's `Action`)."""

    api_key: ApiKey
    operation: AclOperation
    resource_type: ResourceType
    name: str
    reference_count: int = 1
    """How often the request names the resource."""
    pattern_type: str = "LITERAL"

    def parts(self) -> dict[str, Any]:
        """For a line in JSON."""
        return {
            "operation": pascal_case(self.operation),
            "resourceType": pascal_case(self.resource_type),
            "patternType": self.pattern_type,
            "resourceName": self.name,
            "request": _request_name(self.api_key),
            "resourceRefCount": self.reference_count,
        }


_NAME = RequestedAction._fields.index("name")


class _Source(NamedTuple):
    principal: str
    host: str


class AuthorizerLog:
    """Writes the lines."""

    def __init__(self, call_later: CallLater | None = None) -> None:
        """Without ``call_later`` each denied operation has a line."""
        self._denied = (
            None if call_later is None else RepeatedEvents[tuple[str, str], tuple[Any, ...]](_write_denied, call_later)
        )

    def log_denial(self, principal: str, host: str, action: tuple[Any, ...]) -> None:
        """A client wants to do this, and may not.

        ``action`` has the fields of a `RequestedAction`."""
        if self._denied is None:
            log_decision(logging.INFO, principal, host, RequestedAction(*action), is_allowed=False)
            return
        if len(action[_NAME]) > SHOWN_CHARACTERS or len(principal) > SHOWN_CHARACTERS:
            principal, action = cut_text(principal), _cut(RequestedAction(*action))
        self._denied.add((principal, host), action)

    def log_when_answered(self, request: Request, host: str, action: RequestedAction) -> None:
        """The client of an administrative request may do this; a line follows with the answer."""
        actions = request.administrative_actions
        if actions is None:
            return
        if not actions:
            request.when_answered(
                lambda answered, response, code: _write_answered(answered, host, actions, response, code)
            )
        actions.append(_cut(action) if len(actions) < MAX_SHOWN else None)

    def close(self) -> None:
        """Write what was counted so far."""
        if self._denied is not None:
            self._denied.close()


def log_decision(level: int, principal: str, host: str, action: RequestedAction, *, is_allowed: bool) -> None:
    """Write a line for one decision, because somebody wants to see all of them."""
    source, action = _Source(cut_text(principal), host), _cut(action)
    _log(level, _line(source, action, is_allowed), source, action, allowed=is_allowed)


def _write_denied(event: EventCount[tuple[str, str], tuple[Any, ...]]) -> None:
    source = None if event.source is None else _Source(*event.source)
    action = None if event.event is None else RequestedAction(*event.event)
    times = event.times
    parts: dict[str, Any] = {"allowed": False}
    if times:
        parts |= {"count": times, "intervalSeconds": SUM_INTERVAL_MS // 1000}
    if source is None:
        text = f"{times} further operations of other principals are Denied {WITHIN_INTERVAL}"
    elif action is None:
        text = f"Principal = {source.principal} is Denied {times} further operations from host = {source.host} {WITHIN_INTERVAL}"
    else:
        text = _line(source, action, False)
        if times:
            text += f", again {times} times {WITHIN_INTERVAL}"
    _log(logging.INFO, text, source, action, **parts)


def _write_answered(
    request: Request, host: str, actions: list[RequestedAction | None], response: Any, code: ErrorCode | None
) -> None:
    source, answers = _Source(cut_text(request.client.principal), host), Outcomes(response, code)
    for action in dict.fromkeys(each for each in actions if each is not None):
        result, changes = answers.result_of(action.name), changes_of(request, action.name)
        text = f"{_line(source, action, True)}, result = {result}"
        parts: dict[str, Any] = {"allowed": True, "result": result}
        if changes:
            text += f", changes = {'; '.join(changes)}"
            parts["changes"] = changes
        _log(logging.INFO, text, source, action, **parts)
    if further := actions.count(None):
        text = (
            f"Principal = {source.principal} is Allowed {further} further operations from host = {source.host} "
            f"for request = {_request_name(request.api_key)}"
        )
        _log(logging.INFO, text, source, None, allowed=True, count=further, request=_request_name(request.api_key))


def _log(level: int, text: str, source: _Source | None, action: RequestedAction | None, **more: Any) -> None:
    who = {} if source is None else source._asdict()
    what = {} if action is None else action.parts()
    authorizer_logger.log(level, "%s", text, extra={"audit": {**who, **what, **more}})


def _line(source: _Source, action: RequestedAction, is_allowed: bool) -> str:
    return (
        f"Principal = {source.principal} is {'Allowed' if is_allowed else 'Denied'} "
        f"Operation = {pascal_case(action.operation)} from host = {source.host} on resource = "
        f"{pascal_case(action.resource_type)}:{action.pattern_type}:{action.name} "
        f"for request = {_request_name(action.api_key)} with resourceRefCount = {action.reference_count}"
    )


def _cut(action: RequestedAction) -> RequestedAction:
    name = cut_text(action.name)
    return action if name is action.name else action._replace(name=name)


def _request_name(api_key: ApiKey) -> str:
    """As Kafka writes it: ``CreateTopics``."""
    return "".join(part.capitalize() for part in api_key.name.split("_"))
