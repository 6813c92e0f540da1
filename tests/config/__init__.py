"""Tests of config, a module each."""
