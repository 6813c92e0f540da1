"""Readers of key stores and trust stores, without Java."""
