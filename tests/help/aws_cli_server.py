"""The AWS CLI (version 1) as a server: each call runs in a fork, without the second of its start.

python aws_cli_server.py SOCKET              serves, with a Python that has awscli
python aws_cli_server.py SOCKET call ARG…    is a call, with any Python
"""

import json
import os
import socket
import sys

SERVICES = ("cloudformation", "ec2", "emr", "s3", "ssm", "sts")  # whose models are read once


def serve(address):
    from awscli import clidriver

    driver = clidriver.create_clidriver()
    for service in SERVICES:
        driver.session.get_service_model(service)
    data_path = os.environ["AWS_DATA_PATH"]  # set by awscli
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        print("ready", flush=True)
        while True:
            connection, _ = server.accept()
            if os.fork() == 0:
                code = 1
                try:
                    code = run(driver, connection, data_path)
                finally:
                    connection.send(str(code).encode())
                    os._exit(0)
            connection.close()
            try:
                while os.waitpid(-1, os.WNOHANG) != (0, 0):
                    pass
            except ChildProcessError:
                pass


def run(driver, connection, data_path):
    """Run a call with the output and the environment of its caller; return its exit code."""
    data, files, *_ = socket.recv_fds(connection, 1 << 20, 2)
    asked = json.loads(data)
    for target, file in enumerate(files, start=1):
        os.dup2(file, target)
    os.environ.clear()
    os.environ.update({**asked["environment"], "AWS_DATA_PATH": data_path})
    code = driver.main(asked["arguments"])
    sys.stdout.flush()
    sys.stderr.flush()
    return int(code or 0)


def call(address, arguments):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        data = {"arguments": arguments, "environment": dict(os.environ)}
        socket.send_fds(connection, [json.dumps(data).encode()], [1, 2])
        return int(connection.recv(16) or 1)


if __name__ == "__main__":
    if sys.argv[2:3] == ["call"]:
        sys.exit(call(sys.argv[1], sys.argv[3:]))
    serve(sys.argv[1])
