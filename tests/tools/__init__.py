"""Tests of the tools, one module each. Those that need a cluster run Milena as a process."""
