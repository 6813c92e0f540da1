"""Tools that read and repair the files of a broker: segments, log directories and the embedded metadata store.

Owns what is read without a running broker. Must not know how a broker writes: the formats are those of `storage` and of
the coordinators.
"""
