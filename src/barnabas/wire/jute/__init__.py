"""ZooKeeper's serialisation (jute) and its records: client protocol, transactions, snapshots.

`codec` reads and writes any record class; `records` holds what clients and servers exchange,
`transactions` what the transaction log and the snapshots hold; `frames` puts headers and bodies
together; `opcodes` and `errors` name numbers.
"""
