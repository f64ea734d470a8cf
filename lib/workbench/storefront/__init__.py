"""Three services with a store each, which agree in the end: accounts, orders, fulfillment
(notebooks 71 to 74).

contexts  what each is: what it owns, what it says, what it hears, which commands it takes
events    a change of a document as a message, and back
store     a service's own database: documents, what it has said (outbox), what it has heard (inbox)
service   the process: commands over HTTP, a listener on topics, health and metrics
"""
