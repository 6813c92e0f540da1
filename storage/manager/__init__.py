"""All logs of a broker: start, creation, moves, retention."""
