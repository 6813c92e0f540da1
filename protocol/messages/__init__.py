"""The messages of the protocol, one module an API. `protocol.api` is the table of all of them."""
