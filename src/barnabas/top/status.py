"""The lines above and below the table: the cluster at a glance, where the user is, and the keys.

Kafka has no counterpart.
"""

from barnabas.top.navigation import PLACES, Navigation
from barnabas.top.rates import Seen
from barnabas.top.values import BrokerState

__all__ = ["keys_text", "status_lines"]


def status_lines(
    navigation: Navigation, seen: Seen | None, every_s: float, error: str, now_ms: int, width: int
) -> list[str]:
    """The cluster, what goes on, and the place; then an error, or how much is missing."""
    if seen is None:
        return [error or "reading the cluster", "", ""]
    snapshot, rates = seen
    up = sum(broker.state is BrokerState.UP for broker in snapshot.brokers)
    brokers = f"{up} of {len(snapshot.brokers)} brokers up" if up < len(snapshot.brokers) else f"{up} brokers"
    partitions = [part for topic in snapshot.topics for part in topic.partitions]
    wrong = {
        "without leader": sum(part.leader is None for part in partitions),
        "under replicated": sum(part.is_under_replicated for part in partitions),
    }
    parts = [
        f"cluster {snapshot.cluster_id or '?'}",
        brokers,
        f"{len(snapshot.topics):,} topics, {len(partitions):,} partitions",
        *(f"{count:,} {name}" for name, count in wrong.items() if count),
    ]
    if rates.seconds is not None:
        known = [rate for rate in rates.topics.values() if rate is not None]
        is_whole = len(known) == len(rates.topics)
        parts.append(f"{f'{sum(known):,.0f}' if is_whole else '?'} records/s")
    return [
        ", ".join(parts),
        _when(navigation, seen, every_s, now_ms),
        _place(navigation, width),
        *_missing(seen, error),
    ]


def _when(navigation: Navigation, seen: Seen, every_s: float, now_ms: int) -> str:
    took_s = seen.snapshot.took_ms / 1000
    old_s = max(0.0, (now_ms - seen.snapshot.at_ms) / 1000)
    words = [f"read {old_s:.0f} s ago", f"every {every_s:.1f} s", f"in {took_s * 1000:.0f} ms"]
    return ("PAUSED, " if navigation.is_paused else "") + ", ".join(words)


def _place(navigation: Navigation, width: int) -> str:
    """The views with their numbers, this one in brackets; its order and its filter. Where there is
    no room, the others have their numbers only."""
    names = ""
    for others in ("{number} {name}", "{number}"):
        names = "".join(
            f"[{number} {name}]" if name == navigation.view else f" {others} ".format(number=number, name=name)
            for number, name in enumerate(PLACES)
        )
        if len(names) <= width:
            break
    order = navigation.order
    words = [f": {navigation.part_of}" if navigation.part_of is not None else ""]
    if order.column is not None:
        words.append(f"  by {order.column}{' (falling)' if order.descending else ''}")
    if navigation.filter:
        words.append(f"  with {navigation.filter!r}")
    return names + "".join(words)


def _missing(seen: Seen, error: str) -> list[str]:
    if error:
        return [f"No answer: {error}"]
    gaps = seen.snapshot.gaps
    if not gaps:
        return []
    more = f" (and {len(gaps) - 1} more: press !)" if len(gaps) > 1 else ""
    return [f"Incomplete{more}: {gaps[0]}"]


def keys_text() -> str:
    """The keys that most users need; the rest is behind ``?``."""
    return "q quit  ? keys  Tab view  Enter into  Esc back  s sort  / filter  space pause"
