"""The messages of the protocol, one module an API. `protocol.api` is the table of all of them.

Structs have Kafka's names and fields its names in snake case; `protocol.schema` explains the notation. Where a request
and a response of one API have different structs of the same name, the response's ends in `Result`.

A field of a response that only makes sense without an error defaults to what Kafka puts there beside an error, so that
`PartitionProduceResponse(index=0, error_code=...)` is a whole answer.
"""
