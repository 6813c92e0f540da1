"""What the group and the transaction coordinator share: their logs in internal topics, and producer ids."""
