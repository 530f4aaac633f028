"""Tells the controller how the in-sync sets changed that this broker leads (the sending half of `replication.isr`)."""

import logging

from barnabas.broker.cluster.channels import ChannelError
from barnabas.broker.requests.request import Node
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["IsrReports"]

logger = logging.getLogger(__name__)

_FIRST_PAUSE_MS = 20
_MAX_PAUSE_MS = 1000
_LEAST_CHECK_MS = 50
_LAG_MESSAGES_CHECK_MS = 1000


class IsrReports:
    """One AlterPartition at a time, again after a pause until the controller answers."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._changes = node.replicas.isr_changes
        self._sending = False
        self._pause_ms = 0
        self._check_ms = max(node.settings["replica.lag.time.max.ms"] // 2, _LEAST_CHECK_MS)
        if node.settings["replica.lag.max.messages"] is not None:
            self._check_ms = min(self._check_ms, _LAG_MESSAGES_CHECK_MS)

    def start(self) -> None:
        """Begin to look for followers that lag."""
        self._node.call_later(self._check_ms, self._check)

    def _check(self) -> None:
        try:
            self._node.replicas.shrink_isrs(self._node.clock.wall_ms())
        finally:
            self._node.call_later(self._check_ms, self._check)

    def changes_waiting(self) -> None:
        """Send the changes that wait, if none are under way."""
        if not self._sending:
            self._sending = True
            # In the next turn, so that all partitions of one fetch travel in one request.
            self._node.call_later(0, lambda: self._node.spawn(self._send()))

    async def _send(self) -> None:
        node = self._node
        done = False
        try:
            controller = node.metadata.controller_id
            version = await node.channels.version(controller, ApiKey.ALTER_PARTITION)
            request = self._changes.request(version, node.broker_epoch)
            if request is None:
                done = True
                return
            response = await node.channels.send(controller, request, version=version)
            if response.error_code:
                logger.info("The controller %d refused: %s", controller, ErrorCode(response.error_code).name)
            done = node.replicas.isr_answered(response, version, node.clock.wall_ms())
        except (ChannelError, KafkaError) as error:
            logger.info("The controller could not be asked to change in-sync sets: %s", error)
            self._changes.failed()
        finally:
            self._sending = False
            self._pause_ms = 0 if done else min(max(2 * self._pause_ms, _FIRST_PAUSE_MS), _MAX_PAUSE_MS)
            if self._changes.waiting:
                node.call_later(self._pause_ms, self.changes_waiting)
