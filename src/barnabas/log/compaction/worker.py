"""A cleaner in a process of its own, which `barnabas.base.processes` starts.

Kafka: CleanerThread."""

from barnabas.base.clock import SystemClock
from barnabas.base.errors import CorruptDataError
from barnabas.base.files import OsFiles
from barnabas.log.compaction.cleaner import Cleaner
from barnabas.log.compaction.plan import CleaningPlan, StepReport
from barnabas.wire.kafka.errors import KafkaError

__all__ = ["begin"]


_SLICES_A_STEP = 4
"""Some 20 ms. A question and its answer take the broker 0.09 ms, and a turn of its event loop."""


class _Work:
    def __init__(self, plan: CleaningPlan) -> None:
        self._cleaner = Cleaner(OsFiles(), plan)
        self._slices = _SLICES_A_STEP if plan.limits.may_join_steps else 0
        self._clock = SystemClock()

    def step(self) -> StepReport:
        try:
            report = self._cleaner.step()
            for _ in range(self._slices):
                is_over = self._clock.time_slice()
                while not is_over():
                    if report.must_wait or report.ready is not None or report.outcome is not None:
                        return report
                    report = self._cleaner.step()
        except KafkaError as error:
            raise CorruptDataError(str(error)) from error
        return report

    def close(self) -> None:
        """End it. Raises `OSError`."""
        self._cleaner.close()


def begin(plan: CleaningPlan) -> _Work:
    """Clean by this plan."""
    return _Work(plan)
