"""The settings of brokers and topics: one table of definitions, and everything derived from it.

A leaf of the project: it imports no other package, and opens only the files that a settings file names. The folder also
holds the sample .properties files.

Must not know which code reads a setting, or for what.
"""
