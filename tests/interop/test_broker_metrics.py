"""The metrics page of brokers: Prometheus' own parser reads it, and its values are what
was done to the cluster."""

import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from barnabas.base.errors import BarnabasError
from barnabas.log.checkpoints import CLEAN_SHUTDOWN
from barnabas.testing import Cluster, ProcessCluster
from support.metrics import Metrics, read_metrics
from support.ports import free_ports
from support.trio import Trio, trio
from support.waiting import eventually

pytestmark = [pytest.mark.interop]

REPLICAS = "kafka_server_replicamanager_"
CONTROLLER = "kafka_controller_kafkacontroller_"
PURGATORY = "kafka_server_delayedoperationpurgatory_purgatorysize"
COUNTED = "event_loop_slow_place_callbacks_total"

Monitored = tuple[Trio, list[int]]
"""Brokers and the ports of their pages."""


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    """Three brokers, and the ports of their pages."""
    ports = free_ports(3)
    each = {number: {"metrics.http.address": f"127.0.0.1:{port}"} for number, port in enumerate(ports)}
    with trio(tmp_path_factory.mktemp("metrics"), each=each) as cluster:
        cluster.create("first", 1)  # the pages are there when the brokers are
        yield cluster, ports


def total(pages: list[Metrics], name: str) -> float:
    return sum(page[name] for page in pages)


def test_every_broker_shows_what_it_leads_and_one_is_controller(monitored: Monitored) -> None:
    """Together the brokers lead each partition once."""
    cluster, ports = monitored
    cluster.create("many", 6)
    pages = [read_metrics(port) for port in ports]
    (controller,) = (page for page in pages if page[f"{CONTROLLER}activecontrollercount"])
    partitions = controller[f"{CONTROLLER}globalpartitioncount"]
    assert partitions >= 6
    assert controller[f"{CONTROLLER}offlinepartitionscount"] == 0
    assert total(pages, f"{REPLICAS}leadercount") == partitions
    assert total(pages, f"{REPLICAS}partitioncount") == 3 * partitions
    assert total(pages, f"{REPLICAS}underreplicatedpartitions") == 0
    for page in pages:
        assert page["process_resident_memory_bytes"] > 1 << 20
        assert page["process_cpu_seconds_total"] > 0
        assert page.get("kafka_server_socket_server_metrics_connection_count", listener="PLAINTEXT") > 0
        assert page.by("generation", "python_gc_collections_total")["0"] > 0


def test_what_clients_produce_and_consume_is_counted_for_its_topic(monitored: Monitored) -> None:
    """Bytes are those of the logs: they come in once, go out to each follower, and to a
    consumer that reads all."""
    cluster, ports = monitored
    cluster.create("counted", 3)
    produced = 0
    for acks in (0, 1, "all"):
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": acks, "linger.ms": 0})
        for number in range(100):
            producer.produce("counted", b"x" * 100, partition=number % 3)
            producer.poll(0)
        assert producer.flush(60) == 0
        produced += 100
    cluster.wait_until_equal("counted", 3)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["counted"])
    read = 0
    while read < produced:
        read += len(consumer.consume(produced - read, timeout=60))
    pages = [read_metrics(port) for port in ports]
    consumer.close()

    def of_topic(name: str) -> float:
        return sum(page.get(f"kafka_server_brokertopicmetrics_{name}_total", topic="counted") for page in pages)

    size_bytes = sum(len(cluster.log_bytes(0, "counted", partition)) for partition in range(3))
    assert (of_topic("messagesin"), of_topic("bytesin")) == (produced, size_bytes)
    assert of_topic("replicationbytesin") == of_topic("replicationbytesout") == 2 * size_bytes
    assert of_topic("bytesout") >= size_bytes  # librdkafka may fetch again what it has not kept
    assert of_topic("failedproducerequests") == of_topic("failedfetchrequests") == 0
    assert 0 < of_topic("totalproducerequests") <= produced
    for page in pages:
        requests = page.by("request", "kafka_network_requestmetrics_requests_total")
        assert requests == page.by("request", "kafka_network_requestmetrics_totaltimems_count")
        assert {"Produce", "FetchFollower", "Metadata", "ApiVersions"} <= set(requests)
        assert page.kinds["kafka_network_requestmetrics_totaltimems"] == "histogram"
    assert total(pages, "kafka_coordinator_group_groupmetadatamanager_numgroupsstable") == 1
    waiting = [page.by("delayedOperation", PURGATORY) for page in pages]
    assert sum(sizes["Fetch"] for sizes in waiting) > 0
    assert sum(sizes["Produce"] for sizes in waiting) == 0


