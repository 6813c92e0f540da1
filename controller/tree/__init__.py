"""The nodes of the metadata tree, as any broker reads and writes them: paths, data formats, and who writes what."""
