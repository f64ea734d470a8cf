"""AWS on this machine, for a dry run: an endpoint that records all calls in their order.

moto's server handles the services that it supports (SSM, secrets, S3 …). The embedded services
handle the others: a connector of MSK Connect runs in the embedded Kafka Connect; a session of EMR
Serverless is the embedded Spark Connect behind TLS; a query of Athena runs in that Spark, with its
catalog in place of Glue. Each response is validated with botocore's model of the service. The
client has validated the request.
"""

import asyncio
import contextlib
import datetime as dt
import http.client
import http.server
import itertools
import json
import re
import ssl
import threading
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

import botocore.session
from botocore.validate import ParamValidator
from workbench.connect import configs
from workbench.connect.validation import summarize_stacktrace

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc).isoformat()
# {service name in a signature: botocore's name}
ALIASES = {
    "elasticmapreduce": "emr",
    "tagging": "resourcegroupstaggingapi",
    "monitoring": "cloudwatch",
}
# of `msk_connect`: values of MSK Connect, and those of the Kafka Connect behind it
EMBEDDED = {
    "${secretsmanager:workbench/mysql.replication:password}": "${directory:/secrets:mysql.replication}",
    configs.MYSQL_CONNECTORS["mysql"]: configs.MYSQL_CONNECTORS["mariadb"],
}
DOUBLE_ERROR = "DoubleIsWrong"  # not an AWS error: no client expects it
_session = botocore.session.get_session()


class AwsError(Exception):
    """An error response of a service: (code, message)."""


class Double:
    """The endpoint, at `url`; `calls` has (service, operation, parameters) of all calls.

    Args:
        moto: URL of moto's server.
        answers: {(service, operation): function of the parameters}, for services that moto does
            not support.
    """

    def __init__(self, moto, answers):
        self.moto, self.answers, self.calls = urlsplit(moto), answers, []
        double = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                double.handle(self, body)

            do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = handle_any

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=[0.02], daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def handle(self, request, body):
        signed = re.search(
            r"Credential=[^/]+/\d+/[^/]+/([\w-]+)/", request.headers.get("Authorization", "")
        )
        service = ALIASES.get(signed[1], signed[1]) if signed else "unsigned"
        if service in ("s3", "unsigned"):
            return self.forward(request, body)
        operation, params = parse_request(service, request, body)
        self.calls.append((service, operation, params))
        try:
            if (service, operation) not in self.answers:
                return self.forward(request, body)
            answer, status = self.answers[service, operation](params), 200
            shape = _session.get_service_model(service).operation_model(operation).output_shape
            report = (
                ParamValidator().validate(parse_times(answer), shape).generate_report()
                if shape
                else ""
            )
            assert not report, (
                f"the double's answer to {service}.{operation} is not AWS's: {report}"
            )
        except AwsError as e:
            answer, status = {"__type": e.args[0], "message": e.args[1], "Message": e.args[1]}, 400
        except Exception as e:  # noqa: BLE001 - otherwise the client would retry it
            answer, status = (
                {"__type": DOUBLE_ERROR, "message": f"double: {type(e).__name__}: {e}"},
                400,
            )
        data = json.dumps(answer).encode()
        request.send_response(status)
        if status >= 400:
            request.send_header("x-amzn-ErrorType", answer["__type"])
        request.send_header("Content-Type", "application/x-amz-json-1.1")
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def forward(self, request, body):
        to = http.client.HTTPConnection(self.moto.hostname, self.moto.port, timeout=60)
        to.request(request.command, request.path, body or None, dict(request.headers))
        answer = to.getresponse()
        data = answer.read()
        request.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in (
                "transfer-encoding",
                "connection",
                "content-length",
                "server",
                "date",
            ):
                request.send_header(name, value)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)
        to.close()


