"""Spark's reports of a query's progress, handed to `Progress`.

Apart, for it must derive from a class of PySpark's."""

import json
import logging
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from barnabas.pipelines.progress.progress import Progress

__all__ = ["ProgressListener"]

logger = logging.getLogger(__name__)


class ProgressListener(StreamingQueryListener):
    """Hears of every query of the session and passes one query's progress on."""

    def __init__(self, query_name: str, progress: Progress) -> None:
        self._query_name = query_name
        self._progress = progress
        self._run_id: object = None

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  # Spark's name
        """The run itself starts the query: only its run's id, by which it is known while idle."""
        if event.name == self._query_name:
            self._run_id = event.runId

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802  # Spark's name
        """After every micro-batch, on Spark's listener thread, where an exception
        would be swallowed."""
        if event.progress.name != self._query_name:
            return
        try:
            self._progress.update(json.loads(event.progress.json))
        except Exception:
            logger.exception("a progress report could not be read")

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802  # Spark's name
        """While nothing is to be read, each ten seconds, in place of progress."""
        if event.runId == self._run_id:
            self._progress.note_idle(event.timestamp)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802  # Spark's name
        """Nothing to do: the run itself waits for the end."""
