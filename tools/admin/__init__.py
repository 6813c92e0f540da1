"""What an administrator does to a running cluster: topics, configs, groups, permissions, partitions and their replicas.

Owns the tools that send administrative requests, and what several of them share about a subject. Must not know the
contents of records or the files of a broker.
"""
