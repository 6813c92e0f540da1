"""Principals, their credentials and what they may do."""
