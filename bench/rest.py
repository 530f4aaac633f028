"""The REST proxy: records a second over HTTP, what they cost in CPU, and the memory of open event
streams.

    python bench/rest.py [--records N] [--streams N]

A cluster of one broker and the proxy are processes of their own (``barnabas up --rest``). This
process is the client. The targets: produce of 10,000 records/s in batches of 100, consume of 20,000
records/s, 2,000 open event streams at 200 MB.
"""

import argparse
import asyncio
import base64
import http.client
import json
import os
import resource
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

BATCH = 100
VALUE_BYTES = 100
TICKS = os.sysconf("SC_CLK_TCK")


class Proxy:
    """The proxy of a cluster that runs."""

    def __init__(self, url: str, pid: int) -> None:
        self.pid = pid
        parts = urllib.parse.urlsplit(url)
        self.host, self.port = parts.hostname or "", parts.port or 0
        with urllib.request.urlopen(f"{url}/v3/clusters") as answer:
            self.cluster = json.load(answer)["data"][0]["cluster_id"]

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory_mb(self) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise SystemExit("no VmRSS")

    def ask(self, method: str, path: str, body: object = None, kind: str = "application/json") -> bytes:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": kind})
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {answer.status} {data[:300]!r}")
        return data


@contextmanager
def running() -> Iterator[Proxy]:
    """A cluster with its proxy, in processes of their own."""
    command = [sys.executable, "-m", "barnabas", "up", "--port", "0", "--zk-port", "0", "--rest", "0"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("ready "):
                words = dict(each.partition("=")[::2] for each in line.split() if "=" in each)
                pids = dict(each.split(":") for each in words["pids"].split(","))
                yield Proxy(words["rest"], int(pids["rest"]))
                return
        raise SystemExit("the cluster did not start")
    finally:
        child.terminate()
        child.wait()


def timed(proxy: Proxy, name: str, count: int, work: Callable[[], None]) -> None:
    """Do it, and print what it took."""
    cpu_s, start = proxy.cpu_s(), time.perf_counter()
    work()
    took_s, cpu_s = time.perf_counter() - start, proxy.cpu_s() - cpu_s
    print(f"{name}: {count / took_s:,.0f} records/s, CPU of the proxy {1e6 * cpu_s / count:.1f} us a record")


def send(proxy: Proxy, path: str, kind: str, body: bytes, requests: int, threads: int) -> None:
    """So many requests over so many connections."""

    def one() -> None:
        connection = http.client.HTTPConnection(proxy.host, proxy.port, timeout=60)
        for _ in range(requests // threads):
            connection.request("POST", path, body, {"Content-Type": kind})
            answer = connection.getresponse()
            if b'"error_code":4' in (data := answer.read()) or answer.status != 200:
                raise SystemExit(data[:300])

    workers = [threading.Thread(target=one) for _ in range(threads)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()


def produce(proxy: Proxy, count: int) -> None:
    value = base64.b64encode(b"x" * VALUE_BYTES).decode()
    old = json.dumps({"records": [{"value": value}] * BATCH}).encode()
    new = (json.dumps({"value": {"type": "BINARY", "data": value}}) * BATCH).encode()
    path = f"/v3/clusters/{proxy.cluster}/topics/load/records"
    for threads in (1, 4):
        kind = "application/vnd.kafka.binary.v2+json"
        timed(
            proxy,
            f"produce, version 2, {threads} connections",
            count,
            partial(send, proxy, "/topics/load", kind, old, count // BATCH, threads),
        )
        timed(
            proxy,
            f"produce, version 3, {threads} connections",
            count,
            partial(send, proxy, path, "application/json", new, count // BATCH, threads),
        )


def consume(proxy: Proxy, count: int) -> None:
    kind = "application/vnd.kafka.v2+json"
    proxy.ask("POST", "/consumers/bench", {"name": "i", "auto.offset.reset": "earliest"}, kind)
    proxy.ask("POST", "/consumers/bench/instances/i/subscription", {"topics": ["load"]}, kind)
    connection = http.client.HTTPConnection(proxy.host, proxy.port, timeout=60)

    def read() -> None:
        found = 0
        while found < count:
            connection.request("GET", "/consumers/bench/instances/i/records")
            found += connection.getresponse().read().count(b'"offset":')

    timed(proxy, "consume, version 2, binary", count, read)
    proxy.ask("DELETE", "/consumers/bench/instances/i")


async def streams(proxy: Proxy, count: int) -> None:
    """Open so many streams, and let each have ten records."""
    before = proxy.memory_mb()
    head = f"GET /v3/clusters/{proxy.cluster}/topics/live/records?format=string HTTP/1.1\r\nHost: h\r\n\r\n".encode()
    turns = asyncio.Semaphore(50)

    async def opened() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with turns:
            reader, writer = await asyncio.open_connection(proxy.host, proxy.port, limit=1 << 14)
            writer.write(head)
            await reader.readuntil(b"id: ")
            return reader, writer

    start = time.perf_counter()
    found = await asyncio.gather(*(opened() for _ in range(count)))
    print(
        f"{count:,} event streams: open after {time.perf_counter() - start:.1f} s, {proxy.memory_mb():.0f} MB ({before:.0f} before)"
    )

    async def ten(reader: asyncio.StreamReader) -> None:
        for _ in range(10):
            await reader.readuntil(b"data: ")

    path = f"/v3/clusters/{proxy.cluster}/topics/live/records"
    cpu_s, start = proxy.cpu_s(), time.perf_counter()
    reading = asyncio.gather(*(ten(reader) for reader, _ in found))
    for number in range(10):
        await asyncio.to_thread(proxy.ask, "POST", path, {"value": {"type": "STRING", "data": f"{number}" * 100}})
    await reading
    took_s, cpu_s = time.perf_counter() - start, proxy.cpu_s() - cpu_s
    print(f"ten records for each: {took_s:.1f} s, CPU of the proxy {cpu_s:.1f} s, {proxy.memory_mb():.0f} MB")
    for _, writer in found:
        writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--streams", type=int, default=2000)
    given = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with running() as proxy:
        print(f"memory after the start: {proxy.memory_mb():.0f} MB")
        for name in ("load", "live"):
            path = f"/v3/clusters/{proxy.cluster}/topics"
            proxy.ask("POST", path, {"topic_name": name, "partitions_count": 4 if name == "load" else 1})
        produce(proxy, given.records)
        consume(proxy, 4 * given.records)
        asyncio.run(streams(proxy, given.streams))


if __name__ == "__main__":
    main()
