"""What every package uses and none owns: values, ports, and formats of files. The lowest layer.

Must not know any other package.
"""
