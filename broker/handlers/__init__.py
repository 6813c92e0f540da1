"""One module an API: authorise, call the domain, build the answer. Handlers translate and decide nothing else.

Each module has ``handle(services, request, context)``, a plain function that returns the response, or an awaitable of
it when it must wait. The frame that a request was decoded from is only valid until ``handle`` returns: `records`
fields are views into a shared receive buffer, and a handler that goes on later has copied what it still needs.
"""
