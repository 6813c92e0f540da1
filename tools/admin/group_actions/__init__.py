"""What the tools of groups do: describe, delete, and reset offsets. The commands themselves are one folder up."""
