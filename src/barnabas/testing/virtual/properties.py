"""Properties of clients in virtual time: those that have an effect here; another name
is refused, not ignored.

Names are sorted by `barnabas.client.properties.translation` first, so that today's names and those
of Kafka's first clients work.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.client.errors import ConfigurationError
from barnabas.client.properties.names import check_all_known, check_properties
from barnabas.client.properties.translation import ConsumerPlan, ProducerPlan, plan_consumer, plan_producer

__all__ = ["VirtualConsumerSettings", "VirtualProducerSettings", "consumer_settings", "producer_settings"]

_BOOTSTRAP = "bootstrap.servers"
_ALL = -1


@dataclass(slots=True)
class VirtualProducerSettings:
    """What a producer in virtual time goes by."""

    plan: ProducerPlan
    acks: int = _ALL
    is_idempotent: bool = False
    linger_ms: int = 5
    batch_records: int = 10_000
    queue_records: int = 100_000
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 300_000
    retries: int = 2_147_483_647
    backoff_ms: int = 100
    hashes_keys: bool = True
    transactional_id: str = ""
    transaction_timeout_ms: int = 60_000


@dataclass(slots=True)
class VirtualConsumerSettings:
    """What a consumer in virtual time goes by."""

    plan: ConsumerPlan
    group: str = ""
    instance: str | None = None
    reset: str = "latest"
    auto_commit: bool = True
    commit_interval_ms: int = 5000
    session_timeout_ms: int = 45_000
    heartbeat_ms: int = 3000
    max_poll_ms: int = 300_000
    read_committed: bool = True
    fetch_wait_ms: int = 500
    partition_bytes: int = 1024 * 1024
    strategy: str = "range"


def producer_settings(properties: Mapping[str, Any]) -> VirtualProducerSettings:
    """Sort a producer's properties; raises `ConfigurationError`."""
    check_properties(properties, "producer")
    plan = plan_producer({_BOOTSTRAP: "simulated:9092", **properties})
    made = VirtualProducerSettings(plan)
    given = _Given(plan.librdkafka)
    acks = given.text("acks", "all")
    made.acks = _ALL if acks in ("all", "-1") else int(acks)
    made.transactional_id = given.text("transactional.id", "")
    made.transaction_timeout_ms = given.number("transaction.timeout.ms", made.transaction_timeout_ms)
    made.is_idempotent = given.flag("enable.idempotence", default=bool(made.transactional_id))
    made.linger_ms = given.number("linger.ms", made.linger_ms)
    made.batch_records = given.number("batch.num.messages", made.batch_records)
    made.queue_records = given.number("queue.buffering.max.messages", made.queue_records)
    made.request_timeout_ms = given.number("request.timeout.ms", made.request_timeout_ms)
    made.delivery_timeout_ms = given.number("delivery.timeout.ms", made.delivery_timeout_ms)
    made.retries = given.number("retries", made.retries)
    made.backoff_ms = given.number("retry.backoff.ms", made.backoff_ms)
    made.hashes_keys = given.one_of("partitioner", ("murmur2_random", "murmur2", "random")) != "random"
    given.refuse_rest("producer")
    if made.transactional_id and not made.is_idempotent:
        raise ConfigurationError("transactional.id needs enable.idempotence=true")
    if made.is_idempotent and made.acks != _ALL:
        raise ConfigurationError(f"enable.idempotence=true needs acks=all, not acks={acks}")
    return made


def consumer_settings(properties: Mapping[str, Any]) -> VirtualConsumerSettings:
    """Sort a consumer's properties; raises `ConfigurationError`."""
    check_properties(properties, "consumer")
    plan = plan_consumer({_BOOTSTRAP: "simulated:9092", **properties})
    made = VirtualConsumerSettings(plan)
    given = _Given(plan.librdkafka)
    made.group = given.text("group.id", "")
    made.instance = given.text("group.instance.id", "") or None
    made.reset = given.one_of("auto.offset.reset", ("latest", "earliest", "error"))
    made.auto_commit = given.flag("enable.auto.commit", default=True) and bool(made.group)
    made.commit_interval_ms = given.number("auto.commit.interval.ms", made.commit_interval_ms)
    made.session_timeout_ms = given.number("session.timeout.ms", made.session_timeout_ms)
    made.heartbeat_ms = given.number("heartbeat.interval.ms", made.heartbeat_ms)
    made.max_poll_ms = given.number("max.poll.interval.ms", made.max_poll_ms)
    made.read_committed = given.one_of("isolation.level", ("read_committed", "read_uncommitted")) == "read_committed"
    made.fetch_wait_ms = given.number("fetch.wait.max.ms", made.fetch_wait_ms)
    partition_bytes = given.number("fetch.message.max.bytes", made.partition_bytes)
    made.partition_bytes = given.number("max.partition.fetch.bytes", partition_bytes)
    strategies = given.text("partition.assignment.strategy", made.strategy)
    made.strategy = next((each for each in strategies.split(",") if each in ("range", "roundrobin")), "")
    if not made.strategy:
        raise ConfigurationError(
            f"partition.assignment.strategy={strategies}: range and roundrobin are simulated, others are not"
        )
    given.refuse_rest("consumer")
    return made


class _Given:
    """The properties that were not looked at yet."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._left = {name: value for name, value in properties.items() if name not in (_BOOTSTRAP, "client.id")}

    def text(self, name: str, default: str) -> str:
        return str(self._left.pop(name, default))

    def number(self, name: str, default: int) -> int:
        return self._read(name, default, int, "a whole number")

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.text(name, str(default)).lower()
        if value not in ("true", "false"):
            raise ConfigurationError(f"Invalid value {value} for configuration {name}: true or false is expected")
        return value == "true"

    def one_of(self, name: str, values: tuple[str, ...]) -> str:
        value = self.text(name, values[0])
        if value not in values:
            raise ConfigurationError(
                f"Invalid value {value} for configuration {name}: simulated are {', '.join(values)}"
            )
        return value

    def _read(self, name: str, default: int, read: Callable[[Any], int], expected: str) -> int:
        value = self._left.pop(name, default)
        try:
            return read(value)
        except (TypeError, ValueError):
            raise ConfigurationError(
                f"Invalid value {value} for configuration {name}: {expected} is expected"
            ) from None

    def refuse_rest(self, kind: str) -> None:
        if self._left:
            check_all_known(self._left)
            raise ConfigurationError(
                f"not simulated for a {kind}: {', '.join(sorted(self._left))}", remedy="leave them out in the scenario"
            )
