"""Tests of Connect: none of them starts Spark."""
