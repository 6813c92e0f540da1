"""The files of storage: the only way to the operating system, and the formats of the small files."""
