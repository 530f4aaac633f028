"""The background work of a `DataPath`, with threads that the test decides about."""

from barnabas.base.processes import StartProcess
from barnabas.base.tasks import Runner
from barnabas.base.threads import InThread
from barnabas.broker.storage.log_cleaner import LogCleaner
from barnabas.broker.storage.replica_alter_log_dirs import ReplicaAlterLogDirsManager
from barnabas.broker.storage.schedule import StorageSchedule
from barnabas.broker.storage.service import Background, LogSyncs, StorageService
from support.broker import DataPath
from support.slicing import thread_at_once


def storage_service(broker: DataPath, in_thread: InThread = thread_at_once) -> StorageService:
    """All background work on the logs of ``broker``; not started."""
    syncs = LogSyncs(
        broker.clock, broker.timers, in_thread, lambda log: broker.replicas.synced(log, broker.clock.wall_ms())
    )
    return StorageService(
        Background(broker.clock, broker.timers, in_thread, Runner(broker.clock, broker.timers, in_thread)),
        StorageSchedule(
            broker.log_dirs,
            broker.config,
            flush=syncs.flush,
            partition_changed=broker.purgatory.check_and_complete,
            close_idle=lambda now_ms, max_idle_ms: broker.dispatcher.close_idle(now_ms, max_idle_ms),
        ),
        LogCleaner(broker.log_dirs, broker.config, broker.clock.worked_ms, None),
        ReplicaAlterLogDirsManager(broker.log_dirs, broker.replicas, broker.config),
    )


class StartedLogCleaner:
    """The log cleaner alone, started."""

    def __init__(
        self, broker: DataPath, in_thread: InThread = thread_at_once, start_worker: StartProcess | None = None
    ) -> None:
        self._cleaner = LogCleaner(broker.log_dirs, broker.config, broker.clock.worked_ms, start_worker)
        runner = Runner(broker.clock, broker.timers, in_thread)
        self._background = Background(broker.clock, broker.timers, in_thread, runner)
        self._background.perform(self._cleaner.start())

    def stop(self) -> None:
        self._background.stop()
        self._cleaner.stop()
