"""What commands print, and how: tables, JSON, colours, escapes on terminals, exit codes.

In Kafka: `ToolsUtils.prettyPrintTable`, `Exit`.
"""
