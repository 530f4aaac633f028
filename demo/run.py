"""The main job on real data, from nothing to figures, in a few minutes: ``make demo``.

Coordination and three brokers come up; every flight that left New York City in 2013 flows into a
topic; a consumer group shares it; a broker is killed and comes back; a Spark pipeline sums the
flights up into a database and a topic. Each step says what it showed and checks it. Nothing is left
running, unless KEEP=1 is set.
"""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

try:
    import data
    from cluster import BARNABAS, Cluster, wait_until
    from show import CheckFailed, Show
    from topics import GroupMember, Loader, create, in_sync, leaders, partition_sizes, read_latest

    from barnabas.base.errors import BarnabasError
except ImportError as missing:
    sys.exit(f"the demo needs {missing.name}: run `make install` in {ROOT}")

FLOW = ROOT / "examples" / "pipelines" / "flights.toml"
GROUP = "departures-board"
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def main() -> int:
    """0 when every step showed what it promises."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: nothing is left running
    show = Show()
    keep = os.environ.get("KEEP", "") not in ("", "0")
    folder = Path(tempfile.mkdtemp(prefix="barnabas-demo-"))
    cluster: Cluster | None = None
    kept = logs_matter = False
    try:
        show.step("A coordination server and three brokers come up")
        cluster = Cluster(folder)
        cluster.start()
        look_round(show, cluster)
        records = data.flights()
        load_and_share(show, cluster, records)
        lose_a_broker(show, cluster)
        run_pipeline(show, cluster, folder)
        show_figures(show, cluster, folder)
        kept = keep
        look_next(show, cluster, folder, keep=keep)
    except (CheckFailed, BarnabasError, TimeoutError, OSError, subprocess.SubprocessError) as problem:
        logs_matter = True
        show.failed(f"{problem}\n       logs are in {folder}")
        return 1
    except KeyboardInterrupt:
        show.failed("stopped")
        return 130
    finally:
        if cluster and not kept:
            cluster.stop()
        if not kept and not logs_matter:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def look_round(show: Show, cluster: Cluster) -> None:
    """What runs, and the topics of the demo."""
    show.say(
        f"ready after {show.seconds:.1f} s at {cluster.bootstrap_servers}, coordination at {cluster.zookeeper_connect}"
    )
    memory = cluster.memory_mb()
    show.say("memory: " + ", ".join(f"{_who(name)} {size} MB" for name, size in memory.items()))
    create(
        cluster.bootstrap_servers,
        {"flights": {}, "weather": {}, "flights-by-carrier": {"cleanup.policy": "compact"}},
        partitions=3,
    )
    # A broker hears of a topic a moment after the controller has made it.
    wait_until(lambda: len(leaders(cluster.bootstrap_servers, "flights")) == 3, "news of the topic")
    found = leaders(cluster.bootstrap_servers, "flights")
    show.check(
        "topic flights has 3 partitions of 3 replicas each, led by "
        + ", ".join(f"broker {leader}" for leader in found.values()),
        holds=sorted(found.values()) == [0, 1, 2],
        otherwise=f"leaders are {found}",
    )


def load_and_share(show: Show, cluster: Cluster, records: list[tuple[bytes, bytes]]) -> None:
    """Half a year for two consumers, half a year for five."""
    half = data.first_of_month(records, 7)
    show.step("336,776 flights flow in, and a consumer group of two shares them")
    members = [GroupMember(f"consumer-{n}", cluster.bootstrap_servers, GROUP, "flights") for n in (1, 2)]
    try:
        with show.busy("two consumers form a group"):
            wait_until(lambda: _settled(members, [1, 2]), "a share for each of two members")
        load(show, cluster, records[:half], "January to June")
        with show.busy("two consumers read"):
            wait_until(lambda: sum(each.total for each in members) >= half, "every flight of the half year")
        show.table(["consumer", "partitions", "flights"], [_row(each, each.total) for each in members])
        sizes = partition_sizes(cluster.bootstrap_servers, "flights")
        show.equal("each flight went to one of the two", sum(each.total for each in members), half)
        for each in members:
            wanted = sum(sizes[partition] for partition in each.counts)
            show.equal(f"{each.name} got what its partitions hold", each.total, wanted)

        show.step("Three more consumers join: five for three partitions")
        before = {each.name: each.total for each in members}
        members += [GroupMember(f"consumer-{n}", cluster.bootstrap_servers, GROUP, "flights") for n in (3, 4, 5)]
        with show.busy("the group rebalances"):
            wait_until(lambda: _settled(members, [0, 0, 1, 1, 1]), "a partition for each of three members")
        load(show, cluster, records[half:], "July to December")
        with show.busy("five consumers read"):
            wait_until(lambda: sum(each.total for each in members) >= len(records), "every flight of the year")
        fresh = [each.total - before.get(each.name, 0) for each in members]
        show.table(
            ["consumer", "partitions", "flights"],
            [_row(each, count) for each, count in zip(members, fresh, strict=True)],
        )
        idle = [each.name for each, count in zip(members, fresh, strict=True) if not count]
        show.check(f"two stay idle: {' and '.join(idle)}", holds=len(idle) == 2, otherwise=f"{len(idle)} are idle")
        show.equal("each flight of the year was read once", sum(each.total for each in members), data.FLIGHTS)
    finally:
        for each in members:
            each.stop()


def load(show: Show, cluster: Cluster, records: list[tuple[bytes, bytes]], when: str) -> None:
    """Sends the flights and waits for all acknowledgements."""
    loader = Loader(cluster.bootstrap_servers)
    began = time.monotonic()
    with show.busy(f"{when}: {len(records):,} flights, keyed by tail number"):
        loader.send("flights", records)
        missing = loader.wait(120)
    seconds = time.monotonic() - began
    if missing or loader.failures:
        raise CheckFailed(f"{missing + len(loader.failures)} flights were not acknowledged: {loader.failures[:1]}")
    size = sum(len(key) + len(line) for key, line in records) / 1e6
    show.say(f"{when}: {len(records):,} flights acknowledged in {seconds:.1f} s ({size / seconds:.0f} MB/s)")


def _row(member: GroupMember, count: int) -> list[object]:
    return [member.name, ", ".join(map(str, sorted(member.partitions))) or "none", count]


def _settled(members: list[GroupMember], shares: list[int]) -> bool:
    """Whether the group is whole, and its members have these numbers of partitions."""
    found = sorted(len(each.partitions) for each in members)
    return all(each.joined.is_set() for each in members) and found == shares


def lose_a_broker(show: Show, cluster: Cluster) -> None:
    """Broker 2 is killed under a producer; the in-sync replicas take over, and nothing is lost."""
    show.step("A broker is killed while the weather flows in; the others take over")
    records = data.weather()
    loader = Loader(cluster.bootstrap_servers)
    third = len(records) // 3
    loader.send("weather", records[:third])
    loader.wait(60)
    show.equal("hours of weather acknowledged by three brokers", loader.acknowledged, third)
    stages = [_stage(cluster, "before")]
    mine = [partition for partition, leader in leaders(cluster.bootstrap_servers, "weather").items() if leader == 2]
    loader.send("weather", records[third : third + 500])  # some are on their way when it dies
    began = time.monotonic()
    cluster.kill_broker(2)
    wait_until(lambda: _took_over(cluster, mine), "another leader")
    took_s = time.monotonic() - began
    loader.send("weather", records[third + 500 : 2 * third])
    with show.busy("two brokers go on"):
        missing = loader.wait(60)
    show.check(
        f"broker 2 was killed, others led its partition {took_s:.1f} s later; "
        f"{loader.acknowledged:,} of {loader.sent:,} records are acknowledged",
        holds=not missing and not loader.failures,
        otherwise=f"{missing} are missing, {loader.failures[:1]}",
    )
    show.say(f"/brokers/ids now holds {_broker_ids(cluster)}")
    stages.append(_stage(cluster, "without 2"))
    cluster.start_broker(2)
    loader.send("weather", records[2 * third :])
    with show.busy("broker 2 comes back, and fetches what it missed"):
        wait_until(lambda: all(len(each) == 3 for each in in_sync(cluster.bootstrap_servers, "weather").values()), "it")
        missing = loader.wait(60)
    stages.append(_stage(cluster, "back"))
    show.table(["weather", *(f"{n}: leader, in sync" for n in range(3))], stages)
    show.check(
        "broker 2 is in sync again; preferred leaders are elected later, or by barnabas leader-election",
        holds=not missing and not loader.failures,
        otherwise=f"{missing} are missing, {loader.failures[:1]}",
    )
    show.equal(
        "hours of weather in the topic, none lost, none twice",
        sum(partition_sizes(cluster.bootstrap_servers, "weather")),
        data.WEATHER,
    )
    equal = wait_for_equal_logs(cluster, "weather", partitions=3)
    show.check(f"the three replicas of each partition have equal bytes, {equal / 1e6:.1f} MB each", holds=equal > 0)


def _took_over(cluster: Cluster, partitions: list[int]) -> bool:
    found = leaders(cluster.bootstrap_servers, "weather")
    return all(found[each] in (0, 1) for each in partitions)


def _stage(cluster: Cluster, when: str) -> list[str]:
    """A row: each partition's leader and in-sync replicas."""
    led = leaders(cluster.bootstrap_servers, "weather")
    return [
        when,
        *(f"{led[n]}, [{','.join(map(str, isr))}]" for n, isr in in_sync(cluster.bootstrap_servers, "weather").items()),
    ]


