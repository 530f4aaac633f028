"""Avro: its schemas as Apache's library for Java reads, writes and compares them."""
