"""Outputs of flows beside topics and functions: tables of databases, lake tables, and indexes for search.

`table` says what each of them is to a flow, `kinds` which module has which; `declared` is how all but the SQL databases are
declared, and needs neither Spark nor the packages of the outputs.
"""
