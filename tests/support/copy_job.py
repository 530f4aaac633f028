"""A copy job in transactions, as a process that is killed and started again, and what it left."""

import re
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from confluent_kafka import Producer

from support import copy_program
from support.copy_program import COMMITS, STEPS
from support.dumped_logs import dump_log
from support.waiting import eventually

__all__ = ["CopyJob", "Feed", "LogFacts"]

_PATIENCE_S = 30.0
"""How long a program may print nothing. librdkafka 2.16 hangs in sending offsets when the group's
coordinator has left the metadata (its issues 5511 and 5456), and has to be killed."""


class Feed:
    """Sends numbers to the input, to its partitions in turn, up to a limit."""

    def __init__(self, servers: str, partitions: int, records: int) -> None:
        self._partitions = partitions
        self._records = records
        # One request under way: a second one could be stored twice after an error of the first.
        settings = {"enable.idempotence": True, "max.in.flight.requests.per.connection": 1, "log_level": 0}
        # Small batches: a fetch has records of several partitions.
        settings |= {"linger.ms": 5, "batch.num.messages": 20, "reconnect.backoff.max.ms": 200}
        self._producer = Producer({"bootstrap.servers": servers, **settings})
        self._failed: list[object] = []
        self._limit = 0
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def allow(self, count: int) -> None:
        """Raise the limit to ``count`` numbers."""
        with self._changed:
            self._limit = count
            self._changed.notify_all()

    def finish(self) -> None:
        """Send all numbers, and return when the brokers have them."""
        self.allow(self._records)
        self._thread.join()
        assert self._producer.flush(120) == 0
        assert not self._failed, self._failed[:3]

    def _run(self) -> None:
        for number in range(self._records):
            with self._changed:
                self._changed.wait_for(lambda number=number: number < self._limit or self._is_closed)
            while not self._is_closed and not self._sends(number):
                self._producer.poll(0.1)

    def _sends(self, number: int) -> bool:
        partition = number % self._partitions
        try:
            self._producer.produce(copy_program.INPUT, str(number), partition=partition, on_delivery=self._delivered)
        except BufferError:
            return False
        self._producer.poll(0)
        return True

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._failed.append(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()


class CopyJob:
    """The program, always one process of it, as a supervisor would have it."""

    def __init__(self, servers: str, partitions: int, records: int, a_transaction: int) -> None:
        program = str(Path(copy_program.__file__))
        numbers = map(str, (partitions, records, a_transaction))
        self._command = [sys.executable, program, servers, *numbers]
        self.copied = 0
        self.lines: list[str] = []
        """What it printed, but for its progress; how its processes ended."""
        self.hung: list[str] = []
        """The next step of each process that was killed because it printed nothing more."""
        self._last = "begins"
        self._printed = 0
        self._is_to_die = False
        self._is_ending = False
        self._changed = threading.Condition()
        self._process = self._begin()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _begin(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def _read(self) -> None:
        """Follow a process; start the next one unless it ended by itself, without an error."""
        while True:
            with self._process as process:
                watchdog = threading.Thread(target=self._watch, args=(process,), daemon=True)
                watchdog.start()
                for line in process.stdout or ():
                    self._take(line)
            watchdog.join()
            with self._changed:
                if process.returncode:
                    self.lines.append(f"ended with {process.returncode}")
                if not process.returncode or self._is_ending:
                    return
                self._process = self._begin()

    def _watch(self, process: "subprocess.Popen[str]") -> None:
        """Kill a process that prints nothing more."""
        with self._changed:
            while process.poll() is None:
                before = self._printed
                if self._changed.wait_for(lambda: self._printed > before, _PATIENCE_S):  # noqa: B023  # at once
                    continue
                if process.poll() is None:
                    self.hung.append(self._last)
                    process.kill()
                    return

    def _take(self, line: str) -> None:
        with self._changed:
            self._last = line.rstrip()
            self._printed += 1
            if progress := re.fullmatch(r"copied (\d+)\n", line):
                self.copied = int(progress[1])
            elif self._last not in STEPS:
                self.lines.append(self._last)
            elif self._last == COMMITS and self._is_to_die:
                self._is_to_die = False
                self._process.kill()
            self._changed.notify_all()

    def kill(self, *, timeout_s: float) -> None:
        """SIGKILL at its next commit: the transaction is open, or the commit on its way."""
        with self._changed:
            self._is_to_die = True
            died = self._changed.wait_for(lambda: not self._is_to_die, timeout_s)
        assert died, f"no commit after {timeout_s} s: {self.copied} copied, {self._last}, {self.lines[-9:]}"

    def goes_on(self, above: int, *, timeout_s: float) -> None:
        """Wait until more than this is copied.

        Fails with what the program said if that does not come."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: self.copied > above, timeout_s)
        assert arrived, (
            f"it hangs: {self.copied} copied, not more than {above} after {timeout_s} s: {self._last}, {self.lines[-9:]}"
        )

    def finish(self, *, timeout_s: float) -> None:
        """Wait for its end."""
        eventually(lambda: not self._reader.is_alive(), timeout_s=timeout_s, what=f"it ends: {self.lines[-9:]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_ending = True
            self._process.kill()
        self._reader.join()


@dataclass(frozen=True)
class LogFacts:
    """What a partition's log says of the transactions in it."""

    markers: Counter[str]
    """How many were committed and aborted."""
    appended_twice: list[tuple[str, ...]]
    """Producer id, epoch and sequence of batches that are there twice: a broker's fault. A client
    may send a record again with another sequence or in another epoch, which is its own."""

    @classmethod
    def of(cls, log_dir: Path, topic: str, partition: int) -> Self:
        """The facts of a replica in a broker's log dir."""
        dumped = dump_log((log_dir / f"{topic}-{partition}").glob("*.log"), "--deep-iteration")
        batch = r"baseSequence: (\d+) .*?producerId: (\d+) producerEpoch: (\d+) .*?isControl: false"
        batches = Counter(re.findall(batch, dumped))
        return cls(
            Counter(re.findall(r"endTxnMarker: (\w+)", dumped)),
            [(producer, epoch, base) for (base, producer, epoch), count in batches.items() if count > 1],
        )
