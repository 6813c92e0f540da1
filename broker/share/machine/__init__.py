"""Pure machines of share groups: events and the time go in, decisions come out."""
