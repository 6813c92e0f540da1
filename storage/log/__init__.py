"""One log: append, read, truncation, durability and disposal."""
