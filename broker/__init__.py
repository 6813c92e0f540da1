"""The broker: everything that runs on the event loop, and the composition root that connects it.

Owns the event loop: what waits, what responds, and what is known of the cluster. Must not know how files are laid out
(`storage`), how messages are encoded (`protocol`), or why the controller decides as it does.
"""
