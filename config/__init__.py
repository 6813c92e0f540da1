"""Settings of brokers and topics: one table of definitions, and everything that derives from it.

A leaf of the project: it imports none of the other packages, and opens no file but the ones a settings file names.
The folder also holds the sample .properties files.

Must not know who reads a setting, nor what it makes of it.
"""
