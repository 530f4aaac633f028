"""Administration of a cluster: `Admin`, and a module for each kind of thing that it manages.

In Kafka: `Admin`, `KafkaAdminClient`; the package `org.apache.kafka.clients.admin`.
"""

from typing import TYPE_CHECKING

from barnabas.base.lazy_names import import_lazily

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin

__all__ = ["Admin"]

if not TYPE_CHECKING:
    __getattr__ = import_lazily(__name__, {"Admin": "admin"})
