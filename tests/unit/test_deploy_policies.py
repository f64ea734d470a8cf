"""Who may do what on AWS: each action of the templates' policies against each resource, as a list
that was read by people (policies.txt), and rules that hold for all of them. No account is
needed."""

import fnmatch
import itertools
import json
import re
import textwrap
from pathlib import Path

import botocore.session
import cfnlint
import cloudformation
import on_aws
import pytest
import yaml
from botocore import xform_name
from on_aws import ACCOUNT, EMBEDDED_ONLY, REGION
from workbench.base import ROOT

pytestmark = pytest.mark.aws

LIST = Path(__file__).parent / "policies.txt"
# AWS's own table of actions and the resources that each knows (Service Authorization Reference), as
# cfn-lint brings it
KNOWN = json.loads(
    (Path(cfnlint.__file__).parent / "data/AdditionalSpecs/Policies.json").read_text(
        encoding="utf-8"
    )
)
for newer in ("restartconnector", "resumeconnector"):
    KNOWN["kafkaconnect"]["Actions"].setdefault(newer, {"Resources": ["connector"]})
# Actions that are allowed on "*" although they know resources, and why
ON_ALL = yaml.safe_load("""
    glue:GetSchemaVersion: &message asked by the id that stands in a message, which names no registry
    glue:PutSchemaVersionMetadata: *message
    elasticmapreduce:CreateEditor: &workspace AWS states no resource for the workspaces of an EMR Studio
    elasticmapreduce:DescribeEditor: *workspace
    elasticmapreduce:StartEditor: *workspace
    elasticmapreduce:StopEditor: *workspace
    elasticmapreduce:DeleteEditor: *workspace
    elasticmapreduce:AttachEditor: *workspace
    elasticmapreduce:DetachEditor: *workspace
    elasticmapreduce:OpenEditorInConsole: *workspace
    """)


def holders():
    """{name: (statements, managed policies)} of all roles and managed policies."""
    found = {}
    for (template, _), one in cloudformation.resources().items():
        given = one["Properties"]
        if one["Type"] == "AWS::IAM::ManagedPolicy":
            found[f"{template}: policy {given['ManagedPolicyName']}"] = (
                given["PolicyDocument"]["Statement"],
                [],
            )
        elif one["Type"] == "AWS::IAM::Role":
            attached = [
                f"policy {arn.rsplit('/', 1)[1]}" for arn in given.get("ManagedPolicyArns", [])
            ]
            attached += [
                f"policy {other['ManagedPolicyName']}"
                for other in cloudformation.resources_of_type("AWS::IAM::ManagedPolicy")
                if given["RoleName"] in other.get("Roles", [])
            ]
            own = [
                one
                for policy in given.get("Policies", [])
                for one in policy["PolicyDocument"]["Statement"]
            ]
            found[f"{template}: role {given['RoleName']}"] = (own, sorted(attached))
    return found


def listed(of):
    return of if isinstance(of, list) else [of]


def text():
    """All of it as text: who, and each statement: each of these actions is allowed on each resource
    above it."""
    lines = []
    for who, (statements, attached) in holders().items():
        lines += ["", who, *(f"    as {one}" for one in attached)]
        for one in statements:
            lines += [f"    on {resource}" for resource in listed(one["Resource"])]
            lines += [f"    if {json.dumps(one['Condition'])}"] if "Condition" in one else []
            lines += textwrap.wrap(
                " ".join(listed(one["Action"])),
                120,
                initial_indent=" " * 8,
                subsequent_indent=" " * 8,
                break_on_hyphens=False,
            )
    return "\n".join(lines).strip() + "\n"


def rights():
    """(who, action, resource) of all."""
    return [
        (who, action, resource)
        for who, (statements, _) in holders().items()
        for one in statements
        if one["Effect"] == "Allow" or pytest.fail(f"{who}: {one}")
        for action, resource in itertools.product(listed(one["Action"]), listed(one["Resource"]))
    ]


def knows(action):
    """The patterns of the ARNs that an action takes; none for one that knows no resource."""
    service, name = action.split(":")
    of = {kind.lower(): one for kind, one in KNOWN[service]["Resources"].items()}
    return [
        re.sub(r"\$\{\w+\}", "[^:]*", pattern)
        for kind in KNOWN[service]["Actions"][name.lower()].get("Resources", [])
        for pattern in of[kind.lower()]["ARNFormats"]
    ]


