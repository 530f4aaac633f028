"""A preview of a flow's rows for programs and notebooks: `preview_rows`."""

from barnabas.pipelines.checks.trial import preview_rows

__all__ = ["preview_rows"]
