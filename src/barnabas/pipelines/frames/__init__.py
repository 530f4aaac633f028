"""What a flow does to rows, as functions of DataFrames: views, tables to join with,
expectations, equality of keys.

Spark: the operators of Dataset. IncrementalExecution plans those that keep state.
"""
