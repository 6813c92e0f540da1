"""Partitions that this broker hosts: leadership, in-sync replicas, high watermark, and the produce and fetch paths.

Owns the state of each partition and the operations that wait for it. Must not know clients, or how a leader is elected.
"""
