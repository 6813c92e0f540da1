"""The log directories of a broker."""
