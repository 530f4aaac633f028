"""Who may take a snapshot of the server's state, or replace it by one, and how often.

The client proves who it is in the header ``Authorization: SCHEME CREDENTIALS``, by the scheme
digest or ip. It needs each permission that there is on the root node. A node is open to all until
its ACL is changed: who can reach the admin server of such a tree can take or replace all of it.

In ZooKeeper: Commands.SnapshotCommand, Commands.RestoreCommand and AuthRequest; RateLimiter.
"""

import logging
from http import HTTPStatus

from barnabas.base.settings import Values
from barnabas.coordination.admin.commands import NOT_SERVING, STATE_COMMANDS, json_response
from barnabas.coordination.core.access import AccessRules, authenticate, ip_id, is_allowed
from barnabas.coordination.server.view import ServerView
from barnabas.net.http import HttpResponse
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.records import Id

__all__ = ["StateCommands", "state_command_of"]

logger = logging.getLogger(__name__)
_EACH_PERMISSION = (1, 2, 4, 8, 16)
_PRIMARY = {name: primary for primary, (_, other) in STATE_COMMANDS.items() for name in (primary, other)}


def state_command_of(name: str) -> str | None:
    """The command of one of its names; None for other commands."""
    return _PRIMARY.get(name)


class StateCommands:
    """Decides whether a command may run now."""

    def __init__(self, settings: Values) -> None:
        self._is_enabled = {name: bool(settings[f"admin.{name}.enabled"]) for name in STATE_COMMANDS}
        self._interval_ms: int = settings["admin.rateLimiterIntervalInMS"]
        self._last_ms: dict[str, int] = {}

    def admit(
        self, command: str, method: str, authorization: str | None, address: str, view: ServerView
    ) -> HttpResponse | None:
        """None if the command may run, and its interval begins; else the answer that
        says why it may not.

        ``address`` is the client's, ``authorization`` the header.
        """
        if not view.state.is_serving:
            return json_response(command, NOT_SERVING)
        if authorization is None:
            return _refuse(command, HTTPStatus.UNAUTHORIZED, "Auth info is missing for the command", address)
        rules = view.processor.limits.access
        try:
            ids = _identities(rules, authorization, address)
        except KeeperError:
            return _refuse(command, HTTPStatus.UNAUTHORIZED, "Not authenticated", address)
        acl = view.processor.database.tree.nodes["/"].acl
        if not rules.skip_acl and not all(is_allowed(acl, permission, ids) for permission in _EACH_PERMISSION):
            return _refuse(command, HTTPStatus.FORBIDDEN, "Not authorized", address)
        if method != STATE_COMMANDS[command][0]:
            error = f"{command} is a {STATE_COMMANDS[command][0]} request"
            return _refuse(command, HTTPStatus.METHOD_NOT_ALLOWED, error, address)
        if not self._is_enabled[command]:
            error = f"admin.{command}.enabled is false"
            return _refuse(command, HTTPStatus.SERVICE_UNAVAILABLE, error, address)
        last_ms = self._last_ms.get(command)
        if last_ms is not None and view.state.now_ms < last_ms + self._interval_ms:
            error = f"it ran less than {self._interval_ms} ms ago (admin.rateLimiterIntervalInMS)"
            return _refuse(command, HTTPStatus.TOO_MANY_REQUESTS, error, address)
        self._last_ms[command] = view.state.now_ms
        return None


def _identities(rules: AccessRules, authorization: str, address: str) -> list[Id]:
    """AUTH_FAILED for what proves nothing."""
    scheme, _, credentials = authorization.strip().partition(" ")
    if scheme == "ip":
        return [ip_id(address)]
    if not credentials.strip():
        raise KeeperError(ErrorCode.AUTH_FAILED)
    return authenticate(rules, scheme, credentials.strip().encode("latin-1"))


def _refuse(command: str, status: HTTPStatus, error: str, address: str) -> HttpResponse:
    logger.warning("Refusing %s the command %s: %s", address, command, error)
    return json_response(command, error, status=status)
