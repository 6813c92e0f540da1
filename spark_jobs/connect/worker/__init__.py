"""One worker: it finds plug-ins, and runs connectors and tasks in threads. Must not know other workers."""
