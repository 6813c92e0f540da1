"""The group of workers: what its members send to each other, and who gets which work. Must not run anything."""
