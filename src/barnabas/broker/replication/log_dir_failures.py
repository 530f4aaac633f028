"""The consequences of a failed log dir: its replicas lose their roles, and the
controller is informed.

In Kafka: `ReplicaManager.handleLogDirFailure`, the thread `LogDirFailureHandler`, and
`KafkaZkClient.propagateLogDirEvent`. When the last log dir fails, the broker stops.
"""

import logging
from collections.abc import Callable

from barnabas.base.clock import CallLater
from barnabas.broker.cluster.steps import Create, Pause, Steps, WriteUnfenced, Written
from barnabas.broker.cluster.znodes import LOG_DIR_EVENTS, encode_log_dir_event
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.jute.opcodes import CreateMode

__all__ = ["LogDirFailures"]

logger = logging.getLogger(__name__)

_REPORT_PAUSE_MS = 1000


class LogDirFailures:
    """Handles the failures of one broker's log dirs."""

    def __init__(
        self,
        broker_id: int,
        log_dirs: LogDirs,
        replicas: ReplicaManager,
        *,
        is_registered: Callable[[], bool],
        call_later: CallLater,
        start: Callable[[Steps[None]], None],
        shut_down: Callable[[], None],
    ) -> None:
        """``start`` performs steps in the background, ``shut_down`` has the broker stop."""
        self._broker_id = broker_id
        self._log_dirs = log_dirs
        self._replicas = replicas
        self._is_registered = is_registered
        self._call_later = call_later
        self._start = start
        self._shut_down = shut_down

    def dir_failed(self, path: str, reason: str) -> None:
        """A log dir is offline from now on."""
        if self._log_dirs.online:
            # Not at once: a request may be in the middle of noticing it.
            self._call_later(0, self._give_up_replicas)
        else:
            logger.error("Shutting down: the last log dir, %s, failed: %s", path, reason)
            self._shut_down()

    def _give_up_replicas(self) -> None:
        self._replicas.lose_offline()
        # Otherwise the controller learns it from the response to its first LeaderAndIsr.
        if self._is_registered():
            self._start(self._report())

    def _report(self) -> Steps[None]:
        """Report to the controller that some of our replicas are offline.

        Repeated until it succeeds; idempotent."""
        event = Create(
            f"{LOG_DIR_EVENTS}/log_dir_event_",
            encode_log_dir_event(self._broker_id),
            CreateMode.PERSISTENT_SEQUENTIAL,
        )
        while True:
            try:
                written: list[Written] = yield WriteUnfenced([event], repeat=True)
                written[0].or_raise()
                return
            except KeeperError as error:
                logger.warning("The lost log dir could not be reported to the controller; retrying: %s", error)
            yield Pause(_REPORT_PAUSE_MS)
