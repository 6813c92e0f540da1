"""The state of producers: sequences, transactions, and their snapshots."""
