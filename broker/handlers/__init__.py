"""One module per API: authorise, call the domain, build the response. Handlers translate and decide nothing else.

Each module has `handle(services, request, context)`, a plain function that returns the response, or an awaitable of it
if it has to wait. Its class `Needs` declares the parts of the broker that it uses.

The frame that a request was decoded from is valid only until `handle` returns: `records` fields are views into a shared
receive buffer. A handler that continues later copies what it still needs.
"""
