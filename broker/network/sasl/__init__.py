"""SASL: one module per mechanism, each a pure machine, and the session that runs them over one connection."""
