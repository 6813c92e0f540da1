"""`milena up`, `status` and `down`: a broker in the background for a shell or a CI job, with its first topics."""
