"""Clients of a simulated cluster: each is a process that performs a bounded number of operations and records them."""