def wait_for_equal_logs(cluster: Cluster, topic: str, partitions: int) -> int:
    """The bytes of one replica of everything, once all three have the same."""

    def replica(broker: int, partition: int) -> bytes:
        folder = cluster.log_dir(broker) / f"{topic}-{partition}"
        return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))

    for partition in range(partitions):
        wait_until(lambda partition=partition: len({replica(n, partition) for n in range(3)}) == 1, "equal replicas")
    return sum(len(replica(0, partition)) for partition in range(partitions))


def _broker_ids(cluster: Cluster) -> str:
    done = subprocess.run(
        [*BARNABAS, "zookeeper-shell", cluster.zookeeper_connect, "ls", "/brokers/ids"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return done.stdout.strip().splitlines()[-1]


def run_pipeline(show: Show, cluster: Cluster, folder: Path) -> None:
    """``barnabas pipeline run`` on the flow of the examples."""
    show.step("A Spark pipeline sums the flights up, by carrier and day")
    show.note(f"barnabas pipeline run {FLOW.relative_to(ROOT)} --once")
    settings = {
        "source.bootstrap_servers": cluster.bootstrap_servers,
        "checkpoint": folder / "checkpoint",
        "sinks[0].path": folder / "flights.db",
    }
    command = [*BARNABAS, "pipeline", "run", str(FLOW), "--once", "--output", "json"]
    for name, value in settings.items():
        command += ["--set", f'{name}="{value}"']
    with (folder / "pipeline.out").open("w+") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        try:
            for line in process.stderr:
                show.note(line.rstrip())
            code = process.wait(60)
        except BaseException:
            process.terminate()
            process.wait(60)
            raise
        finally:
            process.stderr.close()
        output.seek(0)
        text = output.read()
    if code:
        raise CheckFailed("the pipeline ended with an error, see above")
    summary = json.loads(text)
    show.say(f"{summary['rows']:,} rows in {summary['batches']} micro-batches, {summary['seconds']:.0f} s")
    show.equal("rows read by the pipeline", summary["rows"], data.FLIGHTS)
    show.check("no row was bad, none too late", holds=summary["bad_rows"] == summary["late_rows"] == 0)


def show_figures(show: Show, cluster: Cluster, folder: Path) -> None:
    """The database, the topic, and what they show."""
    show.step("What the database and the results topic hold")
    database = sqlite3.connect(folder / "flights.db")
    try:
        totals = "SELECT count(*), sum(flights), sum(miles), sum(cancelled) FROM flights_by_carrier"
        rows, flights, miles, cancelled = database.execute(totals).fetchone()
        show.equal("rows in the database, one for each carrier and day", rows, data.DAYS_BY_CARRIER)
        show.equal("flights", flights, data.FLIGHTS)
        show.equal("miles", miles, data.MILES)
        show.equal("cancelled flights", cancelled, data.CANCELLED)
        latest = [json.loads(value) for value in read_latest(cluster.bootstrap_servers, "flights-by-carrier").values()]
        show.equal("rows in the results topic, the last of each key", len(latest), data.DAYS_BY_CARRIER)
        show.equal("flights in the results topic", sum(row["flights"] for row in latest), data.FLIGHTS)
        by_month = database.execute(
            "SELECT cast(substr(window_start, 6, 2) AS int), sum(cancelled), sum(flights) "
            "FROM flights_by_carrier GROUP BY 1 ORDER BY 1"
        ).fetchall()
        day, worst = database.execute(
            "SELECT substr(window_start, 1, 10), sum(cancelled) FROM flights_by_carrier GROUP BY 1 ORDER BY 2 DESC LIMIT 1"
        ).fetchone()
        carriers = database.execute(
            "SELECT carrier, sum(flights), 100.0 * sum(cancelled) / sum(flights), sum(delay_minutes) / sum(departed) "
            "FROM flights_by_carrier GROUP BY 1 ORDER BY 4 DESC"
        ).fetchall()
    finally:
        database.close()
    show.say("")
    show.say(f"Cancelled flights by month; the worst day was {day} with {worst:,}")
    show.bars(
        [(MONTHS[month - 1], count, f"{count:,} ({100 * count / total:.1f} %)") for month, count, total in by_month]
    )
    show.say("")
    names = data.airlines()
    show.table(
        ["Airline", "flights", "cancelled", "mean delay"],
        [[names[code], count, f"{share:.1f} %", f"{delay:.1f} min"] for code, count, share, delay in carriers],
    )


def look_next(show: Show, cluster: Cluster, folder: Path, *, keep: bool) -> None:
    """Where to go from here."""
    show.step(f"Done: {show.checks} checks held")
    if keep:
        server = cluster.bootstrap_servers.partition(",")[0]
        show.say("The cluster stays up (KEEP=1). Try:")
        show.commands(
            [
                (f"barnabas topics --describe --bootstrap-server {server}", "partitions and their leaders"),
                (
                    f"barnabas consumer-groups --describe --group {GROUP} --bootstrap-server {server}",
                    "the group's position and lag",
                ),
                (
                    f"barnabas console-consumer --topic flights-by-carrier --from-beginning --max-messages 5 "
                    f"--bootstrap-server {server}",
                    "results as they stand in the topic",
                ),
                (f"sqlite3 {folder / 'flights.db'} 'select * from flights_by_carrier limit 5'", "results as rows"),
                (f"{cluster.stop_command} && rm -r {folder}", "stops the cluster and removes its data"),
            ]
        )
    else:
        show.say("Nothing is left running. Next:")
        show.commands(
            [
                ("KEEP=1 make demo", "the same, and the cluster stays up for you to look around"),
                (f"less {FLOW.relative_to(ROOT)}", "the pipeline, which is one file"),
                ("less docs/how-to/pipelines.md", "how to declare your own"),
                ("barnabas --help", "the tools, with the names and flags of Kafka's"),
            ]
        )


def _who(name: str) -> str:
    return name if name == "zookeeper" else f"broker {name}"


if __name__ == "__main__":
    sys.exit(main())
