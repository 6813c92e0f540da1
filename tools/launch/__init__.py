"""Starts, stops and checks brokers and clusters, and prepares what they and the launchers need.

Owns the options of a start, the list of running servers, environments, and how a tool is found by another name. Must
not know what a broker does.
"""