def parse_times(answer):
    """Convert the times of a response to datetimes, as the validator expects them."""
    if isinstance(answer, dict):
        return {k: parse_times(v) for k, v in answer.items()}
    if isinstance(answer, list):
        return [parse_times(v) for v in answer]
    return (
        dt.datetime.fromisoformat(answer)
        if isinstance(answer, str) and answer.startswith("2026-01-01T")
        else answer
    )


def parse_request(service, request, body):
    """Return the operation of a request and its parameters, by the service's model."""
    model = _session.get_service_model(service)
    target = request.headers.get("X-Amz-Target")
    if target:
        return target.rpartition(".")[2], json.loads(body or b"{}")
    url = urlsplit(request.path)
    if model.metadata["protocol"] in ("query", "ec2"):
        params = dict(parse_qsl(body.decode()))
        return params.pop("Action"), params
    for name in model.operation_names:
        operation = model.operation_model(name)
        path = re.escape(operation.http["requestUri"].split("?")[0])
        pattern = re.sub(r"\\?\{(\w+)\\?\+?\\?\}", r"(?P<\1>[^/]+)", path)
        matches = re.fullmatch(pattern, url.path)
        if matches and operation.http["method"] == request.command:
            named = {k: unquote(v) for k, v in matches.groupdict().items()}
            words = parse_qs(url.query)  # a repeated parameter is a list
            query = {k: v if len(v) > 1 else v[0] for k, v in words.items()}
            return name, {**query, **named, **json.loads(body or b"{}")}
    raise AssertionError(f"{service} has no operation {request.command} {request.path}")


READ_PREFIXES = (
    "Get",
    "List",
    "Describe",
    "BatchGet",
    "Filter",
    "Search",
)  # operations that change nothing
OMITTED_PARAMETERS = {
    "clientToken",
    "ClientRequestToken",
    "nextToken",
    "NextToken",
    "currentVersion",
    "StartTime",
    "EndTime",
    "startTime",
}


# Notebook 54 asks for it until a change has arrived (check.eventually).
POLLED_QUERY = 'SELECT "date" FROM moma_mor.artworks_rt WHERE artwork_id = 128447'
NONDETERMINISTIC_CALLS = {
    ("cloudwatch", "GetMetricStatistics")
}  # polled while a connector is waited for


def recording(calls):
    """Return the calls as text, with their parameters in the order of their names.

    Parameters that differ from run to run are left out. A call that changes nothing is listed only
    where it occurs first: how often something is polled is chance. The order of parallel queries is
    chance, too, so they are sorted. POLLED_QUERY is listed once.
    """
    lines, listed = [], set()
    for service, operation, params in calls:
        line = f"{service}.{operation}{_format_parameters(params, 4)}"
        if operation.startswith(READ_PREFIXES) or params.get("QueryString") == POLLED_QUERY:
            if line in listed or (service, operation) in NONDETERMINISTIC_CALLS:
                continue
            listed.add(line)
        lines.append(line)
    alike = itertools.groupby(lines, lambda line: line.partition("\n")[0])
    return (
        "\n".join(
            line
            for name, group in alike
            for line in (sorted(group) if name == "athena.StartQueryExecution" else group)
        )
        + "\n"
    )


def _format_parameters(params, indent):
    """Return parameters as lines; those of a mapping are indented below its name."""
    text = ""
    for key, value in sorted(params.items()):
        if key not in OMITTED_PARAMETERS:
            text += f"\n{' ' * indent}{key}:"
            if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
                value = value[0]
            text += (
                _format_parameters(value, indent + 4)
                if isinstance(value, dict) and value
                else f" {_format_value(value, key)}"
            )
    return text


