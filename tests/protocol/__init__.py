"""The wire codec, its declarations and the headers."""
