"""Record batches as they are stored: their bounds, their checks, and their records."""
