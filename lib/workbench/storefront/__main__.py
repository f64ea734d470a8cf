"""The process of a service: `python -m workbench.storefront <world> <name> <url>`."""

import logging
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from ..base import WorkbenchError, logs, params, wait
from .domain import ALL
from .http import create_server
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
        with ThreadPoolExecutor() as pool:
            running = [pool.submit(server.run), pool.submit(service.run_consumer, stop)]
            while not stop.is_set() and not any(each.done() for each in running):
                service.producer.poll(0.2)  # calls the delivery callbacks
            server.should_exit = True
            stop.set()
        service.producer.flush(10)
        for each in running:
            each.result()  # raises the error of the thread


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except WorkbenchError as e:
        sys.exit(f"{e}\n  hint:     notebook 71_stores creates a missing store")
