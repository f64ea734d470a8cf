"""Three eventually consistent services, each with its own database (notebooks 71 to 74).

The command is `python -m storefront up|status|load|down`. The package uses `workbench`, which does not
import it.

domain     the services accounts, orders and fulfillment: what each owns, publishes and subscribes to
events     a change of a document as a Kafka message
databases  creates and drops the services' databases and roles
store      a service's own database: documents, published events (outbox), consumed events (inbox)
service    commands, consumer and metrics of a service
server     the process of a service, with its HTTP interface
faults     fault points, at which a service kills its own process
client     starts and stops the instances of the services, and sends them requests
setup      creates and removes the services, stores, topics and connectors
audit      compares the stores, waits until they agree, and measures how long they differ
load       random commands, and the state that they result in
"""
