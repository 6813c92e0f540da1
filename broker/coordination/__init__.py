"""Shared parts of the group and the transaction coordinator: their partitions, appends and replay, and producer ids."""
