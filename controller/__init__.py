"""Decide the leaders, replicas and topics of the cluster on one elected broker, and keep them in the state store.

Owns topics, assignments, leadership, registration and entity configs. Must not know logs on disk, connections or
clients: it reaches brokers through `BrokerChannels` and the store through `StateStore`. `docs/controller.md` draws the
state machines, `docs/formats/metadata-store.md` the tree of nodes.
"""
