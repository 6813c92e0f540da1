"""Sockets to frames and back: listeners, connections and their limits; knows no request's meaning."""
