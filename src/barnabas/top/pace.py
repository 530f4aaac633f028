"""When the next reading of a cluster begins, so that top costs its brokers little.

While a reading lasts, brokers are busy for a part of the time; so a reading may take at most a
tenth of the time. In a large cluster, or a slow one, the readings are further apart than asked for.

Kafka has no counterpart.
"""

__all__ = ["pause_s", "work_s"]

_SHARE = 0.1
_LONGEST_S = 60.0


def work_s(former_s: float | None, took_s: float, *, is_whole: bool) -> float:
    """For how long readings keep brokers busy, by the last one and what held before.

    In one that is not whole, much of the time may be a wait for a broker that does not answer."""
    return took_s if is_whole or former_s is None else min(former_s, took_s)


def pause_s(refresh_s: float, took_s: float) -> float:
    """From the end of a reading to the start of the next one, when the last one took this long."""
    from_begin_s = max(refresh_s, min(took_s / _SHARE, max(_LONGEST_S, refresh_s)))
    return max(0.0, from_begin_s - took_s)
