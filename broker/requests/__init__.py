"""Requests from frame to response: the table of APIs, decoding, the budget of one request, and errors as responses."""