def _format_value(value, key):
    if key.endswith(".port"):
        return "<port>"
    if isinstance(value, list) and all(
        isinstance(v, dict) and v.keys() == {"Name", "Type"} for v in value
    ):
        return ", ".join(f"{v['Name']} {v['Type']}" for v in value)
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    text = re.sub(r"\b20\d{15}\b", "<instant>", text)
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<id>", text)
    # a log position differs from run to run
    text = re.sub(r"\b(valid_from <=|valid_to >) \d+", r"\1 <lsn>", text)
    text = re.sub(r"\b(127\.0\.0\.1|localhost):\d+", r"\1:<port>", text)
    return re.sub(r"\s+", " ", text)[:300]


# ---- MSK Connect, as a Kafka Connect


def msk_connect(rest, region, account, embedded, plugins):
    """Return the responses of kafkaconnect, and CloudWatch's metrics of its connectors.

    Args:
        rest: function (method, path, body) of the embedded Connect's REST API; returns the decoded
            response, None for 404.
        region: the AWS region.
        account: the AWS account.
        embedded: {text in configurations for MSK Connect: text for the embedded worker}: references
            to passwords, and classes of connectors that the worker does not have.
        plugins: names of custom plugins.
    """
    arn = f"arn:aws:kafkaconnect:{region}:{account}"
    connectors = {}  # {name: parameters of CreateConnector, and its version}
    # Names of connectors that have been running. If one fails later, it is a task that fails, and
    # CloudWatch counts it.
    started_names = set()

    def name_of(params):
        for name, connector in connectors.items():
            if connector["connectorArn"] == params["connectorArn"]:
                return name
        raise AwsError("NotFoundException", "there is no such connector")

    def put(name, config):
        for theirs, ours in embedded.items():
            config = {k: v.replace(theirs, ours) for k, v in config.items()}
        rest("PUT", f"/connectors/{name}/config", {**config, "name": name})

    def state(name):
        status = rest("GET", f"/connectors/{name}/status", None)
        if status is None:
            return "CREATING", None
        states = {
            status["connector"]["state"],
            *(t["state"] for t in status["tasks"] or [{"state": "NONE"}]),
        }
        trace = next(
            (t["trace"] for t in [*status["tasks"], status["connector"]] if t.get("trace")), None
        )
        if states == {"RUNNING"}:
            started_names.add(name)
        runs = (
            states == {"RUNNING"}
            or name in started_names
            and status["connector"]["state"] == "RUNNING"
            and "FAILED" in states
        )
        return "RUNNING" if runs else "FAILED" if "FAILED" in states else "CREATING", trace

    def failed_task_metric(params):
        name = next(one["Value"] for one in params["Dimensions"] if one["Name"] == "ConnectorName")
        status = rest("GET", f"/connectors/{name}/status", None) or {"tasks": []}
        failed = sum(task["state"] == "FAILED" for task in status["tasks"])
        return {
            "Label": params["MetricName"],
            "Datapoints": [{"Timestamp": NOW, "Maximum": failed, "Unit": "None"}],
        }

    def summary(name):
        one, (now, trace) = connectors[name], state(name)
        return {
            "connectorArn": one["connectorArn"],
            "connectorName": name,
            "connectorState": now,
            "creationTime": NOW,
            "currentVersion": f"K{one['version']}",
        }, trace

    def create(params):
        name = params["connectorName"]
        if name in connectors:
            raise AwsError("ConflictException", f"there is a connector {name}")
        connectors[name] = {
            **params,
            "connectorArn": f"{arn}:connector/{name}/0a1b2c3d-0000-0000-0000-{len(connectors):012}-2",
            "version": 1,
        }
        put(name, params["connectorConfiguration"])
        return {
            "connectorArn": connectors[name]["connectorArn"],
            "connectorName": name,
            "connectorState": "CREATING",
        }

    def describe(params):
        name = name_of(params)
        fields, trace = summary(name)
        one = connectors[name]  # on AWS the reason is in a log
        return {
            **fields,
            **{
                k: one[k]
                for k in (
                    "connectorConfiguration",
                    "connectorDescription",
                    "kafkaConnectVersion",
                    "serviceExecutionRoleArn",
                )
                if k in one
            },
            **(
                {
                    "stateDescription": {
                        "code": "UnknownError",
                        "message": summarize_stacktrace(trace),
                    }
                }
                if trace
                else {}
            ),
        }

    def update(params):
        name = name_of(params)
        connectors[name].update(
            connectorConfiguration=params["connectorConfiguration"],
            version=connectors[name]["version"] + 1,
        )
        put(name, params["connectorConfiguration"])
        return {**operated(params), "connectorState": "UPDATING"}

    def operated(params):
        return {
            "connectorArn": params["connectorArn"],
            "connectorOperationArn": f"{arn}:connector-operation/x/1-2",
        }

    def restart(params):
        rest(
            "POST", f"/connectors/{name_of(params)}/restart?includeTasks=true&onlyFailed=true", None
        )
        return operated(params)

    def delete(params):
        name = name_of(params)
        rest("PUT", f"/connectors/{name}/stop", None)
        rest("DELETE", f"/connectors/{name}/offsets", None)
        rest("DELETE", f"/connectors/{name}", None)
        connectors.pop(name)
        started_names.discard(name)
        return {"connectorArn": params["connectorArn"], "connectorState": "DELETING"}

    def list_all(params):
        names = [
            n for n in sorted(connectors) if n.startswith(params.get("connectorNamePrefix", ""))
        ]
        return {"connectors": [summary(n)[0] for n in names]}

    def custom(name):
        return {
            "customPluginArn": f"{arn}:custom-plugin/{name}/0a1b2c3d-0000-0000-0000-000000000001-2",
            "name": name,
            "customPluginState": "ACTIVE",
            "latestRevision": {"revision": 1, "contentType": "ZIP"},
        }

    def worker(params):
        return {
            "workerConfigurationArn": params["workerConfigurationArn"],
            "name": "workbench",
            "latestRevision": {"revision": 1, "creationTime": NOW},
        }

    def tags(params):
        one = next(
            (c for c in connectors.values() if c["connectorArn"] == params["resourceArn"]), None
        )
        return {"tags": one.get("tags", {}) if one else {}}

    answers = {
        "ListCustomPlugins": lambda params: {"customPlugins": [custom(n) for n in plugins]},
        "DescribeCustomPlugin": lambda params: custom(params["customPluginArn"].split("/")[1]),
        "DescribeWorkerConfiguration": worker,
        "CreateConnector": create,
        "DescribeConnector": describe,
        "DescribeConnectorOperation": lambda params: {
            **params,
            "connectorOperationState": "UPDATE_COMPLETE",
        },
        "RestartConnector": restart,
        "UpdateConnector": update,
        "DeleteConnector": delete,
        "ListConnectors": list_all,
        "ListTagsForResource": tags,
    }
    return {
        ("cloudwatch", "GetMetricStatistics"): failed_task_metric,
        **{("kafkaconnect", operation): answer for operation, answer in answers.items()},
    }


