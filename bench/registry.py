#!/usr/bin/env python3
"""Measure the schema registry: its start on a topic of many schemas, its memory, lookups of schemas
by their ids at a fixed rate, and registrations one after another.

``python bench/registry.py`` starts a broker and a registry as processes of their own, prints a line
for each figure, and last the load of the machine, by which the figures are to be read. Lookups are
sent when they are due, whether the former ones are answered or not; a latency counts from when its
request was due.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from systems import BARNABAS, cpu_s, free_port

from barnabas.client import BYTES, Producer
from barnabas.testing import Cluster

FIELDS = 12
CONNECTIONS = 8


def schema_of(number: int) -> str:
    """An Avro record of a usual size."""
    fields = [{"name": f"field_{n}", "type": ["null", "string"], "default": None} for n in range(FIELDS)]
    return json.dumps({"type": "record", "name": f"Order{number}", "namespace": "com.example", "fields": fields})


def fill(bootstrap: str, count: int) -> None:
    """Write schemas as a registry has them in its topic, each of a subject of its own."""
    with Producer({"bootstrap.servers": bootstrap}, serializer=BYTES, key_serializer=BYTES) as producer:
        for number in range(1, count + 1):
            subject = f"topic-{number}-value"
            key = {"keytype": "SCHEMA", "subject": subject, "version": 1, "magic": 1}
            value = {"subject": subject, "version": 1, "id": number, "schema": schema_of(number), "deleted": False}
            producer.send("_schemas", json.dumps(value).encode(), json.dumps(key).encode(), partition=0)


def started(bootstrap: str, port: int) -> tuple[subprocess.Popen[bytes], float]:
    """A registry that answers, and how long that took."""
    began = time.monotonic()
    process = subprocess.Popen(
        [*BARNABAS, "registry", "--bootstrap-server", bootstrap, "--port", str(port), "--log-level", "warning"]
    )
    while process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/subjects?limit=1"):
                return process, time.monotonic() - began
        except OSError:
            time.sleep(0.005)
    raise SystemExit("the registry did not start")


def cpu_of(process: subprocess.Popen[bytes]) -> float:
    """User and system time so far, in seconds."""
    return cpu_s([process.pid])


def resident_mb(process: subprocess.Popen[bytes]) -> float:
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1]) / 1024


async def look_up(port: int, schemas: int, rate: int, seconds: float) -> list[float]:
    """Latencies in ms of lookups by id, over some connections in turns."""
    loop = asyncio.get_running_loop()
    latencies: list[float] = []
    queues: list[asyncio.Queue[tuple[float, int] | None]] = [asyncio.Queue() for _ in range(CONNECTIONS)]

    async def serve(queue: "asyncio.Queue[tuple[float, int] | None]") -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (item := await queue.get()) is not None:
            due, number = item
            writer.write(f"GET /schemas/ids/{number} HTTP/1.1\r\nHost: r\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            await reader.readexactly(int(re.search(rb"(?i)content-length: (\d+)", head)[1]))
            latencies.append((loop.time() - due) * 1000)
        writer.close()

    workers = [asyncio.create_task(serve(queue)) for queue in queues]
    start = loop.time() + 0.1
    for number in range(int(rate * seconds)):
        due = start + number / rate
        if (left := due - loop.time()) > 0:
            await asyncio.sleep(left)
        queues[number % CONNECTIONS].put_nowait((due, number % schemas + 1))
    for queue in queues:
        queue.put_nowait(None)
    await asyncio.gather(*workers)
    return sorted(latencies)


def look_up_apart(port: int, schemas: int, rate: int, seconds: float) -> list[float]:
    """The same in a process of its own, which shares no interpreter with the broker here."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(_look_up, port, schemas, rate, seconds).result()


def _look_up(port: int, schemas: int, rate: int, seconds: float) -> list[float]:
    return asyncio.run(look_up(port, schemas, rate, seconds))


def register(port: int, count: int) -> float:
    """Registrations in a second, one after another."""
    began = time.monotonic()
    for number in range(count):
        body = json.dumps({"schema": schema_of(1_000_000 + number)}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/subjects/new-{number}/versions", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as response:
            response.read()
    return count / (time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schemas", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=1000, help="lookups a second (default 1000)")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--registrations", type=int, default=200)
    parser.add_argument("--starts", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, Cluster(data_dir=directory) as cluster:
        cluster.create_topic("_schemas", config={"cleanup.policy": "compact"})
        port = free_port()
        process, empty_s = started(cluster.bootstrap_servers, port)
        print(f"start without a schema: {empty_s:.2f} s, {resident_mb(process):.0f} MB", flush=True)
        process.terminate()
        process.wait()
        fill(cluster.bootstrap_servers, given.schemas)
        starts, used = [], []
        for number in range(given.starts):
            process, took_s = started(cluster.bootstrap_servers, port)
            starts.append(took_s)
            used.append(cpu_of(process))
            if number + 1 < given.starts:
                process.terminate()
                process.wait()
        try:
            text = ", ".join(f"{each:.2f}" for each in starts)
            of_cpu = ", ".join(f"{each:.2f}" for each in used)
            print(
                f"start with {given.schemas} schemas: {text} s ({of_cpu} s of CPU), {resident_mb(process):.0f} MB",
                flush=True,
            )
            look_up_apart(port, given.schemas, 200, 1)
            before_s = cpu_of(process)
            found = look_up_apart(port, given.schemas, given.rate, given.seconds)
            a_lookup_us = (cpu_of(process) - before_s) / len(found) * 1e6
            p50, p99 = found[len(found) // 2], found[len(found) * 99 // 100]
            print(
                f"{given.rate} lookups/s for {given.seconds:g} s: p50 {p50:.2f} ms, p99 {p99:.2f} ms, "
                f"longest {found[-1]:.1f} ms, {a_lookup_us:.0f} us of CPU each; {resident_mb(process):.0f} MB",
                flush=True,
            )
            print(f"registrations one after another: {register(port, given.registrations):.0f}/s", flush=True)
            print(f"memory at the end: {resident_mb(process):.0f} MB", flush=True)
        finally:
            process.terminate()
            process.wait()
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
