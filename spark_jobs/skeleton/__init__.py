"""What all jobs share: parameters, the process, delivery, records and errors, progress, and the clients of brokers."""
