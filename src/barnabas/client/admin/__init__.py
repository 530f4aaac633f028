"""Administration of a cluster: `Admin`, and a module for each kind of thing that it manages.

This package has the types of what `Admin` takes and gives, too.

In Kafka: `Admin`, `KafkaAdminClient`; the package `org.apache.kafka.clients.admin`.
"""

from typing import TYPE_CHECKING

from barnabas.base.lazy_names import import_lazily

if TYPE_CHECKING:
    from barnabas.client.admin.acls import Acl, AclFilter
    from barnabas.client.admin.active_producers import ActiveProducer
    from barnabas.client.admin.admin import Admin
    from barnabas.client.admin.client_quotas import QuotaEntity
    from barnabas.client.admin.configurations import ConfigEntry, ConfigSource, Synonym
    from barnabas.client.admin.elections import ElectionType
    from barnabas.client.admin.features import FeatureDescription, Features, LevelChange
    from barnabas.client.admin.groups import GroupDescription, GroupListing, GroupMember
    from barnabas.client.admin.log_dirs import LogDirContents, Replica, StoredReplica
    from barnabas.client.admin.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, FoundOffset
    from barnabas.client.admin.reassignments import Reassignment
    from barnabas.client.admin.scram_users import ScramPassword
    from barnabas.client.admin.topics import PartitionDescription, TopicDescription
    from barnabas.client.admin.transactions import FencedProducer, TransactionDescription, TransactionListing

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "Acl",
    "AclFilter",
    "ActiveProducer",
    "Admin",
    "ConfigEntry",
    "ConfigSource",
    "ElectionType",
    "FeatureDescription",
    "Features",
    "FencedProducer",
    "FoundOffset",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "LevelChange",
    "LogDirContents",
    "PartitionDescription",
    "QuotaEntity",
    "Reassignment",
    "Replica",
    "ScramPassword",
    "StoredReplica",
    "Synonym",
    "TopicDescription",
    "TransactionDescription",
    "TransactionListing",
]

_HOMES = {
    "Acl": "acls",
    "AclFilter": "acls",
    "ActiveProducer": "active_producers",
    "Admin": "admin",
    "QuotaEntity": "client_quotas",
    "ConfigEntry": "configurations",
    "ConfigSource": "configurations",
    "Synonym": "configurations",
    "ElectionType": "elections",
    "FeatureDescription": "features",
    "Features": "features",
    "LevelChange": "features",
    "GroupDescription": "groups",
    "GroupListing": "groups",
    "GroupMember": "groups",
    "LogDirContents": "log_dirs",
    "Replica": "log_dirs",
    "StoredReplica": "log_dirs",
    "EARLIEST": "offsets",
    "LATEST": "offsets",
    "MAX_TIMESTAMP": "offsets",
    "FoundOffset": "offsets",
    "Reassignment": "reassignments",
    "ScramPassword": "scram_users",
    "PartitionDescription": "topics",
    "TopicDescription": "topics",
    "FencedProducer": "transactions",
    "TransactionDescription": "transactions",
    "TransactionListing": "transactions",
}

if not TYPE_CHECKING:
    __getattr__ = import_lazily(__name__, _HOMES)
