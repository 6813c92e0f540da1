"""Client quotas: who has which."""
