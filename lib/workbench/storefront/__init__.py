"""Three eventually consistent services, each with its own database (notebooks 71 to 74).

domain     the services accounts, orders and fulfillment: what each owns, publishes and subscribes to
events     a change of a document as a Kafka message
databases  creates and drops the services' databases and roles
store      a service's own database: documents, published events (outbox), consumed events (inbox)
consumer   applies the events of the subscribed topics to the store
service    commands and metrics of a service; its process is `python -m workbench.storefront`
http       the HTTP interface of a service
faults     fault points, at which a service kills its own process
instances  the instances of the services, as services of the embedded stack
client     starts and stops the services, and sends them requests
audit      compares the stores, waits until they agree, and measures how long they differ
load       random commands, and the state that they result in
pictures   the services, their stores and topics

The notebooks import `domain` as `contexts`.
"""

from . import domain as contexts
