"""The metadata store of a broker that runs alone: a tree in memory, and a file of SQLite with its copies."""
