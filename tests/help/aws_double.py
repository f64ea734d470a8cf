"""AWS on this machine, for a dry run: an endpoint that records each call, in order, and has it
answered.

What moto knows (SSM, secrets, S3 …) moto's server answers. What it has not is done by the real
embedded services: a connector of MSK Connect is deployed in the embedded Kafka Connect, a session
of EMR Serverless is the embedded Spark Connect behind TLS, a query of Athena is asked of that
Spark. Each answer is judged by botocore's own model of the service; the requests were, by the
client that sent them. The catalog is that Spark's, as on EMR it is Glue.
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
from workbench.connect.validation import summarize_stacktrace

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc).isoformat()
# names that requests are signed with
ALIASES = {
    "elasticmapreduce": "emr",
    "tagging": "resourcegroupstaggingapi",
    "monitoring": "cloudwatch",
}
DOUBLE_ERROR = (
    "DoubleIsWrong"  # an error that AWS has not, so that nobody takes it for one that is fine
)
_session = botocore.session.get_session()


class AwsError(Exception):
    """What a service answers instead: (code, message)."""


class Double:
    """The endpoint, at `url`. calls: [(service, operation, parameters)], in order.

    Args:
        moto: address of moto's server.
        answers: {(service, operation): function of the parameters}, for what moto has not.
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
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

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
        operation, given = parse_request(service, request, body)
        self.calls.append((service, operation, given))
        try:
            if (service, operation) not in self.answers:
                return self.forward(request, body)
            answer, status = self.answers[service, operation](given), 200
            shape = _session.get_service_model(service).operation_model(operation).output_shape
            wrong = (
                ParamValidator().validate(parse_times(answer), shape).generate_report()
                if shape
                else ""
            )
            assert not wrong, f"the double's answer to {service}.{operation} is not AWS's: {wrong}"
        except AwsError as e:
            answer, status = {"__type": e.args[0], "message": e.args[1], "Message": e.args[1]}, 400
        except Exception as e:  # noqa: BLE001 - else the client would try it again and again
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
    """An answer whose times are times again, as the validator wants them."""
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
    """The operation of a request and its parameters, by the service's own model."""
    model = _session.get_service_model(service)
    target = request.headers.get("X-Amz-Target")
    if target:
        return target.rpartition(".")[2], json.loads(body or b"{}")
    url = urlsplit(request.path)
    if model.metadata["protocol"] in ("query", "ec2"):
        given = dict(parse_qsl(body.decode()))
        return given.pop("Action"), given
    for name in model.operation_names:
        operation = model.operation_model(name)
        path = re.escape(operation.http["requestUri"].split("?")[0])
        pattern = re.sub(r"\\?\{(\w+)\\?\+?\\?\}", r"(?P<\1>[^/]+)", path)
        found = re.fullmatch(pattern, url.path)
        if found and operation.http["method"] == request.command:
            named = {k: unquote(v) for k, v in found.groupdict().items()}
            words = parse_qs(url.query)  # one that is there several times is a list
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
)  # what asks, and changes nothing
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


NONDETERMINISTIC_CALLS = {
    ("cloudwatch", "GetMetricStatistics")
}  # asked of a connector that runs while something is waited for


def recording(calls):
    """The recording, as text: the calls in order with their parameters in the order of their names,
    what differs from run to run left out. What is only asked stands where it was asked first: how
    often a poll asks, and what happens to stand beside it at the time, is chance. So is the order
    of queries that are asked side by side."""
    lines, asked_before = [], set()
    for service, operation, given in calls:
        line = f"{service}.{operation}{_format_parameters(given, 4)}"
        if operation.startswith(READ_PREFIXES):
            if line in asked_before or (service, operation) in NONDETERMINISTIC_CALLS:
                continue
            asked_before.add(line)
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


def _format_parameters(given, indent):
    """Parameters as lines, a mapping's own below its name."""
    text = ""
    for key, value in sorted(given.items()):
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
    text = re.sub(r"\b(127\.0\.0\.1|localhost):\d+", r"\1:<port>", text)
    return re.sub(r"\s+", " ", text)[:300]


# ---- MSK Connect, done by a Kafka Connect


