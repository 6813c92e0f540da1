"""What a start finds on the disk: loading, repairing and removing."""
