"""Values, definitions of settings, and the interfaces of connectors. Must not know workers, topics or files."""
