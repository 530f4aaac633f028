"""`RetryEnds`: how long a call is repeated that meets errors of the kind that pass.

In Kafka: `AdminApiDriver`.
"""

from collections.abc import Collection

from barnabas.client.network.deadline import Deadline, sooner
from barnabas.wire.kafka.errors import ErrorCode

__all__ = ["RetryEnds"]

# These pass within seconds: the groups' topic is being created, or read.
_COMING = frozenset((ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))

_BACKOFF_S = (0.05, 0.1, 0.2, 0.4)
_SECOND_LOOK_S = 1.0


class RetryEnds:
    """The ends of one call's repetitions, by what was wrong; they count from here on.

    What changes something, or has no deadline, is repeated until the end of the call. A question
    with a deadline is repeated for a moment only, ``second_look_s``, where it would have to wait
    for an election, and longer for what passes within seconds.
    """

    def __init__(
        self, deadline: Deadline | None, api_timeout_s: float, *, changes: bool, second_look_s: float | None = None
    ) -> None:
        """``api_timeout_s`` is the length of the call.

        ``second_look_s``, if given, counts without a deadline, too."""
        self._whole = sooner(deadline, api_timeout_s)
        self._is_brief = second_look_s is not None or (deadline is not None and not changes)
        self._look = self._whole.within(_SECOND_LOOK_S if second_look_s is None else second_look_s)
        self._coming = self._whole.patience()
        # Without a deadline it is tried once more at the end; at a deadline there is
        # no time for it.
        self._has_deadline = deadline is not None

    def for_codes(self, codes: Collection[int]) -> Deadline:
        """When to give up after these error codes; none stand for a broker that did not answer."""
        if not self._is_brief:
            return self._whole
        return self._coming if codes and _COMING.issuperset(codes) else self._look

    def pause_s(self, tries: int, codes: Collection[int]) -> float | None:
        """How long to wait after ``tries`` tries, the last with these error codes; None to give up.

        A question whose answer came late is asked once more all the same: more may be known by now.
        """
        backoff_s = _BACKOFF_S[min(tries, len(_BACKOFF_S)) - 1]
        end = self._whole if tries == 1 and codes else self.for_codes(codes)
        left_s = end.left_s()
        if left_s <= (backoff_s if self._has_deadline else 0.0):
            return None
        return min(backoff_s, left_s)
