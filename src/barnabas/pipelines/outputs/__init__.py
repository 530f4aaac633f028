"""Outputs of flows beside topics and SQL databases: lake tables, and indexes for search.

Each takes Arrow tables with the query and the epoch of their micro-batch, and takes a batch again without harm. Importing
`declared` needs neither Spark nor the packages of the outputs.
"""
