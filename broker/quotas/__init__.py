"""Client quotas: the quotas of each user, client id and address."""
