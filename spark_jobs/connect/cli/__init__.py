"""The commands of Connect: connect-standalone, connect-distributed, connect-plugin-path and connect-mirror-maker."""
