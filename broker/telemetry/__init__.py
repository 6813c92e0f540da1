"""Metrics of clients: what they are asked to push (KIP-714), and the latest values that they have pushed."""