# ---- EMR Serverless, whose session is a Spark Connect server

APPLICATION = "arn:aws:emr-serverless:ap-southeast-2:123456789012:/applications/00f1r4c2hs0mq01p"


def emr_serverless(endpoint, release):
    """Return the responses of emr-serverless.

    Args:
        endpoint: URL of the session's TLS listener.
        release: the release label.
    """
    sessions = {}

    def start(params):
        number = f"00f{len(sessions):013}"
        sessions[number] = {**params, "state": "STARTED"}
        return {
            "applicationId": params["applicationId"],
            "sessionId": number,
            "arn": f"{APPLICATION}/sessions/{number}",
        }

    def status(params):
        one = sessions[params["sessionId"]]
        return {
            "session": {
                "applicationId": params["applicationId"],
                "sessionId": params["sessionId"],
                "state": one["state"],
                "arn": f"{APPLICATION}/sessions/{params['sessionId']}",
                "createdBy": "arn:aws:iam::1:user/x",
                "createdAt": NOW,
                "updatedAt": NOW,
                "executionRoleArn": one["executionRoleArn"],
                "stateDetails": "-",
                "releaseLabel": release,
                "name": one["name"],
            }
        }

    def list_all(params):
        matches = [
            status({**params, "sessionId": n})["session"]
            for n, one in sessions.items()
            if one["state"] == "STARTED"
        ]
        return {"sessions": matches}

    def where(params):
        soon = dt.datetime.now(dt.timezone.utc) + dt.timedelta(hours=1)
        return {
            "applicationId": params["applicationId"],
            "sessionId": params["sessionId"],
            "endpoint": endpoint,
            "authToken": "token-of-the-double",
            "authTokenExpiresAt": soon.timestamp(),
        }

    def end(params):
        sessions[params["sessionId"]]["state"] = "TERMINATED"
        return {"applicationId": params["applicationId"], "sessionId": params["sessionId"]}

    def application(params):
        return {
            "application": {
                "applicationId": params["applicationId"],
                "name": "workbench",
                "arn": APPLICATION,
                "releaseLabel": release,
                "type": "Spark",
                "state": "STARTED",
                "createdAt": NOW,
                "updatedAt": NOW,
            }
        }

    return {
        ("emr-serverless", operation): answer
        for operation, answer in {
            "ListSessions": list_all,
            "StartSession": start,
            "GetSession": status,
            "GetSessionEndpoint": where,
            "TerminateSession": end,
            "GetApplication": application,
        }.items()
    }


