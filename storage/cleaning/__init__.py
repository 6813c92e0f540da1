"""Compaction: what is cleaned, and the pass that cleans it."""
