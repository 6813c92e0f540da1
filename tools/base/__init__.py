"""What every tool is made of: its command line, and the texts of Java's tools.

Owns the options that all tools share, exit statuses, tables and patterns. Must not know brokers, ZooKeeper or files.
"""
