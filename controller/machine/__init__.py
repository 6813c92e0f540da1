"""The pure part of the controller: its values, its context, and the functions that decide. It performs no I/O."""
