"""syslog-ng with its destination for Kafka, from Debian's packages.

With `sync-send` it takes a line of a file for done when the broker has acknowledged it: killed, it
sends some lines again, and misses none.
"""

import contextlib
from pathlib import Path

import pytest

from barnabas.testing import ProcessCluster
from support.debian import unpacked
from support.killed_brokers import leader_killed
from support.log_daemons import Lines, daemon
from support.repeated_copies import first_of_each
from support.transaction_copies import make, read_committed
from support.transaction_kills import Program
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.fault, pytest.mark.timeout(300)]

PACKAGES = ("syslog-ng-core", "syslog-ng-mod-rdkafka", "librdkafka1", "libivykis0", "libnet1", "libpcre3", "libwrap0")
A_TIME = 100
ATTEMPTS = 5
LIMIT_S = 90
CONFIG = """@version: 3.38
source lines {{ file("{lines}" follow-freq(0.1) flags(no-parse)); }};
destination topic {{
  kafka-c(bootstrap-servers("{bootstrap}") topic("{topic}") message("${{MESSAGE}}") sync-send(yes) workers(1)
    config("enable.idempotence"("true")));
}};
log {{ source(lines); destination(topic); flags(flow-control); }};
"""


class SyslogNg:
    """The daemon, which sends a file to a topic."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._topic = make(bootstrap, "lines", 1, 3)
        self._directory = directory
        self.lines = Lines(directory / "lines")
        self._config = directory / "syslog-ng.conf"
        self._config.write_text(CONFIG.format(lines=self.lines.path, bootstrap=bootstrap, topic=self._topic))

    @property
    def topic(self) -> str:
        """Where the lines go."""
        return self._topic

    @property
    def sent(self) -> list[str]:
        """What is in the topic."""
        return read_committed(self._bootstrap, self._topic)

    def run(self) -> contextlib.AbstractContextManager[Program]:
        """Run it; it is killed at the end, and goes on in the next run where it was."""
        folder, own = unpacked("syslog-ng", *PACKAGES), self._directory
        (libraries,) = (folder / "usr" / "lib").glob("*-linux-gnu")
        modules = next((folder / "usr" / "lib" / "syslog-ng").glob("[0-9]*"))
        path = ":".join(map(str, (modules.parent, libraries, folder / "lib" / libraries.name)))
        command = [folder / "usr" / "sbin" / "syslog-ng", "--foreground", "--no-caps", "--stderr"]
        command += [f"--cfgfile={self._config}", f"--module-path={modules}", f"--persist-file={own}/persist"]
        command += [f"--pidfile={own}/pid", f"--control={own}/control"]
        return daemon(command, own, own / "pid", LD_LIBRARY_PATH=path)

    def wait(self, count: int) -> None:
        """Wait until so many lines are in the topic."""
        eventually(lambda: len(set(self.sent)) >= count, timeout_s=LIMIT_S, what=f"{count} lines in {self._topic}")

    def leaves_lines_when_killed(self) -> bool:
        """Whether it still had lines to send when it was killed."""
        done = len(set(self.sent))
        self.lines.add(A_TIME)
        with self.run():
            self.wait(done + 1)
            self.lines.add(A_TIME)
        return len(set(self.sent)) < self.lines.count


def test_a_killed_syslog_ng_sends_each_line_at_least_once_while_the_leader_is_killed(tmp_path: Path) -> None:
    """Killed with lines to send, it goes on behind the last one that was acknowledged."""
    with ProcessCluster(3) as cluster:
        syslog = SyslogNg(cluster.bootstrap_servers, tmp_path)
        assert any(syslog.leaves_lines_when_killed() for _ in range(ATTEMPTS)), "each kill came too late"
        with syslog.run():
            syslog.wait(syslog.lines.count)
            syslog.lines.add(A_TIME)
            with leader_killed(cluster, syslog.topic):
                syslog.lines.add(A_TIME)
                syslog.wait(syslog.lines.count)
        assert first_of_each(syslog.sent) == syslog.lines.all
