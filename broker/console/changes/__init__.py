"""What the console changes, if `console.write.enable` is set.

Every change is a Kafka request of the console's principal, so the rules and permissions are those of clients.
"""
