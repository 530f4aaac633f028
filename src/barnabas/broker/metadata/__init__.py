"""A broker's metadata of the cluster (Kafka's `ZkMetadataCache`).

`cache` has what UpdateMetadata brought, `features` the finalized features, which `service` reads
from the znode ``/feature``.
"""
