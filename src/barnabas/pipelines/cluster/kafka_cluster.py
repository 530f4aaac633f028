"""What the Spark driver asks of a cluster: partitions, and the offsets at marks and times.

A leader may be away for a moment (a broker restarts, an election runs). Questions are asked again
until they are answered or `Cluster.timeout_ms` is over, so a query survives that; errors that
waiting cannot mend are raised at once.
"""

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka import admin as client_admin

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.hints import did_you_mean
from barnabas.base.ids import TopicPartition
from barnabas.client.librdkafka.clients import new_client
from barnabas.pipelines.cluster.offsets import EARLIEST, LATEST, Offsets
from barnabas.pipelines.cluster.options import SourceOptions, Start, client_config

__all__ = ["ClusterError", "KafkaCluster", "open_client"]

_SPECS: Any = vars(client_admin)["OffsetSpec"]  # its stubs forget to export it
logger = logging.getLogger(__name__)
_REQUEST_TIMEOUT_S = 10
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""All zeros: a topic that was made before topics had ids."""
_PAUSE_S = 0.25
_NEWS_S = 3.0
_HOPELESS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.INVALID_REQUEST,
    KafkaError.UNSUPPORTED_VERSION,
}
_SILENT = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE}
_CONSUMER_ONLY = ("isolation.level", "group.id", "fetch.", "max.poll", "queued.", "session.", "check.crcs")


class ClusterError(BarnabasError):
    """The cluster did not answer, or answered with an error."""


def open_client(kind: Any, config: Mapping[str, object]) -> Any:
    """A client of librdkafka; raises `ConfigError` for a property that it does not know or like."""
    try:
        return new_client(kind, config)
    except KafkaException as error:
        raise ConfigError(f"librdkafka refuses the kafka. options: {error.args[0].str()}") from error


class MissingTopicError(ClusterError):
    """A topic that a broker does not know, or not yet: it learns of a new topic a moment later."""

    def __init__(self, what: str, hint: str = "", *, may_come: bool = False) -> None:
        """``may_come``: the broker knows no topic at all, though there were some.

        One that has just started has not heard of them."""
        super().__init__(what + (hint or ": make it, or correct its name"))
        self.what = what
        self.may_come = may_come


class KafkaCluster:
    """Questions to a cluster, over one connection that is kept."""

    def __init__(
        self, options: SourceOptions, *, timeout_ms: int = 60_000, is_stopped: Callable[[], bool] = lambda: False
    ) -> None:
        """``is_stopped`` is asked before each new attempt."""
        self._options = options
        self.timeout_ms = timeout_ms
        self._is_stopped = is_stopped
        kafka = {name: text for name, text in options.kafka.items() if not name.startswith(_CONSUMER_ONLY)}
        self._admin = open_client(client_admin.AdminClient, client_config(kafka))
        committed = options.kafka.get("isolation.level") == "read_committed"
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

    def partitions(self, *, were_there: bool = False) -> list[TopicPartition]:
        """What the options subscribe to, in order.

        Raises `ClusterError` when a named topic does not exist. ``were_there``: the
        query has read some of them.
        """
        if self._options.assigned:
            return sorted(self._options.assigned)
        found: list[TopicPartition] = self._until_done("list the topics", lambda: self._subscribed(were_there))
        return found

    def _subscribed(self, were_there: bool) -> list[TopicPartition]:
        topics = self._admin.list_topics(timeout=_REQUEST_TIMEOUT_S).topics
        if were_there and not topics:
            asked = self._options.pattern or ", ".join(self._options.topics)
            raise MissingTopicError(f"topic {asked} does not exist on {self.address}", may_come=True)
        if self._options.pattern is not None:
            pattern = re.compile(self._options.pattern)
            wanted = [name for name in topics if pattern.fullmatch(name)]
        else:
            wanted = list(self._options.topics)
            missing = [name for name in wanted if name not in topics]
            if missing:
                self._refuse_hidden(missing)
                hint = did_you_mean(missing[0], [name for name in topics if not name.startswith("__")])
                raise MissingTopicError(f"topic {', '.join(missing)} does not exist on {self.address}", hint)
        for name in wanted:
            # Its partitions are not known at the moment.
            if (error := topics[name].error) is not None:
                raise KafkaException(error)
        return sorted(TopicPartition(name, each) for name in wanted for each in topics[name].partitions)

    def _refuse_hidden(self, topics: Sequence[str]) -> None:
        """Raise `ClusterError` for a topic that no list has because it may not be described.

        Brokers say so where it is named."""
        for topic, future in self._admin.describe_topics(
            TopicCollection(list(topics)), request_timeout=_REQUEST_TIMEOUT_S
        ).items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise ClusterError(
                        f"topic {topic} of {self.address}: the right to describe it is missing: {error.args[0].str()}"
                    ) from error
            except RuntimeError:  # the answer says nothing of the topic
                continue

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """The ids of those topics that exist, if the brokers have ids (Kafka 2.8 and later)."""
        if not topics:
            return {}
        wanted = TopicCollection(list(topics))
        futures = self._admin.describe_topics(wanted, request_timeout=_REQUEST_TIMEOUT_S)
        found: dict[str, str] = {}
        for topic, future in futures.items():
            try:
                topic_id = str(future.result().topic_id)
            except KafkaException:
                continue  # it is missing, or not known yet: `partitions` says so, and waits
            if topic_id != _NO_ID:
                found[topic] = topic_id
        return found

    @property
    def address(self) -> str:
        """Where the cluster is reached, for messages."""
        return self._options.kafka["bootstrap.servers"]

    def resolve(self, partitions: Iterable[TopicPartition], bound: Start) -> Offsets:
        """Concrete offsets of the partitions for a bound.

        A time past the last record gives the end."""
        result: Offsets = {}
        asked: dict[TopicPartition, int] = {}
        by_time: dict[TopicPartition, int] = {}
        for name in partitions:
            offset = bound.offsets.get(name, bound.mark)
            time_ms = bound.times_ms.get(name, bound.time_ms)
            if name not in bound.offsets and time_ms is not None:
                by_time[name] = time_ms
            elif offset < 0:
                asked[name] = offset
            else:
                result[name] = offset
        result |= self.at_marks(asked)
        result |= self._at_times(by_time)
        return result

    def at_marks(self, marks: Mapping[TopicPartition, int]) -> Offsets:
        """Offsets at `EARLIEST` or `LATEST`; at read_committed the latest is the
        last stable offset."""
        earliest, latest = _SPECS.earliest(), _SPECS.latest()
        return self._ask({name: earliest if mark == EARLIEST else latest for name, mark in marks.items()})

    def log_ends(self, names: Iterable[TopicPartition]) -> Offsets:
        """The high watermarks: where the logs end, whatever of them is committed."""
        return self._ask(dict.fromkeys(names, _SPECS.latest()), IsolationLevel.READ_UNCOMMITTED)

    def _at_times(self, times_ms: Mapping[TopicPartition, int]) -> Offsets:
        found = self._ask({name: _SPECS.for_timestamp(time_ms) for name, time_ms in times_ms.items()})
        beyond = {name: LATEST for name, offset in found.items() if offset < 0}
        return found | self.at_marks(beyond)

    def _ask(self, specs: Mapping[TopicPartition, Any], isolation: IsolationLevel | None = None) -> Offsets:
        answers: Offsets = {}
        waiting = dict(specs)

        def ask() -> None:
            futures = self._admin.list_offsets(
                {ClientPartition(name.topic, name.partition): spec for name, spec in waiting.items()},
                isolation_level=self._isolation if isolation is None else isolation,
                request_timeout=_REQUEST_TIMEOUT_S,
            )
            failure: Exception | None = None
            for client_name, future in futures.items():
                try:
                    offset = future.result().offset
                except KafkaException as error:
                    failure = error
                    continue
                name = TopicPartition(client_name.topic, client_name.partition)
                answers[name] = offset
                del waiting[name]
            if failure:
                raise failure

        if waiting:
            self._until_done("list offsets", ask)
        return answers

    def _until_done(self, what: str, step: Any) -> Any:
        begun = time.monotonic()
        is_reported = False
        while True:
            try:
                return step()
            except MissingTopicError as error:
                if (
                    time.monotonic() > begun + (self.timeout_ms / 1000 if error.may_come else _NEWS_S)
                    or self._is_stopped()
                ):
                    raise
                time.sleep(_PAUSE_S)
            except KafkaException as error:
                cause = error.args[0]
                problem = f"cannot {what} on {self.address}: {cause.str()}"
                if cause.code() in _SILENT:
                    problem = f"no broker answers at {self.address} ({cause.str()}): is the address right, and is the cluster up?"
                is_late = time.monotonic() > begun + self.timeout_ms / 1000
                if cause.code() in _HOPELESS or is_late or self._is_stopped():
                    raise ClusterError(problem) from error
                if not is_reported:
                    stop = "" if problem.endswith("?") else "."
                    logger.warning("%s%s Trying again for %d s", problem, stop, self.timeout_ms // 1000)
                    is_reported = True
                time.sleep(_PAUSE_S)
