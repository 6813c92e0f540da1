"""The way from a tool to brokers: addresses, clients and their security.

Owns the connection to a cluster and the settings of clients. Must not know what a tool asks for.
"""
