"""What the elected controller does, one module a subject. Each plans with the pure modules of `controller` and performs
through `Transitions` and `FencedStore`; each handler is run to its end before the next event's.

They own what happens; the pure modules own what is decided. None of them knows how brokers are reached or nodes kept.
"""
