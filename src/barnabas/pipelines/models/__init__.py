"""Models of Spark ML in flows: trained in batch from the flow's topics, kept in versions, and applied to rows as they come.

`registry` and `declared` need no Spark.
"""