class TlsProxy:
    """A TLS proxy for a server with plain-text HTTP/2, such as gRPC.

    Args:
        certificate: (certificate file, key file).
        to: (host, port) of the server.
    """

    def __init__(self, certificate, to):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*certificate)
        context.set_alpn_protocols(["h2"])
        self.to, self.loop = to, asyncio.new_event_loop()
        self.server = self.loop.run_until_complete(
            asyncio.start_server(self.relay, "127.0.0.1", 0, ssl=context)
        )
        self.port = self.server.sockets[0].getsockname()[1]
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    async def relay(self, outer_in, outer_out):
        inner_in, inner_out = await asyncio.open_connection(*self.to)
        await asyncio.gather(pump(outer_in, inner_out), pump(inner_in, outer_out))

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)


async def pump(source, sink):
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    sink.close()


# ---- Athena, whose catalog is that Spark's

TYPES = {
    "string": "varchar",
    "int": "integer",
    "smallint": "smallint",
    "tinyint": "tinyint",
    "bigint": "bigint",
    "double": "double",
    "float": "float",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamp",
    "binary": "varbinary",
}


def athena(ask, bucket):
    """Return the responses of athena.

    Args:
        ask: function of a statement that returns a Spark DataFrame, None if there are no rows.
        bucket: bucket of the results.
    """
    done = {}

    def work(one, text):
        try:
            matches = ask(text)
            one["rows"] = matches and (matches.dtypes, matches.collect())
        except Exception as e:  # noqa: BLE001 - the query failed; Athena reports it in its status
            one["error"] = f"{type(e).__name__}: {str(e).splitlines()[0]}"

    def start(params):  # respond at once: a client retries after a timeout
        number = f"0a1b2c3d-0000-0000-0000-{len(done):012}"
        done[number] = {"given": params, "rows": None, "error": ""}
        text = params["QueryString"]
        for value in params.get("ExecutionParameters", []):
            text = text.replace("?", value, 1)
        done[number]["thread"] = threading.Thread(
            target=work, args=(done[number], text), daemon=True
        )
        done[number]["thread"].start()
        return {"QueryExecutionId": number}

    def execution(params):
        one = done[params["QueryExecutionId"]]
        state = "RUNNING" if one["thread"].is_alive() else "FAILED" if one["error"] else "SUCCEEDED"
        kind = "DML" if one["rows"] else "DDL"
        status = {
            "State": state,
            "SubmissionDateTime": NOW,
            "CompletionDateTime": NOW,
            **({"StateChangeReason": one["error"]} if one["error"] else {}),
        }
        return {
            "QueryExecution": {
                "QueryExecutionId": params["QueryExecutionId"],
                "Query": one["given"]["QueryString"],
                "StatementType": kind,
                "ResultConfiguration": {
                    "OutputLocation": f"s3://{bucket}/athena/{params['QueryExecutionId']}.csv"
                },
                "QueryExecutionContext": one["given"].get("QueryExecutionContext", {}),
                "Status": status,
                "Statistics": {
                    "EngineExecutionTimeInMillis": 100,
                    "DataScannedInBytes": 1000,
                    "TotalExecutionTimeInMillis": 100,
                },
                "WorkGroup": one["given"].get("WorkGroup", "primary"),
                "EngineVersion": {
                    "SelectedEngineVersion": "AUTO",
                    "EffectiveEngineVersion": "Athena engine version 3",
                },
            }
        }

    def results(params):
        types, rows = done[params["QueryExecutionId"]]["rows"] or ([], [])
        columns = [
            {
                "Name": name,
                "Label": name,
                "Type": TYPES.get(kind, re.split(r"[(<]", kind)[0]).replace("struct", "row"),
                "Precision": type_argument(kind, 0),
                "Scale": type_argument(kind, 1),
                "Nullable": "UNKNOWN",
                "CaseSensitive": False,
            }
            for name, kind in types
        ]
        head = [{"Data": [{"VarCharValue": name} for name, _ in types]}] if types else []
        body = [
            {"Data": [{} if v is None else {"VarCharValue": athena_text(v)} for v in row]}
            for row in rows
        ]
        return {
            "ResultSet": {"Rows": head + body, "ResultSetMetadata": {"ColumnInfo": columns}},
            "UpdateCount": 0,
        }

    return {
        ("athena", operation): answer
        for operation, answer in {
            "StartQueryExecution": start,
            "GetQueryExecution": execution,
            "GetQueryResults": results,
        }.items()
    }