def test_an_open_transaction_is_shown_by_its_coordinator_until_it_ends(monitored: Monitored) -> None:
    """Its state and age, then its outcome; the producer is remembered by the leader's replicas."""
    cluster, ports = monitored
    cluster.create("transacted", 1)

    def shown(name: str, **labels: str) -> float:
        return sum(page.get(name, **labels) for page in map(read_metrics, ports))

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "shown"})
    producer.init_transactions(60)
    for is_committed, outcome in ((True, "committed"), (False, "aborted")):
        producer.begin_transaction()
        producer.produce("transacted", b"1")
        assert producer.flush(60) == 0
        assert shown("barnabas_transactions", state="Ongoing") == 1
        eventually(lambda: shown("barnabas_transaction_oldest_open_seconds") > 0, what="the age of a transaction")
        assert shown("barnabas_transactions_ended_total", outcome=outcome) == 0
        producer.commit_transaction(60) if is_committed else producer.abort_transaction(60)
        assert shown("barnabas_transactions_ended_total", outcome=outcome) == 1
        eventually(lambda: shown("barnabas_transactions", state="Ongoing") == 0, what="the end of a transaction")
    assert shown(f"{REPLICAS}produceridcount") >= 3
    assert shown(f"{REPLICAS}partitionswithlatetransactionscount") == 0
    assert shown("kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize") == 0


def test_a_broker_that_stops_shows_as_partitions_under_replicated_until_it_is_back(
    monitored: Monitored,
) -> None:
    """Two of three replicas are just min.insync.replicas; where one is left, there are too few."""
    cluster, ports = monitored
    cluster.create("moved", 3)

    def seen(name: str, brokers: tuple[int, ...]) -> float:
        return total([read_metrics(ports[number]) for number in brokers], f"{REPLICAS}{name}")

    partitions = seen("leadercount", (0, 1, 2))
    cluster.brokers[2].stop()
    eventually(
        lambda: seen("underreplicatedpartitions", (0, 1)) == seen("atminisrpartitioncount", (0, 1)) == partitions,
        timeout_s=60,
        what="each partition misses a replica",
    )
    assert seen("underminisrpartitioncount", (0, 1)) == 0
    cluster.brokers[1].kill()
    eventually(
        lambda: seen("underminisrpartitioncount", (0,)) == partitions,
        timeout_s=60,
        what="each partition has too few replicas",
    )
    for broker in cluster.brokers[1:]:
        broker.start()

    def are_back() -> bool:
        try:
            return seen("underreplicatedpartitions", (0, 1, 2)) == 0 and seen("leadercount", (0, 1, 2)) == partitions
        except urllib.error.URLError:  # not started yet
            return False

    eventually(are_back, timeout_s=60, what="all replicas are in sync again")
    assert seen("isrshrinks_total", (0, 1, 2)) + seen("isrexpands_total", (0, 1, 2)) > 0


def test_what_holds_the_event_loop_is_counted_with_its_place() -> None:
    """Here it is a Produce request, which waits for a slow disk; its time counts too."""
    (port,) = free_ports(1)
    with ProcessCluster(settings={"metrics.http.address": f"127.0.0.1:{port}"}, faults=True) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})

        def produce(count: int) -> None:
            for _ in range(count):
                producer.produce("slow", b"x")
                assert producer.flush(60) == 0

        produce(1)
        before = read_metrics(port).by("place", COUNTED)
        cluster.slow_disk(0, 0.1)
        produce(3)
        cluster.heal()
        page = read_metrics(port)
    after, seconds = page.by("place", COUNTED), page.by("place", "event_loop_slow_place_seconds_total")
    (place,) = (place for place in after if "PRODUCE" in place)
    assert "net/sockets.py" in place
    assert after[place] - before.get(place, 0) >= 3
    # What the thread waited for a CPU is taken off, with an error of 5 ms.
    assert seconds[place] >= 0.24
    assert page["event_loop_slow_callbacks_total"] == sum(after.values())
    assert page["event_loop_slow_seconds_total"] == pytest.approx(sum(seconds.values()), abs=1e-3)
    assert page["event_loop_slowest_callback_seconds"] >= 0.08


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1:{port}", "metrics.http.address: 127.0.0.1:{port} cannot be opened"),
        ("192.0.2.1:0", "metrics.http.address: 192.0.2.1:0 cannot be opened"),
        ("127.0.0.1", "metrics.http.address: '127.0.0.1' is not host:port"),
        ("::1:7071", "metrics.http.address: '::1:7071' is not host:port"),
        ("localhost:70000", "metrics.http.address: 'localhost:70000' is not host:port"),
        ("", "metrics.http.address: '' is not host:port"),
        ("a" * 64 + ".example:0", "is not the name of a host"),
    ],
)
def test_an_address_that_cannot_be_used_stops_the_start(monitored: Monitored, address: str, reason: str) -> None:
    """With the reason.

    Here the port of another broker's page, an address of another machine, and what
    is no address."""
    _, ports = monitored
    with pytest.raises(BarnabasError) as refused:
        Cluster(settings={"metrics.http.address": address.format(port=ports[0])}).start()
    assert reason.format(port=ports[0]) in str(refused.value)


@pytest.mark.parametrize("setting", ["metrics.http.address=127.0.0.1:{port}", "listeners=PLAINTEXT://127.0.0.1:{port}"])
def test_a_start_that_is_refused_for_a_port_leaves_the_logs_marked_as_clean(
    monitored: Monitored, tmp_path: Path, setting: str
) -> None:
    """The next start need not check them."""
    _, ports = monitored
    with Cluster(data_dir=tmp_path):
        pass
    (marker,) = tmp_path.glob(f"*/{CLEAN_SHUTDOWN}")
    with pytest.raises(BarnabasError):
        Cluster(data_dir=tmp_path, settings=dict([setting.format(port=ports[0]).split("=")])).start()
    assert marker.exists()
