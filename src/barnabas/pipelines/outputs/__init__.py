"""The kinds of outputs: how each is declared, and the table that takes micro-batches.

Spark: a TableProvider is found by the name of its format, and its StreamingWrite
commits each micro-batch.
"""
