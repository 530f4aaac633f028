"""Who may do what (Kafka's `AclAuthorizer`).

`authorizer` decides from the entries that it has, and `auth_helper` is what API handlers ask. The
entries are in znodes (`acl_znodes`), which `acl_store` reads and changes in steps and `service`
follows.
"""
