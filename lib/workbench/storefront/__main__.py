"""The process of a service: `python -m workbench.storefront <world> <name> <url>`."""

import logging
import sys
import threading
import time

from ..base import WorkbenchError, logs, params, wait
from .contexts import ALL
from .handler import create_server
from .service import Service


def main(world_name: str, context: str, url: str) -> None:
    """Run a service until SIGTERM, then flush its producer and leave its consumer group."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.Formatter.converter = time.gmtime
    logs.configure()
    world = params.load(world_name)
    params.activate(world)
    service = Service(world, ALL[context])
    with wait.stop_on_signal() as stop:
        with service.store.transaction():  # fails at once if the store does not exist
            pass
        server = create_server(service, url)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        consumer = threading.Thread(target=service.run_consumer, args=[stop])
        consumer.start()
        while not stop.is_set() and consumer.is_alive():
            service.producer.poll(0.2)  # calls the delivery callbacks
        server.shutdown()
        service.command_lock.acquire()  # no command runs from now on
        consumer.join()
        service.producer.flush(10)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except WorkbenchError as e:
        sys.exit(f"{e}\n  hint:     `workbench storefront up` creates a missing store")