def test_the_policies_are_those_that_were_read():
    assert text() == LIST.read_text(encoding="utf-8"), (
        "the policies have changed. Write the list anew, and read what has changed: "
        "PYTHONPATH=tests/help .venv/bin/python tests/unit/test_deploy_policies.py"
    )


def test_a_policy_is_as_short_as_iam_wants_it():
    """6,144 characters a managed policy, 10,240 all that stand in a role; also with a deployment's
    longest name, and with ids as long as those of AWS (`subnet-` with 17 digits)."""
    for (template, key), one in cloudformation.resources().items():
        given = one["Properties"]
        own = (
            [given["PolicyDocument"]]
            if one["Type"] == "AWS::IAM::ManagedPolicy"
            else [policy["PolicyDocument"] for policy in given.get("Policies", [])]
        )
        sent = "".join(json.dumps(document, separators=(",", ":")) for document in own)
        most = 6144 if one["Type"] == "AWS::IAM::ManagedPolicy" else 10240
        sent = re.sub(r"<[\w.]+>", "i" * 24, sent.replace("workbench", "w" * 20))
        assert len(sent) < most, f"{template}: {key}"


# What EMR Studio's service role must have (EMR Management Guide, "Create an EMR Studio service role"), of
# the parts that this deployment uses: {action: resources}. AWS limits some by the tag
# for-use-with-amazon-emr-managed-policies, which the template replaces by the network.
STUDIO = yaml.safe_load("""
    ec2:CreateNetworkInterface: [network-interface, subnet, security-group]
    ec2:CreateNetworkInterfacePermission: [network-interface]
    ec2:CreateTags: [network-interface]
    ec2:DeleteNetworkInterface: [network-interface]
    ec2:DeleteNetworkInterfacePermission: [network-interface]
    ec2:DescribeInstances: [""]
    ec2:DescribeNetworkInterfaces: [""]
    ec2:DescribeSecurityGroups: [""]
    ec2:DescribeSubnets: [""]
    ec2:DescribeTags: [""]
    ec2:DescribeVpcs: [""]
    ec2:ModifyNetworkInterfaceAttribute: [instance, network-interface, security-group]
    elasticmapreduce:DescribeCluster: [cluster]
    elasticmapreduce:ListInstances: [cluster]
    elasticmapreduce:ListSteps: [cluster]
    s3:GetEncryptionConfiguration: [""]
    s3:ListBucket: [""]
    """)


def test_the_studios_role_has_what_aws_documents():
    statements, _ = holders()["studio: role workbench-studio"]
    granted = {
        (action, re.split(r"[:/]", resource)[5] if resource.startswith("arn:aws:e") else "")
        for one in statements
        for action in listed(one["Action"])
        for resource in listed(one["Resource"])
    }
    wanted = {(action, kind) for action, kinds in STUDIO.items() for kind in kinds}
    assert wanted - granted == set()


def studio_statement(action):
    statements, _ = holders()["studio: role workbench-studio"]
    (statement,) = [one for one in statements if action in listed(one["Action"])]
    return statement


def test_the_studio_attaches_by_the_statement_that_aws_wants_unchanged():
    """Without its three resources, or with a condition, attaching a workspace fails."""
    assert studio_statement("ec2:ModifyNetworkInterfaceAttribute") == {
        "Effect": "Allow",
        "Action": "ec2:ModifyNetworkInterfaceAttribute",
        "Resource": [
            f"arn:aws:ec2:*:*:{kind}/*" for kind in STUDIO["ec2:ModifyNetworkInterfaceAttribute"]
        ],
    }


def test_a_notebook_without_a_studio_is_attached_though_its_interface_has_no_tag():
    permit = studio_statement("ec2:CreateNetworkInterfacePermission")
    network = f"arn:aws:ec2:{REGION}:{ACCOUNT}:vpc/<Vpc>"
    assert permit["Condition"] == {"ArnEquals": {"ec2:Vpc": network}}


def test_all_resources_at_once_only_for_actions_that_know_none():
    assert {action for _, action, resource in rights() if resource == "*" and knows(action)} == set(
        ON_ALL
    )


def test_no_action_is_a_pattern_and_one_that_knows_no_resource_is_not_given_one():
    """It would be denied: IAM takes no resource for it but `*`."""
    assert [r for r in rights() if "*" in r[1] or r[2] != "*" and not knows(r[1])] == []


