"""MirrorMaker 2: connectors that mirror topics, positions of groups and heartbeats between clusters (KIP-382).

Three connectors serve one flow, such as `A->B`. They run at the target: `source` copies records and writes pairs of
offsets, `checkpoint` translates the positions of groups by these pairs, `heartbeat` sends signs of life. Names of
settings, topics and formats are those of Apache Kafka 3.9, so that a flow can move between its workers and these.

From the bottom: `formats`, `policies`, `filters`, `connector_settings` and `offset_syncs` are pure; `cluster`,
`topic_reader` and `schedule` serve the connectors; `settings` reads the file of a dedicated MirrorMaker.
"""
