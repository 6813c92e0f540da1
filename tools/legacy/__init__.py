"""Tools of Kafka 0.8 to 2.8 that later releases lack.

Owns their options and outputs. No other tool may depend on one of them.
"""
