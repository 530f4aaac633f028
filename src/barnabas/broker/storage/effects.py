"""The effects of the storage's deciding code: work beside the event loop, and steps
at a later time.

Each public method of deciding code takes the time and returns a list of effects.
`barnabas.broker.storage.service` performs them in order, and passes the outcome and the time to the
next step, which returns effects again.

In Kafka: the tasks that `KafkaScheduler` runs.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from barnabas.base.clock import Now
from barnabas.base.tasks import Task

__all__ = ["Effects", "InSlices", "Later", "RunBeside"]


class RunBeside(NamedTuple):
    """Run ``work`` in a thread, then continue on the loop with ``done`` and the
    exception of the work, or None.

    The work shares nothing with other code: all that it needs was looked up when the
    effect was made.
    """

    work: Callable[[], None]
    done: "Callable[[BaseException | None, Now], Effects]"


class Later(NamedTuple):
    """Continue with ``then`` after ``delay_ms``, unless the broker stops before."""

    delay_ms: int
    then: "Callable[[Now], Effects]"


class InSlices(NamedTuple):
    """Do ``work`` in slices, then continue with ``then``.

    What the work raises is logged under ``name``."""

    name: str
    work: Task[None]
    then: "Callable[[Now], Effects]"


Effects = Sequence[RunBeside | Later | InSlices]
