"""The broker: everything that lives on the event loop, and the composition root that wires it together.

Owns whatever waits, answers or is told of the cluster. Must not know how files are laid out (`storage`), how messages
look as bytes (`protocol`) or why the controller decides what it does.
"""
