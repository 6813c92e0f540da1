"""Handle the events of the elected controller, one module per subject.

Each module plans with the pure modules of `controller` and performs the plan through `Transitions` and `FencedStore`. A
handler completes before the next event starts. None of them knows how brokers are reached or nodes are kept.
"""
