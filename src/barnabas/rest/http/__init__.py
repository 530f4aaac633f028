"""Requests and answers over HTTP, by aiohttp.

Kafka has no counterpart; Confluent's are ProduceAction, ConsumersResource and StreamingResponse.
"""
