"""Sockets to frames and back: listeners, connections and their limits. Must not know what a request means."""
