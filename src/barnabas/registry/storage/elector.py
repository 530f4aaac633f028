"""`LeaderElector`: the thread that keeps an instance in the registry's group.

It sends what `RegistryMembership` asks, over a connection of our own to the coordinator, and
reports each change of who leads. In Confluent's registry: `KafkaGroupLeaderElector`.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.client.cluster.admin_connection import AdminConnection, ConnectError
from barnabas.client.errors import ClientError, refusal
from barnabas.client.network.deadline import Deadline
from barnabas.registry.storage.identity import DUPLICATE_URLS, RegistryIdentity
from barnabas.registry.storage.membership import (
    GroupRequest,
    GroupResponse,
    GroupTimeouts,
    MembershipRefusedError,
    RegistryMembership,
)
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.wire.kafka.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas.wire.kafka.messages.sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = ["LeaderElector", "Leadership"]

logger = logging.getLogger(__name__)

_LEAVE_S = 2.0
_HURRY_MS = 200
_FAILURES_A_WARNING = 20
_ANSWER_MARGIN_MS = 5_000  # over the rebalance, for which the answer to a JoinGroup waits


class Leadership(NamedTuple):
    """Who leads, as one instance knows it."""

    leader: RegistryIdentity | None
    """Where writes are sent; None while that is not known."""
    is_self: bool
    generation: int
    """Of the group: it differs each time the members agree again."""


class LeaderElector:
    """The membership's thread. ``on_change`` is called on it."""

    def __init__(
        self,
        servers: str,
        properties: Mapping[str, str],
        group_id: str,
        identity: RegistryIdentity,
        timeouts: GroupTimeouts,
        on_change: Callable[[Leadership], None],
    ) -> None:
        self._servers = servers
        answer_ms = max(timeouts.rebalance_ms, timeouts.session_ms) + _ANSWER_MARGIN_MS
        self._properties = {**properties, "request.timeout.ms": str(answer_ms)}
        self._group_id = group_id
        self._timeouts = timeouts
        self._membership = RegistryMembership(group_id, identity, timeouts)
        self._on_change = on_change
        self._reported: Leadership | None = None
        self._failures = 0
        self._coordinator_id = -1
        self._is_closing = threading.Event()
        self._wake = threading.Event()
        """Set for a request before it is due."""
        self._must_leave = False
        self._asked_ms = 0
        self._connection: AdminConnection | None = None
        self._thread = threading.Thread(target=self._run, name="registry-elector", daemon=True)

    def start(self) -> None:
        """Join the group."""
        self._thread.start()

    def leads(self) -> bool:
        """Whether this instance may write now. Any thread may ask."""
        return self._membership.leads(_now_ms())

    def hurry(self) -> None:
        """Ask the coordinator now: the leader does not answer, and may have left the group."""
        if _now_ms() - self._asked_ms >= _HURRY_MS:
            self._wake.set()

    def rejoin(self) -> None:
        """Leave the group and join it again, so that its members agree again on who leads."""
        self._must_leave = True
        self._wake.set()

    def close(self) -> None:
        """Leave the group, so that another one leads at once."""
        self._is_closing.set()
        self._wake.set()
        connection = self._connection
        if not self._thread.is_alive():
            return
        self._thread.join(_LEAVE_S)
        if self._thread.is_alive() and connection is not None:
            connection.close()  # it waits for the others of a rebalance
            self._thread.join(_LEAVE_S)

    def _run(self) -> None:
        while not self._is_closing.is_set():
            try:
                with AdminConnection(self._servers, self._properties) as connection:
                    self._connection = connection
                    self._take_part(connection)
                    self._leave(connection)
            except Exception as error:
                if self._is_closing.is_set():
                    return
                if not isinstance(error, BarnabasError | OSError):
                    logger.exception("the election failed; it is tried again")
                self._note_failure(error)
                self._is_closing.wait(1.0)

    def _take_part(self, connection: AdminConnection) -> None:
        while not self._is_closing.is_set():
            self._wake.wait(self._membership.wait_ms(_now_ms()) / 1000)
            self._wake.clear()
            if self._is_closing.is_set():
                return
            if self._must_leave:
                self._must_leave = False
                self._leave(connection)
                self._membership.left()
            try:
                self._ask(connection)
                self._failures = 0
            except MembershipRefusedError as error:
                self._note_failure(refusal(error.code, about=f"group {self._group_id}"))
            except (ConnectError, ClientError) as error:
                self._membership.failed(_now_ms())
                self._note_failure(error)
            self._report()

    def _ask(self, connection: AdminConnection) -> None:
        """One request and what its answer means."""
        in_time = connection.with_deadline(Deadline(self._timeouts.session_ms / 1000))
        if self._membership.needs_coordinator:
            self._coordinator_id = in_time.find_coordinator(self._group_id).id
            self._membership.needs_coordinator = False
        request = self._membership.request()
        self._asked_ms = sent_ms = _now_ms()
        used = connection if isinstance(request, JoinGroupRequest) else in_time
        response = _send(used, request, self._coordinator_id)
        self._membership.answered(response, sent_ms, _now_ms())

    def _leave(self, connection: AdminConnection) -> None:
        in_time = connection.with_deadline(Deadline(_LEAVE_S))
        try:
            version = in_time.negotiated(LeaveGroupRequest, self._coordinator_id)
            if (request := self._membership.leave_request(version)) is not None:
                in_time.send(request, LeaveGroupResponse, self._coordinator_id)
        except (BarnabasError, OSError) as error:
            logger.info("group %s: it was not left, and notices that by itself: %s", self._group_id, error)

    def _note_failure(self, error: Exception) -> None:
        if self._failures % _FAILURES_A_WARNING == 0:
            logger.warning("group %s: %s", self._group_id, error)
        self._failures += 1

    def _report(self) -> None:
        membership = self._membership
        found = membership.assignment
        if found is not None and found.error:
            why = (
                "several instances have the same address: set host.name to one at which the others reach this instance"
                if found.error == DUPLICATE_URLS
                else f"the group's assignment has the error {found.error}"
            )
            self._note_failure(ClientError(f"no instance leads: {why}"))
        now = Leadership(
            membership.leader(), membership.leads(_now_ms()), membership.generation if found is not None else -1
        )
        if now != self._reported:
            self._reported = now
            self._on_change(now)


def _send(connection: AdminConnection, request: GroupRequest, broker_id: int) -> GroupResponse:
    match request:
        case JoinGroupRequest():
            return connection.send(request, JoinGroupResponse, broker_id)
        case SyncGroupRequest():
            return connection.send(request, SyncGroupResponse, broker_id)
        case HeartbeatRequest():
            response = connection.send(request, HeartbeatResponse, broker_id)
            if response.error_code not in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
                logger.info("the registry's group: %s", ErrorCode.of(response.error_code).name)
            return response


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