def test_each_action_takes_one_of_its_resources_and_each_resource_has_an_action():
    for who, (statements, _) in holders().items():
        for one in statements:
            actions, on = (
                listed(one["Action"]),
                [arn for arn in listed(one["Resource"]) if arn != "*"],
            )
            for action in actions if on else []:
                assert any(re.match(p, arn) for p in knows(action) for arn in on), (
                    f"{who}: {action} on none of {on}"
                )
            for arn in on:
                assert any(re.match(p, arn) for a in actions for p in knows(a)), (
                    f"{who}: none of {actions} on {arn}"
                )


def test_7_kafka_rights_are_on_the_named_cluster_its_topics_and_groups():
    kafka = [
        (who, action, resource)
        for who, action, resource in rights()
        if action.startswith("kafka-cluster:")
    ]
    pattern = re.compile(
        rf"arn:aws:kafka:{REGION}:{ACCOUNT}:"
        r"(cluster/workbench/[\w*-]+|(topic|group)/workbench/\*/[\w.*-]+)"
    )
    assert kafka and [right for right in kafka if not pattern.fullmatch(right[2])] == []
    # a topic or a group is named; a pattern has a beginning
    assert [right for right in kafka if re.search(r"\*/[^/]{0,2}\*$", right[2])] == []
    assert not any(re.match(r"kafka-cluster:\*", action) for _, action, _ in kafka)


def test_7_s3_resources_have_the_form_of_s3_names():
    """Without region and account (a sample policy has both, and allows nothing so)."""
    s3 = [right for right in rights() if right[1].startswith("s3:")]
    of_bucket = (
        "s3:GetBucketLocation",
        "s3:ListBucket",
        "s3:ListBucketMultipartUploads",
        "s3:GetEncryptionConfiguration",
    )
    for right in s3:
        found = re.fullmatch(
            rf"arn:aws:s3:::workbench-lake-{ACCOUNT}-{REGION}(/[\w.*/$-]+)?", right[2]
        )
        assert found and bool(found[1]) == (right[1] not in of_bucket), right


# what `publish` puts there
CODE = """
    workbench/jobs/bootstrap.sh
    workbench/jobs/kernel.sh
    workbench/jobs/ingest.py
    workbench/environment.tar.gz
    workbench/notebooks/10_outbox/15_dashboard.ipynb
    workbench/params/aws.yaml
    workbench/jars/login.jar
    workbench/anything
    plugins/debezium-postgres.zip
    """.split()


def written(key):
    """Who may write or delete an object of the deployment's bucket."""
    arn = f"arn:aws:s3:::workbench-lake-{ACCOUNT}-{REGION}/{key}"
    return {
        who
        for who, action, resource in rights()
        if action in ("s3:PutObject", "s3:DeleteObject") and fnmatch.fnmatchcase(arn, resource)
    }


@pytest.mark.parametrize("key", CODE)
def test_no_role_writes_code_that_another_role_runs(key):
    """bootstrap.sh, say, runs as root on a node, whose role reads the administrator's password: a
    role without secrets that may write it has them. `deploy/publish.sh` writes it, with the
    rights of the person who deploys."""
    assert written(key) == set()


@pytest.mark.parametrize(
    "key",
    [
        "hudi/datalake/cdc_events/.hoodie/hoodie.properties",
        "hudi/",
        "hudi_$folder$",
        "topics/moma.public.artists/partition=0/1.avro",
        "cdc-events/1.json",
        "dead_letters/landing/1.jsonl",
        "checkpoints/streams/sales/offsets/0",
    ],
)
def test_every_spark_writes_the_lakes_data(key):
    lake = on_aws.world().lake
    folders = {
        address.rpartition("/")[2] for address in (lake.tables, lake.dead_letters, lake.checkpoints)
    }
    assert folders == {"hudi", "dead_letters", "checkpoints"} and lake.landing == lake.root
    assert "emr: policy workbench-lake" in written(key)


