"""The metrics of a flow's last run: their names, and what they are.

In Spark: the metrics of `StreamingQueryProgress`, of which its `PrometheusServlet` shows some by
other names.
"""

from barnabas.base.metric import Metric

__all__ = ["FlowMetrics"]

_FLOW = ("flow",)


class FlowMetrics:
    """Figures of the run that goes on, or of the last one."""

    RUNNING = Metric("barnabas_pipeline_running", "gauge", "1 while the flow runs, else 0", _FLOW)
    FAILED = Metric("barnabas_pipeline_failed", "gauge", "1 if the last run ended with an error, else 0", _FLOW)
    ROWS = Metric("barnabas_pipeline_rows", "gauge", "Rows that the run has read.", _FLOW)
    BAD_ROWS = Metric("barnabas_pipeline_bad_rows", "gauge", "Rows that did not fit.", _FLOW)
    BAD_ROWS_BY_KIND = Metric(
        "barnabas_pipeline_bad_rows_by_kind", "gauge", "Bad rows by class of error and by column.", ("flow", "kind")
    )
    TABLE_BAD_ROWS = Metric(
        "barnabas_pipeline_table_bad_rows", "gauge", "Values of a table's topic that do not fit.", ("flow", "table")
    )
    LATE_ROWS = Metric("barnabas_pipeline_late_rows", "gauge", "Rows that came after their watermark.", _FLOW)
    TIMELESS_ROWS = Metric(
        "barnabas_pipeline_timeless_rows", "gauge", "Rows without a time, which no window has.", _FLOW
    )
    LOST_RECORDS = Metric(
        "barnabas_pipeline_lost_records", "gauge", "Records that were gone before they were read.", _FLOW
    )
    QUARANTINED_ROWS = Metric(
        "barnabas_pipeline_quarantined_rows", "gauge", "Rows of micro-batches that were put aside.", _FLOW
    )
    LAG = Metric("barnabas_pipeline_lag", "gauge", "Records that were not read yet.", _FLOW)
    CATCH_UP = Metric(
        "barnabas_pipeline_catch_up_seconds",
        "gauge",
        "Seconds until all is read, at the speed of the last minute.",
        _FLOW,
    )
    UNMET_ROWS = Metric(
        "barnabas_pipeline_unmet_rows", "gauge", "Rows that did not meet an expectation.", ("flow", "expectation")
    )
    BATCHES = Metric("barnabas_pipeline_batches", "gauge", "Micro-batches with rows.", _FLOW)
    BATCH_SECONDS = Metric("barnabas_pipeline_batch_seconds", "gauge", "How long the last one took.", _FLOW)
    LAST_SUCCESS = Metric(
        "barnabas_pipeline_last_success_timestamp_seconds",
        "gauge",
        "When a micro-batch or a run last ended well, in seconds since 1970.",
        _FLOW,
    )
