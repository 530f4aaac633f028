"""The metrics pages of running servers: whatever a dashboard or a rule reads is there, with its
labels, and a mirror's figures are what it did."""

import asyncio
import contextlib
import re
import urllib.request
from collections.abc import Iterator, Mapping

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.base.metric import Metric
from barnabas.client import Admin, Consumer, Producer
from barnabas.metrics.alerts import ALERTS
from barnabas.metrics.catalog import SERVERS, TARGET_UP, known_metrics
from barnabas.metrics.dashboards import DASHBOARDS
from barnabas.metrics.expressions import readings, suffixes_of
from barnabas.mirror import MirrorMaker, MirrorSettings, TopicFilter
from barnabas.mirror.metric_names import MirrorMetrics
from barnabas.mirror.replication_policy import ReplicationPolicy
from barnabas.mirror.settings import LinkSettings
from barnabas.pipelines.dashboard.charts import run_metrics_text
from barnabas.registry.server import RegistryServer
from barnabas.rest.server import RestServer
from barnabas.testing import Cluster, ProcessCluster
from support.ensemble import ensemble
from support.metrics import Metrics, read_metrics
from support.ports import free_ports
from support.servers import Server
from support.waiting import eventually

pytestmark = [pytest.mark.interop]

RUN = {
    "status": "done",
    "rows": 10,
    "bad_rows": 2,
    "bad": {"column n": 2},
    "late_rows": 0,
    "timeless_rows": 0,
    "tables": {"rates": {"rows": 3, "bad_rows": 1}},
    "lost_records": 0,
    "quarantined_rows": 0,
    "lag": 5,
    "catch_up_s": 1.5,
    "expectations": {"small": 1},
    "batches": 2,
    "batch_s": 0.5,
    "last_success_s": 1.7e9,
}
"""What a run notes of itself. Spark's tests look that runs note it."""


@contextlib.contextmanager
def mirrored(source: str, target: str) -> Iterator[MirrorMaker]:
    """A mirror between named clusters, with a page."""
    settings = MirrorSettings(
        consumer={"bootstrap.servers": source, "group.id": "mirror"},
        producer={"bootstrap.servers": target, "delivery.timeout.ms": "120000"},
        topics=TopicFilter("orders"),
        commit_interval_ms=200,
        topic_refresh_ms=200,
        link=LinkSettings(ReplicationPolicy("home", "backup"), checkpoint_interval_ms=1000),
        metrics_http_address=("127.0.0.1", 0),
    )
    maker = MirrorMaker(settings)
    maker.start()
    try:
        yield maker
    finally:
        maker.stop()
        with contextlib.suppress(BarnabasError):  # the target may be gone
            maker.wait()


@contextlib.contextmanager
def running(server: Server) -> Iterator[None]:
    server.start()
    try:
        yield
    finally:
        server.kill()


def port_of(maker: MirrorMaker) -> int:
    assert maker.metrics_port is not None
    return maker.metrics_port


OF_CLIENTS = {"metrics.http.address": "127.0.0.1:0", "statistics.interval.ms": "50"}


def client_pages(servers: str) -> dict[str, Metrics]:
    """Those of a producer and of a consumer that have worked."""
    reading = {"bootstrap.servers": servers, "group.id": "other", "auto.offset.reset": "earliest", **OF_CLIENTS}
    with Producer({"bootstrap.servers": servers, **OF_CLIENTS}) as producer, Consumer(reading) as consumer:
        consumer.subscribe(["orders"])
        found: dict[str, Metrics] = {}

        def have_worked() -> bool:
            producer.send("other", "x").result(60)
            consumer.poll(0.05)
            assert producer.metrics_port is not None
            assert consumer.metrics_port is not None
            found.update(producer=read_metrics(producer.metrics_port), consumer=read_metrics(consumer.metrics_port))
            # The last interval had a batch: a quiet client has no average.
            wanted = {"producer": {"record_send_rate", "batch_size_avg"}, "consumer": {"records_lag_max"}}
            return all(
                parts <= {part for part in parts for name in found[client] if part in name}
                for client, parts in wanted.items()
            )

        eventually(have_worked, what="reports of both clients")
        return found