def test_logs_and_results_of_queries_are_written_by_who_makes_them():
    assert written("logs/spark/applications/1") == {"emr: role workbench-spark"}
    assert written("logs/emr/j-1/steps") == {"emr: role workbench-nodes"}
    assert written("athena/1.csv") == {
        "emr: policy workbench-notebooks",
        "lake: policy workbench-readers",
    }
    assert written("runs/airflow/1.ipynb") == {
        "emr: policy workbench-notebooks",
        "studio: role workbench-studio",
    }
    for key in ("runs/nightly/1.ipynb", "studio/e-1/a.ipynb"):
        assert written(key) == {"studio: role workbench-studio"}


def test_a_role_is_passed_on_to_one_service_only():
    for who, (statements, _) in holders().items():
        for one in statements:
            if "iam:PassRole" in listed(one["Action"]):
                assert listed(one["Action"]) == ["iam:PassRole"], who
                assert one["Condition"]["StringEquals"]["iam:PassedToService"].endswith(
                    ".amazonaws.com"
                ), who


def test_a_role_is_taken_on_by_services_of_this_account_only():
    for one in cloudformation.resources_of_type("AWS::IAM::Role"):
        if isinstance(one["AssumeRolePolicyDocument"], str):  # a pod's
            (trust,) = json.loads(one["AssumeRolePolicyDocument"])["Statement"]
            who = "system:serviceaccount:kafka:kafka-connect-msk-iam-serviceaccount"
            assert trust["Condition"]["StringEquals"]["<OidcProvider>:sub"] == who
            continue
        (trust,) = one["AssumeRolePolicyDocument"]["Statement"]
        assert trust["Principal"].keys() == {"Service"} and trust["Action"] == "sts:AssumeRole"
        # a service that anybody's account may send here must come from ours; EC2 only starts what
        # is ours
        if trust["Principal"]["Service"] != "ec2.amazonaws.com":
            assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": ACCOUNT}}, one[
                "RoleName"
            ]


# -- connectors: what each file in params/connectors asks for is what its role allows, and no more
# ---------------------

FILES = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in (ROOT / "params/connectors").glob("*.json")
    if path.stem not in EMBEDDED_ONLY
}
AS_ANOTHER = {
    "pagila_source_envelope": "pagila_source"
}  # deployed by the other's name, with its topics


def tables(config):
    named = config.get("table.include.list", config.get("table.whitelist", ""))
    return [name.strip() for name in named.split(",") if name]


def topics(config):
    """The topics that a connector writes or reads, by its JSON."""
    if "topics" in config:
        return {name.strip() for name in config["topics"].split(",")}
    if "topics.regex" in config:
        start, several = re.fullmatch(r"(.*)\((.*)\)", config["topics.regex"]).groups()
        names = several.split("|") if several != ".*" else ["artists", "artworks"]
        return {start.replace("\\", "") + name for name in names}
    prefix = config["topic.prefix"]
    if "JdbcSource" in config["connector.class"]:
        return {prefix + name for name in tables(config)} or {prefix}
    beat = {f"__debezium-heartbeat.{prefix}"} if "heartbeat.interval.ms" in config else set()
    # `CaptureFlow.wait_until_captured` writes a message into PostgreSQL's log
    mark = {f"{prefix}.message"} if "Postgres" in config["connector.class"] else set()
    return {f"{prefix}.{name}" for name in tables(config)} | beat | mark


