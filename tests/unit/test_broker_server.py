"""A broker's start that is given up while its logs are loaded."""

import asyncio
import threading
from pathlib import Path

import pytest

from barnabas.base.clock import SystemClock
from barnabas.base.files import File, OsFiles
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.broker.server import BrokerServer
from barnabas.log.checkpoints import CLEAN_SHUTDOWN
from barnabas.log.settings import LogConfig
from support.broker import batch
from support.coordination_in_process import running_server, session

COUNT = 80
"""More logs than are loaded at a time after a clean stop."""
TOPIC_ID = Uuid(bytes(15) + b"1")


class _SlowDisk(OsFiles):
    """Opens the 40th file of a log only when it may."""

    def __init__(self) -> None:
        self.is_reached = threading.Event()
        self.may_continue = threading.Event()
        self._opened = 0

    def open(self, path: str, *, create: bool = False, read_only: bool = False, keep: bool = False) -> File:
        if path.endswith(".log"):
            self._opened += 1
            if self._opened == COUNT // 2:
                self.is_reached.set()
                assert self.may_continue.wait(60)
        return super().open(path, create=create, read_only=read_only, keep=keep)


def broker(directory: Path, zookeeper_port: int, files: OsFiles | None = None) -> BrokerServer:
    return BrokerServer(
        {
            "broker.id": "0",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(directory),
            "zookeeper.connect": f"127.0.0.1:{zookeeper_port}",
        },
        files=files,
    )


async def has_stored(directory: Path, zookeeper_port: int, *, is_clean: bool) -> None:
    """Leave logs with a record each, as a broker does that has stopped."""
    server = broker(directory, zookeeper_port)
    await server.start()
    now_ms = SystemClock().wall_ms()
    for number in range(COUNT):
        log = server.components.log_dirs.get_or_create(TopicPartition("t", number), TOPIC_ID, LogConfig(), now_ms)
        log.append_as_leader(batch(b"v"), leader_epoch=0, now_ms=now_ms)
    await (server.close() if is_clean else server.abandon())


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "crashed"])
@pytest.mark.parametrize("is_cancelled", [True, False], ids=["cancelled", "closed"])
def test_a_stop_while_logs_are_loaded_leaves_them_to_the_next_start(
    tmp_path: Path, is_clean: bool, is_cancelled: bool
) -> None:
    """It waits for the thread that loads, ends its session, and leaves no marker of a clean
    stop: some logs were opened."""
    logs = tmp_path / "logs"
    marker = logs / CLEAN_SHUTDOWN

    async def run() -> None:
        async with running_server(tmp_path / "zookeeper") as zookeeper:
            await has_stored(logs, zookeeper.port, is_clean=is_clean)
            assert marker.exists() is is_clean
            before = asyncio.all_tasks()
            files = _SlowDisk()
            stopped = broker(logs, zookeeper.port, files)
            starting = asyncio.create_task(stopped.start())
            await asyncio.to_thread(files.is_reached.wait, 60)
            if is_cancelled:
                starting.cancel()
                stopping = starting
            else:
                stopping = asyncio.create_task(stopped.close())
            # In these turns of the loop everything ends that does not wait for the thread.
            for _ in range(100):
                await asyncio.sleep(0)
            assert not stopping.done()
            files.may_continue.set()
            await asyncio.wait({starting, stopping})
            assert starting.cancelled()
            assert is_cancelled or stopping.exception() is None
            assert asyncio.all_tasks() == before
            assert not marker.exists()
            async with session(f"127.0.0.1:{zookeeper.port}") as client:
                assert (await client.get_children("/brokers/ids"))[0] == []
            following = broker(logs, zookeeper.port)
            await following.start()
            loaded = following.components.log_dirs.logs()
            assert sum(log.log_end_offset for log in loaded.values()) == COUNT
            await following.close()
            assert marker.exists()

    asyncio.run(run())
