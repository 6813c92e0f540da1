"""The decisions of the coordination server: requests and times in, responses, watch events and changes out. No I/O."""
