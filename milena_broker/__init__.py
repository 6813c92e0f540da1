"""Milena, a broker that speaks Kafka's wire protocol.

The only package that `pip install milena-broker` adds to an environment. Importing it has no effect: only the
commands (`milena_broker.commands`) put the modules of the broker on the path of their own process.

Owns the version. Must not know what the commands do.
"""

__version__ = "0.1.0"
