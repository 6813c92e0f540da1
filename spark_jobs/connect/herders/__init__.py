"""Which connectors run, with which configurations and where: the part of a worker that decides.

A worker that is alone and one of a group differ in where configurations, offsets and states are stored, and in who gets
work; `herder` is the same for both.
"""
