"""What a broker tells about itself in numbers: which metrics there are, and how they leave it."""
