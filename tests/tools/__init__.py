"""Tests of tools, a module each. Those that need a cluster use our own broker as a process."""
