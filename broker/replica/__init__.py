"""Partitions that this broker hosts: leadership, in-sync replicas, high watermark, and the produce and fetch paths.

Owns what is true of a partition here, and who is waiting for it. Must not know clients, or who made a broker leader.
"""