@pytest.mark.parametrize("name", sorted(FILES.keys() - AS_ANOTHER.keys()))
def test_a_connector_may_what_its_file_says_and_no_more(name):
    config = {key: value.replace("${topic_prefix}", "msk") for key, value in FILES[name].items()}
    own, attached = holders()[f"connect: role workbench-connect-{name}"]
    mine = {
        (action, re.sub(r"^arn:aws:[\w-]+:[\w-]*:\d*:+", "", resource))
        for one in own
        for action, resource in itertools.product(listed(one["Action"]), listed(one["Resource"]))
    }
    sink = "SinkConnector" in config["connector.class"]
    do = ("DescribeTopic", "ReadData") if sink else ("CreateTopic", "DescribeTopic", "WriteData")
    wanted = {
        (f"kafka-cluster:{verb}", f"topic/workbench/*/{topic}")
        for verb in do
        for topic in topics(config)
    }
    history = config.get("schema.history.internal.kafka.topic")
    if history:  # it reads what it wrote, as a group of its own
        wanted |= {
            (f"kafka-cluster:{verb}", f"topic/workbench/*/{history}")
            for verb in (*do, "DescribeTopicDynamicConfiguration", "ReadData")
        }
        wanted |= {
            (
                f"kafka-cluster:{verb}Group",
                f"group/workbench/*/{config['topic.prefix']}-schemahistory",
            )
            for verb in ("Alter", "Describe")
        }
    if sink:
        wanted |= {
            (f"kafka-cluster:{verb}Group", f"group/workbench/*/connect-workbench-{name}")
            for verb in ("Alter", "Describe")
        }
        lenses = "lenses" in config["connector.class"]
        folders = (
            ["cdc-events", ".indexes", ".temp-upload"]
            if lenses
            else [f"topics/{one}" for one in topics(config)]
        )
        do = ["PutObject", "GetObject", "AbortMultipartUpload", "ListMultipartUploadParts"] + [
            "DeleteObject"
        ] * lenses
        wanted |= {
            (f"s3:{verb}", f"workbench-lake-{ACCOUNT}-{REGION}/{folder}/*")
            for verb in do
            for folder in folders
        }
    mysql = "mysql" in config["connector.class"]
    assert {(a, r.replace("arn:aws:s3:::", "")) for a, r in mine} == wanted
    avro = {
        "policy workbench-connect-reads-schemas"
        if sink
        else "policy workbench-connect-writes-schemas"
    }
    password = (
        "policy workbench-connect-reads-mysql-password"
        if mysql
        else "policy workbench-connect-reads-password"
    )
    needed = "policy workbench-connect-finds-bucket" if sink else password
    assert set(attached) == {
        "policy workbench-connect-workers",
        needed,
        *(avro if "Avro" in config.get("value.converter", "") else ()),
    }


def test_every_connector_has_a_role_and_no_role_is_for_none():
    there = {who.rsplit("-connect-", 1)[1] for who in holders() if who.startswith("connect: role")}
    assert there == FILES.keys() - AS_ANOTHER.keys()
    for name, other in AS_ANOTHER.items():
        assert topics(FILES[name]) == topics(FILES[other])


# -- endpoints: they let through what the policies above allow, and nothing of other accounts
# -------------------------


def endpoints():
    """{name of a service as IAM has it: statements of the policy of its endpoint}"""
    found = {
        one["ServiceName"].split(".", 3)[3]: one
        for one in cloudformation.resources_of_type("AWS::EC2::VPCEndpoint")
    }
    return {
        {"monitoring": "cloudwatch"}.get(name, name): one.get("PolicyDocument", {}).get("Statement")
        for name, one in found.items()
    }


def lets_through(service, action, resource):
    return any(
        fnmatch.fnmatchcase(action, pattern) and fnmatch.fnmatchcase(resource, on)
        for one in endpoints()[service]
        for pattern, on in itertools.product(listed(one["Action"]), listed(one["Resource"]))
    )


def test_an_endpoint_lets_nothing_through_for_other_accounts():
    """Else whoever has put credentials of his own onto a machine in here carries the data out by
    them."""
    for service, statements in endpoints().items():
        assert statements, f"{service}: without a policy all of it is allowed to everybody"
        for one in statements:
            named = all(
                f"workbench-lake-{ACCOUNT}" in arn or REGION in arn or "aws157-logs-prod" in arn
                for arn in listed(one["Resource"])
            )
            conditions = one.get("Condition", {})
            ours = conditions.get("StringEquals", {}).get(
                "aws:PrincipalAccount"
            ) == ACCOUNT or ACCOUNT in conditions.get("ArnLike", {}).get("aws:PrincipalArn", "")
            assert named if service == "s3" else ours, f"{service}: {one}"


def test_an_endpoint_lets_through_what_the_policies_allow():
    on_behalf = {
        action for actions in ON_BEHALF.values() for action in actions
    }  # asked by services, not from in here
    through = endpoints()
    passing = [
        (who, action, resource)
        for who, action, resource in rights()
        if action.split(":")[0] in through and action not in on_behalf and not who.startswith("eks")
    ]
    assert {action.split(":")[0] for _, action, _ in passing} == through.keys() - {
        "sts"
    }  # asked who one is, by all
    stopped = [
        (who, action, resource)
        for who, action, resource in passing
        if not lets_through(action.split(":")[0], action, resource)
    ]
    assert stopped == []


