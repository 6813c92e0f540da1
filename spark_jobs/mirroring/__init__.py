"""The parts of the job `mirror`: names and settings of target topics, sending, and the translation of offsets."""
