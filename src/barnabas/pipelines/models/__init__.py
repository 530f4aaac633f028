"""Models of Spark ML in flows: trained in batch from the flow's topics, kept in versions, and
applied to rows as they come.

`registry` needs no Spark. Spark: a Pipeline is fitted to a PipelineModel, which MLWriter saves.
"""
