"""One module per API: authorise, call the domain, build the response. Handlers translate and decide nothing else.

Each module has `handle(services, request, context)`, which returns the response, or is a coroutine if it may wait. Its
class `Needs` declares the parts of the broker that it uses.

The frame that a request was decoded from is valid only until dispatch returns: `records` fields are views into a shared
receive buffer. A coroutine may begin later, so only a plain function reads them; it copies what is needed afterwards.
"""
