"""A flow, declared: its sources, steps, charts and model as typed values. Needs no Spark.

Spark: the PipelineSpec of declarative pipelines; its GraphElementRegistry collects
what a file declares.
"""
