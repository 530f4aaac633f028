"""Who may do what (Kafka's `AclAuthorizer`).

`authorizer` decides from the entries that it has; `auth_helper` is what API handlers ask.
"""
