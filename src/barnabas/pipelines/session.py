"""A Spark session for programs and notebooks: `open_session`, with the format
``barnabas`` registered."""

from barnabas.pipelines.packages import MissingExtraError
from barnabas.pipelines.spark.session import RunningSpark, open_session

__all__ = ["MissingExtraError", "RunningSpark", "open_session"]
