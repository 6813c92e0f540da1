"""The machine of share groups (KIP-932)."""
