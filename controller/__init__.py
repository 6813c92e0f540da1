"""Cluster metadata: who leads what, decided by one elected broker and kept in the state store.

Owns topics, assignments, leadership, registration and entity configs. Must not know logs on disk, connections or
clients: brokers are reached through `BrokerChannels`, the store through `StateStore`. `docs/controller.md` draws the
machines, `docs/formats/metadata-store.md` the tree.
"""
