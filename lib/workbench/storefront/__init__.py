"""Three eventually consistent services, each with its own database (notebooks 71 to 74).

contexts  the services accounts, orders and fulfillment: what each owns, publishes and subscribes to
events    a change of a document as a Kafka message
store     a service's own database: documents, published events (outbox), consumed events (inbox)
service   commands, the consumer, and metrics
handler   the HTTP interface of a service
"""
