"""What is wrong with a flow, before it runs: Spark's analysis of it, a look at the cluster,
and places on this machine.

Spark: the Analyzer and its CheckAnalysis.
"""
