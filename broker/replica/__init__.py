"""Partitions that this broker hosts: leadership, in-sync replicas, high watermark, and the produce and fetch paths."""