def web_pages(servers: str) -> dict[str, Metrics]:
    """Those of a schema registry and of a REST proxy that have answered a request."""
    registry_port, rest_port = free_ports(2)

    async def serve() -> dict[str, Metrics]:
        registry = RegistryServer(
            {
                "kafkastore.bootstrap.servers": servers,
                "listeners": "http://127.0.0.1:0",
                "metrics.http.address": f"127.0.0.1:{registry_port}",
            },
            lambda _: {},
        )
        rest = RestServer(
            {
                "bootstrap.servers": servers,
                "listeners": "http://127.0.0.1:0",
                "metrics.http.address": f"127.0.0.1:{rest_port}",
            },
            lambda _: {},
        )
        await registry.start()
        await rest.start()
        try:
            return await asyncio.to_thread(ask, registry.url, f"http://127.0.0.1:{rest.listeners[0].port}")
        finally:
            await rest.close()
            await registry.close()

    def ask(registry_url: str, rest_url: str) -> dict[str, Metrics]:
        for url in (f"{registry_url}/subjects", f"{rest_url}/topics"):
            with urllib.request.urlopen(url, timeout=60) as answer:
                answer.read()
        return {"schema registry": read_metrics(registry_port), "REST proxy": read_metrics(rest_port)}

    return asyncio.run(serve())


def send(servers: str, topic: str, count: int) -> None:
    with Producer({"bootstrap.servers": servers}) as producer:
        for number in range(count):
            producer.send(topic, f"value {number}", key=f"{number % 7}")


def read(servers: str, topic: str, count: int) -> None:
    """As group shop, which commits what it has read."""
    settings = {"bootstrap.servers": servers, "group.id": "shop", "auto.offset.reset": "earliest"}
    with Consumer(settings) as consumer:
        consumer.subscribe([topic])
        for _ in range(count):
            assert consumer.poll(60) is not None
        consumer.commit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Metrics]]:
    """A page of each kind of server, by the kind's name."""
    folder = tmp_path_factory.mktemp("pages")
    broker_port, lag_port = free_ports(2)
    provider = {
        "metricsProvider.className": "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider",
        "metricsProvider.httpHost": "127.0.0.1",
        "metricsProvider.httpPort": 0,
    }
    with (
        ProcessCluster(settings={"metrics.http.address": f"127.0.0.1:{broker_port}"}) as source,
        Cluster() as target,
        ensemble(folder, **provider) as members,
    ):
        servers = source.bootstrap_servers
        with Admin({"bootstrap.servers": servers}) as admin:
            admin.create_topic("orders", partitions=2)
        send(servers, "orders", 100)
        read(servers, "orders", 90)
        lag = ["lag", "--bootstrap-server", servers, "--metrics-address", f"127.0.0.1:{lag_port}"]
        lag += ["--interval", "1"]
        with mirrored(servers, target.bootstrap_servers) as maker, running(Server(lag, folder / "lag.log", lag_port)):
            members.until_serving()
            leader = eventually(members.leader, what="a leader")
            eventually(lambda: maker.copied >= 100, what="all is mirrored")
            eventually(lambda: has_group(lag_port), what="the lag of the group")
            eventually(lambda: lag_of(port_of(maker)) == 0, what="the mirror has seen the end")
            found = re.findall(r"Serving HTTP on port (\d+) \(metricsProvider", leader.log())
            yield {
                **client_pages(servers),
                **web_pages(servers),
                "broker": read_metrics(broker_port),
                "coordination server": read_metrics(int(found[-1])),
                "mirror": read_metrics(port_of(maker)),
                "lag exporter": read_metrics(lag_port),
                "flow": Metrics(run_metrics_text("payments", RUN, is_running=True)),
            }


def has_group(port: int) -> bool:
    try:
        return "barnabas_lag_group_consumed_records_per_second" in read_metrics(port)
    except OSError:  # not started yet
        return False


def lag_of(port: int) -> float | None:
    """The records of the topic that a mirror lacks, heartbeats aside; None before it knows."""
    counts = of_orders(read_metrics(port), MirrorMetrics.LAG)
    return sum(counts) if counts else None


def names_of(metric: Metric) -> list[str]:
    """Those of its samples. The parser puts _total behind the name of every counter."""
    is_bare = metric.kind == "counter" and not metric.name.endswith("_total")
    return [f"{metric}_total"] if is_bare else [f"{metric}{suffix}" for suffix in suffixes_of(metric)]


def samples_of(metric: Metric, page: Metrics) -> list[set[str]]:
    """The labels of its samples."""
    return [labels for name in names_of(metric) for labels in page.labels(name)]