def type_argument(kind, which):
    matches = re.findall(r"\d+", kind)
    return int(matches[which]) if len(matches) > which and kind.startswith("decimal") else 0


def athena_text(value):
    """Return a value as GetQueryResults does."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dt.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.") + f"{value.microsecond // 1000:03}"
    if isinstance(value, (list, tuple)) and not hasattr(value, "asDict"):
        return "[" + ", ".join("null" if v is None else athena_text(v) for v in value) + "]"
    if hasattr(value, "asDict") or isinstance(value, dict):
        pairs = value.asDict() if hasattr(value, "asDict") else value
        return (
            "{"
            + ", ".join(f"{k}={'null' if v is None else athena_text(v)}" for k, v in pairs.items())
            + "}"
        )
    return bytes(value).hex(" ") if isinstance(value, (bytes, bytearray)) else str(value)


class Remembers:
    """A Kafka Connect's REST API: configurations and the states of their tasks, by the names of
    connectors; at first the task of each is as `first` says."""

    def __init__(self):
        self.configs, self.tasks, self.first = {}, {}, "RUNNING"

    def __call__(self, method, path, body):
        name, verb = path.partition("?")[0].split("/")[2], path.partition("?")[0].rpartition("/")[2]
        if method == "PUT" and verb == "config":
            self.configs[name], self.tasks[name] = body, self.first
        elif verb == "restart":
            self.tasks[name] = "RUNNING"
        elif (method, verb) == ("DELETE", name):
            del self.configs[name], self.tasks[name]
        elif verb == "status" and name in self.tasks:
            task = {
                "id": 0,
                "state": self.tasks[name],
                "trace": "it broke" if self.tasks[name] == "FAILED" else "",
            }
            return {"connector": {"state": "RUNNING"}, "tasks": [task]}
        return None