def test_a_cluster_reaches_the_buckets_that_emr_asks_for():
    """EMR Management Guide, "Sample policies for private subnets that access Amazon S3": what it
    names for EMR 7."""
    asked = [
        ("s3:GetObject", f"al2023-repos-{REGION}-de612dc2"),
        ("s3:GetObject", f"repo.{REGION}.emr.amazonaws.com"),
        ("s3:PutObject", f"aws157-logs-prod-{REGION}"),
        ("s3:PutObject", f"prod.{REGION}.appinfo.src"),
    ]
    for action, bucket in asked:
        assert lets_through("s3", action, f"arn:aws:s3:::{bucket}/a"), bucket


def test_the_bastions_agent_reaches_session_manager():
    """The endpoint's private name holds in the public subnet as well: its agent comes this way."""
    (agent,) = [one for one in endpoints()["ssm"] if one["Resource"] == "*"]
    role = agent["Condition"]["ArnLike"]["aws:PrincipalArn"]
    assert fnmatch.fnmatchcase(
        f"arn:aws:iam::{ACCOUNT}:role/workbench-bastion", role
    ) and role.endswith("/workbench-*")


# -- the library: what it asks of AWS in a notebook is allowed to the role of a notebook
# -------------------------------

THEIRS = (
    "emr: policy workbench-lake",
    "emr: policy workbench-notebooks",
    "studio: policy workbench-runs",
)


# Services without a policy in IAM's list: their calls are of the machine, not of a notebook's role
OTHERS = ("s3", "sns", "sts")


def action(service, operation):
    """IAM's name of an operation, as botocore or boto3 has it."""
    model = botocore.session.get_session().get_service_model(service)
    names = {xform_name(name): name for name in model.operation_names}
    return f"{on_aws.SERVICES[service]}:{names.get(operation, operation)}"


def asked():
    """The AWS calls in lib, by the names that stand in it: each a set, for a name may be that of
    several services."""
    modules = [*(ROOT / "lib/workbench").rglob("*.py"), *(ROOT / "lib/workbench").rglob("*.yaml")]
    texts = [path.read_text(encoding="utf-8") for path in modules]
    return {
        frozenset(action(*each) for each in named)
        for named in on_aws.operations(texts)
        if not {service for service, _ in named} & {*OTHERS}
    }


def test_a_notebook_may_ask_what_the_library_asks():
    may = {action for who, action, _ in rights() if who in THEIRS}
    assert asked() and [sorted(actions) for actions in asked() if not actions & may] == []


def test_a_notebook_may_ask_what_was_asked_in_the_dry_run():
    """tests/stack/aws_calls: what the notebooks of each walkthrough have asked, the library and
    others in its name."""
    may = {action for who, action, _ in rights() if who in THEIRS}
    for file in (ROOT / "tests/stack/aws_calls").glob("*.txt"):
        lines = re.findall(r"^([\w-]+)\.(\w+)$", file.read_text(encoding="utf-8"), re.M)
        did = {action(*line) for line in lines}
        assert did and not did - may, file.name


# Asked by others than the library, in its name
ON_BEHALF = yaml.safe_load("""
    PyAthena: [athena:StartQueryExecution, athena:GetQueryResults, athena:StopQueryExecution]
    CreateConnector: [
      kafkaconnect:DescribeCustomPlugin, kafkaconnect:TagResource,
      logs:CreateLogDelivery, logs:GetLogDelivery, logs:ListLogDeliveries, logs:DeleteLogDelivery,
      logs:DescribeResourcePolicies, logs:DescribeLogGroups, logs:PutResourcePolicy]
    StartSession, StartJobRun: [emr-serverless:StartApplication, emr-serverless:TagResource]
    StartNotebookExecution: [elasticmapreduce:AddTags]
    """)


def test_a_notebook_may_no_more_than_is_asked():
    """Of the services that the library calls itself; S3's, Glue's and Kafka's are called by Spark
    and its like, too."""
    services = {"logs", *on_aws.SERVICES.values()} - {"glue", *OTHERS}
    may = {
        action
        for who, action, _ in rights()
        if who in THEIRS and action.partition(":")[0] in services
    }
    by_hand = {"logs:FilterLogEvents"}  # of `aws logs tail`, which `connect.failure` names
    assert may - set().union(*asked()) == set().union(by_hand, *ON_BEHALF.values())


if __name__ == "__main__":
    LIST.write_text(text(), encoding="utf-8")
