"""The messages of the protocol, one module per API. `protocol.api` is the table of all of them.

Structs have Kafka's names; fields have Kafka's names in snake case. `protocol.schema` explains the notation. If request
and response of one API have different structs with the same name, that of the response ends in `Result`.

A response field that is meaningless beside an error defaults to the value that Kafka sends with an error. So
`PartitionProduceResponse(index=0, error_code=...)` is a complete response.
"""