def msk_connect(rest, region, account, embedded, plugins):
    """Answers of kafkaconnect, and what CloudWatch counts of its connectors.

    Args:
        rest: function (method, path, body) of the embedded Connect's REST API: its answer decoded,
            None for 404.
        embedded: {what stands in configurations for MSK Connect: what it is for the embedded
            worker}: how a password is referred to, the class of a connector that it has not.
        plugins: names of custom plugins.
    """
    arn = f"arn:aws:kafkaconnect:{region}:{account}"
    made = {}  # name → what CreateConnector was given, its version
    # names of those that came to run: what fails of one afterwards is a task, which CloudWatch
    # counts
    ran = set()

    def name_of(given):
        found = next(
            (n for n, one in made.items() if one["connectorArn"] == given["connectorArn"]), None
        )
        if found is None:
            raise AwsError("NotFoundException", "there is no such connector")
        return found

    def put(name, config):
        for theirs, ours in embedded.items():
            config = {k: v.replace(theirs, ours) for k, v in config.items()}
        rest("PUT", f"/connectors/{name}/config", {**config, "name": name})

    def state(name):
        seen = rest("GET", f"/connectors/{name}/status", None)
        if seen is None:
            return "CREATING", None
        states = {
            seen["connector"]["state"],
            *(t["state"] for t in seen["tasks"] or [{"state": "NONE"}]),
        }
        trace = next(
            (t["trace"] for t in [*seen["tasks"], seen["connector"]] if t.get("trace")), None
        )
        if states == {"RUNNING"}:
            ran.add(name)
        runs = (
            states == {"RUNNING"}
            or name in ran
            and seen["connector"]["state"] == "RUNNING"
            and "FAILED" in states
        )
        return "RUNNING" if runs else "FAILED" if "FAILED" in states else "CREATING", trace

    def errored(given):
        name = next(one["Value"] for one in given["Dimensions"] if one["Name"] == "ConnectorName")
        seen = rest("GET", f"/connectors/{name}/status", None) or {"tasks": []}
        failed = sum(task["state"] == "FAILED" for task in seen["tasks"])
        return {
            "Label": given["MetricName"],
            "Datapoints": [{"Timestamp": NOW, "Maximum": failed, "Unit": "None"}],
        }

    def summary(name):
        one, (now, trace) = made[name], state(name)
        return {
            "connectorArn": one["connectorArn"],
            "connectorName": name,
            "connectorState": now,
            "creationTime": NOW,
            "currentVersion": f"K{one['version']}",
        }, trace

    def create(given):
        name = given["connectorName"]
        if name in made:
            raise AwsError("ConflictException", f"there is a connector {name}")
        made[name] = {
            **given,
            "connectorArn": f"{arn}:connector/{name}/0a1b2c3d-0000-0000-0000-{len(made):012}-2",
            "version": 1,
        }
        put(name, given["connectorConfiguration"])
        return {
            "connectorArn": made[name]["connectorArn"],
            "connectorName": name,
            "connectorState": "CREATING",
        }

    def describe(given):
        name = name_of(given)
        said, trace = summary(name)
        one = made[name]  # where AWS has a log with the reason, here the state says it
        return {
            **said,
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

    def update(given):
        name = name_of(given)
        made[name].update(
            connectorConfiguration=given["connectorConfiguration"],
            version=made[name]["version"] + 1,
        )
        put(name, given["connectorConfiguration"])
        return {**operated(given), "connectorState": "UPDATING"}

    def operated(given):
        return {
            "connectorArn": given["connectorArn"],
            "connectorOperationArn": f"{arn}:connector-operation/x/1-2",
        }

    def restart(given):
        rest(
            "POST", f"/connectors/{name_of(given)}/restart?includeTasks=true&onlyFailed=true", None
        )
        return operated(given)

    def delete(given):
        name = name_of(given)
        rest("PUT", f"/connectors/{name}/stop", None)
        rest("DELETE", f"/connectors/{name}/offsets", None)
        rest("DELETE", f"/connectors/{name}", None)
        made.pop(name)
        ran.discard(name)
        return {"connectorArn": given["connectorArn"], "connectorState": "DELETING"}

    def listed(given):
        names = [n for n in sorted(made) if n.startswith(given.get("connectorNamePrefix", ""))]
        return {"connectors": [summary(n)[0] for n in names]}

    def custom(name):
        return {
            "customPluginArn": f"{arn}:custom-plugin/{name}/0a1b2c3d-0000-0000-0000-000000000001-2",
            "name": name,
            "customPluginState": "ACTIVE",
            "latestRevision": {"revision": 1, "contentType": "ZIP"},
        }

    def worker(given):
        return {
            "workerConfigurationArn": given["workerConfigurationArn"],
            "name": "workbench",
            "latestRevision": {"revision": 1, "creationTime": NOW},
        }

    def tags(given):
        one = next((c for c in made.values() if c["connectorArn"] == given["resourceArn"]), None)
        return {"tags": one.get("tags", {}) if one else {}}

    answers = {
        "ListCustomPlugins": lambda given: {"customPlugins": [custom(n) for n in plugins]},
        "DescribeCustomPlugin": lambda given: custom(given["customPluginArn"].split("/")[1]),
        "DescribeWorkerConfiguration": worker,
        "CreateConnector": create,
        "DescribeConnector": describe,
        "DescribeConnectorOperation": lambda given: {
            **given,
            "connectorOperationState": "UPDATE_COMPLETE",
        },
        "RestartConnector": restart,
        "UpdateConnector": update,
        "DeleteConnector": delete,
        "ListConnectors": listed,
        "ListTagsForResource": tags,
    }
    return {
        ("cloudwatch", "GetMetricStatistics"): errored,
        **{("kafkaconnect", operation): answer for operation, answer in answers.items()},
    }


# ---- EMR Serverless, whose session is a Spark Connect server

APPLICATION = "arn:aws:emr-serverless:ap-southeast-2:123456789012:/applications/00f1r4c2hs0mq01p"


def emr_serverless(endpoint, release):
    """Answers of emr-serverless. endpoint: where the session's TLS caught_up."""
    sessions = {}

    def start(given):
        number = f"00f{len(sessions):013}"
        sessions[number] = {**given, "state": "STARTED"}
        return {
            "applicationId": given["applicationId"],
            "sessionId": number,
            "arn": f"{APPLICATION}/sessions/{number}",
        }

    def seen(given):
        one = sessions[given["sessionId"]]
        return {
            "session": {
                "applicationId": given["applicationId"],
                "sessionId": given["sessionId"],
                "state": one["state"],
                "arn": f"{APPLICATION}/sessions/{given['sessionId']}",
                "createdBy": "arn:aws:iam::1:user/x",
                "createdAt": NOW,
                "updatedAt": NOW,
                "executionRoleArn": one["executionRoleArn"],
                "stateDetails": "-",
                "releaseLabel": release,
                "name": one["name"],
            }
        }

    def listed(given):
        found = [
            seen({**given, "sessionId": n})["session"]
            for n, one in sessions.items()
            if one["state"] == "STARTED"
        ]
        return {"sessions": found}

    def where(given):
        soon = dt.datetime.now(dt.timezone.utc) + dt.timedelta(hours=1)
        return {
            "applicationId": given["applicationId"],
            "sessionId": given["sessionId"],
            "endpoint": endpoint,
            "authToken": "token-of-the-double",
            "authTokenExpiresAt": soon.timestamp(),
        }

    def end(given):
        sessions[given["sessionId"]]["state"] = "TERMINATED"
        return {"applicationId": given["applicationId"], "sessionId": given["sessionId"]}

    def application(given):
        return {
            "application": {
                "applicationId": given["applicationId"],
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
            "ListSessions": listed,
            "StartSession": start,
            "GetSession": seen,
            "GetSessionEndpoint": where,
            "TerminateSession": end,
            "GetApplication": application,
        }.items()
    }


class TlsProxy:
    """TLS before a server that speaks HTTP/2 in plain text, as gRPC does; certificate: (its file,
    its key's)."""

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
    """Answers of athena. ask: function (statement) → a Spark DataFrame, None where the statement
    returns no rows."""
    done = {}

    def work(one, text):
        try:
            found = ask(text)
            one["rows"] = found and (found.dtypes, found.collect())
        except Exception as e:  # noqa: BLE001 - it is the query's own failure, and told as Athena tells one
            one["error"] = f"{type(e).__name__}: {str(e).splitlines()[0]}"

    def start(given):  # and answer at once: a client that waits for long asks again
        number = f"0a1b2c3d-0000-0000-0000-{len(done):012}"
        done[number] = {"given": given, "rows": None, "error": ""}
        text = given["QueryString"]
        for value in given.get("ExecutionParameters", []):
            text = text.replace("?", value, 1)
        done[number]["thread"] = threading.Thread(
            target=work, args=(done[number], text), daemon=True
        )
        done[number]["thread"].start()
        return {"QueryExecutionId": number}

    def execution(given):
        one = done[given["QueryExecutionId"]]
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
                "QueryExecutionId": given["QueryExecutionId"],
                "Query": one["given"]["QueryString"],
                "StatementType": kind,
                "ResultConfiguration": {
                    "OutputLocation": f"s3://{bucket}/athena/{given['QueryExecutionId']}.csv"
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

    def results(given):
        types, rows = done[given["QueryExecutionId"]]["rows"] or ([], [])
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
    found = re.findall(r"\d+", kind)
    return int(found[which]) if len(found) > which and kind.startswith("decimal") else 0


def athena_text(value):
    """A value as GetQueryResults has it."""
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
