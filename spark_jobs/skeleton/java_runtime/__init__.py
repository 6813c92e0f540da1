"""What Spark runs on: the Java of this machine, the jars of its connectors, and Java's regular expressions.

Must not know jobs, sessions or clients.
"""
