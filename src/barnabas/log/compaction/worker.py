"""A cleaner in a process of its own, which `barnabas.base.processes` starts. Kafka: CleanerThread."""

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import OsFiles
from barnabas.log.compaction.cleaner import Cleaner
from barnabas.log.compaction.plan import CleaningPlan, StepReport
from barnabas.wire.kafka.errors import KafkaError

__all__ = ["begin"]


class _Work:
    def __init__(self, plan: CleaningPlan) -> None:
        self._cleaner = Cleaner(OsFiles(), plan)

    def step(self) -> StepReport:
        try:
            return self._cleaner.step()
        except KafkaError as error:
            raise CorruptDataError(str(error)) from error


def begin(plan: CleaningPlan) -> _Work:
    """Clean by this plan."""
    return _Work(plan)
