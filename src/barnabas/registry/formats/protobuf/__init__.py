"""Protobuf: its files as text and as descriptors, and Confluent's rules for their evolution."""
