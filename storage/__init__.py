"""The partition log on disk, in Kafka's file formats: segments, indexes, producer state, checkpoints, directories.

Must not know requests, connections, the event loop or the controller. `log_manager` is the entry point for a broker,
`log` for one partition; `files` is the only module that talks to the operating system.
"""
