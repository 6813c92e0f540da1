"""The metadata of KRaft: its records, the log and snapshots that hold them, and their translation from and to znodes.

Owns the formats of Kafka 4.x. The modules are pure except `node_folders`, which reads and changes log directories. Must
not know how a tree of nodes is reached, or what is printed.
"""
