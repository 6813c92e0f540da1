"""The broker: everything that lives on the event loop, and the composition root that wires it together."""
