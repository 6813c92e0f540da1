"""Where log lines of brokers and tools go: files, the console, and the folder for them.

Owns the handlers of Python's `logging`. Must not know what is logged.
"""
