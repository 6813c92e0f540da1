"""What a broker tells about itself in numbers: which metrics there are, and how they leave it.

Owns names and formats. Must not know how a figure comes about: its owner keeps it. The page is docs/metrics.md.
"""