def values(page: Metrics, metric: Metric, label: str) -> list[float]:
    """Its values by a label."""
    return [value for name in names_of(metric) for value in page.by(label, name).values()]


def of_orders(page: Metrics, metric: Metric) -> list[float]:
    """Its values for the topic that is mirrored."""
    return [value for name in names_of(metric) for value in page.where(name, topic="orders")]


def shown(metric: Metric, pages: Mapping[str, Metrics]) -> list[set[str]]:
    """The labels of the samples of a metric, on all pages of servers that list it."""
    return [
        labels for server in SERVERS if metric in server.metrics for labels in samples_of(metric, pages[server.name])
    ]


def test_what_rules_and_dashboards_read_is_on_the_pages_of_a_running_cluster(pages: Mapping[str, Metrics]) -> None:
    """Each metric of each expression, with the labels by which it is selected."""
    expressions = [alert.expression for group in ALERTS for alert in group.alerts]
    panels = [panel for dashboard in DASHBOARDS for row in dashboard.rows for panel in row.panels]
    expressions += [query.expression for panel in panels for query in panel.queries]
    known = known_metrics()
    lacking = [
        f"{metric} {sorted(labels)}: {expression}"
        for expression in expressions
        for metric, labels in readings(expression, known)
        if metric != TARGET_UP and not any(labels <= found for found in shown(metric, pages))
    ]
    assert lacking == []


def test_a_page_has_the_kinds_and_labels_that_the_list_says(pages: Mapping[str, Metrics]) -> None:
    """And most of its metrics: some have samples only once something has happened."""
    for server in SERVERS:
        page = pages[server.name]
        missing = []
        for metric in server.metrics:
            samples = samples_of(metric, page)
            if not samples:
                missing.append(metric.name)
                continue
            kind = page.kinds.get(metric.name) or page.kinds[metric.name.removesuffix("_total")]
            assert kind == metric.kind, metric
            assert all(labels <= {*metric.labels, "quantile", "le"} for labels in samples), metric
        assert len(missing) <= len(server.metrics) // 4, (server.name, missing)


def test_a_registry_and_a_proxy_count_their_answers(pages: Mapping[str, Metrics]) -> None:
    """By method and status; the registry says that it leads."""
    for name in ("schema registry", "REST proxy"):
        assert pages[name].get("barnabas_http_requests_total", method="GET", code="200") == 1
        assert pages[name].get("barnabas_http_request_seconds_count", method="GET") == 1
        assert pages[name].get("barnabas_http_request_seconds_bucket", method="GET", le="+Inf") == 1
    assert pages["schema registry"]["kafka_schema_registry_master_slave_role"] == 1
    assert pages["schema registry"]["kafka_schema_registry_registered_count"] == 0


def test_a_mirror_counts_what_it_copies_and_what_the_target_lacks(pages: Mapping[str, Metrics]) -> None:
    """With nothing left it is no second behind."""
    page = pages["mirror"]
    assert sum(of_orders(page, MirrorMetrics.RECORDS)) == 100
    assert sum(of_orders(page, MirrorMetrics.BYTES)) == 790 + 100
    assert set(of_orders(page, MirrorMetrics.AGE)) == {0}
    assert 0 < max(of_orders(page, MirrorMetrics.LATENCY)) < 600_000
    assert set(values(page, MirrorMetrics.ERRORS, "what")) == {0}
    assert page[MirrorMetrics.STREAMS.name] == 1


@pytest.mark.fault
def test_a_mirror_whose_target_is_gone_is_behind_more_and_more() -> None:
    """In records, and in seconds since the target had all."""
    with Cluster() as source, Cluster() as target:
        send(source.bootstrap_servers, "orders", 10)
        with mirrored(source.bootstrap_servers, target.bootstrap_servers) as maker:
            eventually(lambda: maker.copied >= 10, what="all is mirrored")
            eventually(lambda: lag_of(port_of(maker)) == 0, what="nothing is left")
            target.pause(0)
            send(source.bootstrap_servers, "orders", 5)
            eventually(lambda: lag_of(port_of(maker)) == 5, what="the target lacks five records")
            page = read_metrics(port_of(maker))
            assert max(of_orders(page, MirrorMetrics.AGE)) > 0
            target.resume(0)
            eventually(lambda: lag_of(port_of(maker)) == 0, what="they are copied")
            assert sum(of_orders(read_metrics(port_of(maker)), MirrorMetrics.RECORDS)) == 15
