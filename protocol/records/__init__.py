"""Record batches and the older message sets: the one layout that serves wire and disk."""
