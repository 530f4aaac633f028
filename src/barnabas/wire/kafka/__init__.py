"""The Kafka protocol: message declarations and their codec, frames, record batches."""
