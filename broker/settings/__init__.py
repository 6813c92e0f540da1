"""Dynamic configuration: which settings may change while the broker runs, and what each component reads of them."""
