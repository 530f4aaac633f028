"""How many requests of each API were answered, and how long that took, from their
last byte to the answer; and how many were refused for their version.

Times are whole milliseconds, as Kafka's, counted by their number of binary digits: an answer costs
two additions. Requests of the fast path that arrived together took equally long.

In Kafka: `RequestMetrics`, of which this has RequestsPerSec and TotalTimeMs. Its percentiles are
those of a sample; here a histogram has all requests.
"""

from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey

__all__ = ["BrokerRequestMetrics", "RequestTimes"]

_FETCH = ApiKey.FETCH  # to look up a member of an enumeration takes 0.2 us
_CONSUMER_FETCH, _FOLLOWER_FETCH = -1, -2
_MOST_UNSERVED = 100
"""Pairs of API key and version: clients choose both."""
_NAMES = {_CONSUMER_FETCH: "FetchConsumer", _FOLLOWER_FETCH: "FetchFollower"}


class RequestTimes:
    """The times of one API."""

    __slots__ = ("_counts", "at_once", "total_ms")

    def __init__(self) -> None:
        self.at_once = 0
        """The number of requests that took less than a millisecond."""
        self._counts = [0] * 64
        self.total_ms = 0

    def add(self, took_ms: int, count: int = 1) -> None:
        self._counts[took_ms.bit_length()] += count
        self.total_ms += took_ms * count

    @property
    def counts(self) -> list[int]:
        """By the number of binary digits of the time: 0, 1, 2 to 3, 4 to 7, 8 to 15
        ms and so on."""
        return [self.at_once + self._counts[0], *self._counts[1:]]


class BrokerRequestMetrics:
    """The times of all APIs of a broker."""

    def __init__(self) -> None:
        self._by_key: dict[int, RequestTimes] = {}
        self._unserved: dict[tuple[int, int], int] = {}

    def answered(self, request: Request, now_ms: int) -> None:
        """A request is answered, or will have no answer."""
        key: int = request.api_key
        if key == _FETCH:
            message = request.message
            state = message.replica_state
            replica_id = message.replica_id if state is None else max(message.replica_id, state.replica_id)
            key = _CONSUMER_FETCH if replica_id < 0 else _FOLLOWER_FETCH
        self.of(key).add(now_ms - request.received_ms)

    def of(self, key: int) -> RequestTimes:
        """The times of an API, for requests of a fast path."""
        times = self._by_key.get(key)
        if times is None:
            times = self._by_key[key] = RequestTimes()
        return times

    def refused(self, key: int, version: int) -> None:
        """A request came in a version of its API, or for an API, that is not served here."""
        pair = (key, version)
        if pair in self._unserved or len(self._unserved) < _MOST_UNSERVED:
            self._unserved[pair] = self._unserved.get(pair, 0) + 1

    def unserved(self) -> dict[tuple[str, int], int]:
        """How many were refused, by Kafka's name of the request and the version; of the first
        hundred pairs."""
        known = ApiKey._value2member_map_
        return {
            (_api_name(ApiKey(key)) if key in known else f"ApiKey{key}", version): count
            for (key, version), count in self._unserved.items()
        }

    def by_name(self) -> dict[str, RequestTimes]:
        """The times by Kafka's names of the requests."""
        return {_NAMES.get(key) or _api_name(ApiKey(key)): times for key, times in self._by_key.items()}


def _api_name(key: ApiKey) -> str:
    return "".join(map(str.capitalize, key.name.split("_")))
