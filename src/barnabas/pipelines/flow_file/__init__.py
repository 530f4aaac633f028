"""A flow's file, field by field: each problem names its file, line and field. Needs no Spark.

Spark: ConfigReader reads settings; the YAML of a declarative pipeline is read by its PipelineSpec.
"""
