"""The files of deploy/, judged without an account: each of the 14 lines that a deployment of the
walkthroughs must show, by its number (the policies, line 7, are in test_deploy_policies.py)."""

import ast
import json
import re
from pathlib import Path
from string import Template

import cloudformation
import kubernetes_validate
import on_aws
import pyspark
import pytest
import sqlglot
import yaml
from cfnlint.api import ManualArgs, lint_file
from sqlglot import exp
from workbench import connect, hudi, tracks
from workbench.base import ROOT, aws, models
from workbench.stack import artifacts
from workbench.topic import kafka_iam, topics

pytestmark = pytest.mark.aws

DEPLOY, REGION = ROOT / "deploy", on_aws.REGION
EKS = DEPLOY / "eks" / "connect.yaml"
WORLD = yaml.safe_load((ROOT / "params/aws.yaml").read_text(encoding="utf-8"))
VERSIONS = yaml.safe_load((ROOT / "params/versions.yaml").read_text(encoding="utf-8"))
WITH = dict(
    WithMySql="yes",
    WithNat="yes",
    WithSessions="yes",
    WithLensesS3="yes",
    WithConfluentS3="yes",
    WithConfluentJdbc="yes",
    Mail="a@b.example",
    BastionCidr="203.0.113.9/32",
)  # all that a condition leaves out by default
NOTEBOOKS = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))["cells"]
    for path in (ROOT / "notebooks").rglob("*.ipynb")
}


def parameters():
    """{name: value} of the SSM parameters that the templates write, without the deployment's
    own."""
    return {
        one["Name"].split("/", 2)[2]: one["Value"]
        for one in cloudformation.resources_of_type("AWS::SSM::Parameter")
    }


def one(kind, **given):
    (found,) = cloudformation.resources_of_type(kind, **given)
    return found


# -- 1. every template parses and names no literal password, account or bucket
# -----------------------------------------


@pytest.mark.parametrize("name", cloudformation.FILES)
def test_1_a_template_is_clean_and_small_enough_to_be_sent(name):
    assert lint_file(cloudformation.FILES[name], ManualArgs(regions=[REGION])) == []
    # CloudFormation takes larger ones from S3 only
    assert cloudformation.FILES[name].stat().st_size < 51200


def test_1_no_account_no_bucket():
    for path in DEPLOY.rglob("*"):
        if path.is_file() and path.suffix != ".pyc":  # which another test has made
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"(?<!\d)\d{12}(?!\d)", text), f"{path.name}: an account"
            # all that follows is put in: ${…} in a template, a name that a shell or a reader fills
            # in
            assert not re.search(r"s3a?://(?![$<{])[\w-]", text), f"{path.name}: a bucket"


def secrets(part):
    """(key, value) of what is called a password or a secret, in any template."""
    pairs = part.items() if isinstance(part, dict) else enumerate(part)
    for key, value in pairs:
        if isinstance(value, (dict, list)):
            yield from secrets(value)
        elif re.search(r"password|passphrase|secret|token", str(key), re.I):
            yield key, value


ALLOWED_SECRETS = re.compile(
    r"\('HttpTokens', 'required'\)|\('GenerateStringKey', 'password'\)|\('PasswordLength', 40\)"
    r"|\(.*'\{\{resolve:secretsmanager:.*|\('SecretStringTemplate', '\{\"username\": \"\w+\"\}'\)"
)


def test_1_no_password():
    """A password is made by AWS, and read from there: no template has one, and none is a stack's
    parameter."""
    found = {str(each) for each in secrets(cloudformation.resources(WithMySql="yes"))}
    assert found and [each for each in found if not ALLOWED_SECRETS.fullmatch(each)] == []
    assert not re.search("password|secret", " ".join(all_parameters()), re.I)


def all_parameters():
    """{parameter: declarations} of all templates."""
    found = {}
    for name in cloudformation.FILES:
        for key, declared in cloudformation.template(name)["Parameters"].items():
            found.setdefault(key, []).append(declared)
    return found


def test_every_stack_has_its_deployment_as_parameter_and_in_every_name():
    pattern = models.Stack.model_fields["deployment"].metadata[0].pattern
    for given in all_parameters()["Deployment"]:
        assert given["Default"] == WORLD["stack"]["deployment"]
        assert pattern == f"^({given['AllowedPattern']})?$"
    free = {"Database", "DatabaseName", "MetricName", "Namespace"}
    for (name, key), resource in cloudformation.resources(**WITH).items():
        for called, value in resource["Properties"].items():
            if (
                called.endswith("Name")
                and called not in free
                and not str(value).startswith(("<", "com.amazonaws."))
            ):
                assert "workbench" in value, (
                    f"{name} {key}: two people in one account would both make {value!r}"
                )


# -- 2. the broker type is not T3; the configuration makes topics
# ------------------------------------------------------


def test_2_no_broker_is_a_t3_and_topics_make_themselves():
    offered = cloudformation.template("msk")["Parameters"]["BrokerType"]
    assert offered["Default"] in offered["AllowedValues"]
    assert not [name for name in offered["AllowedValues"] if ".t" in name]
    lines = one("AWS::MSK::Configuration")["ServerProperties"].split()
    assert {"auto.create.topics.enable=true", "delete.topic.enable=true"} <= set(lines)


# -- 3. security groups
# ------------------------------------------------------------------------------------------------


def ingress(**given):
    """{(group, port, from where)}: all that may come in anywhere."""
    found = set()
    for (_, key), resource in cloudformation.resources(**given).items():
        kind, properties = resource["Type"].rpartition("::")[2], resource["Properties"]
        rules = (
            properties.get("SecurityGroupIngress", []) if kind == "SecurityGroup" else [properties]
        )
        for rule in rules if kind in ("SecurityGroup", "SecurityGroupIngress") else ():
            ports = {rule.get("FromPort"), rule.get("ToPort")}
            (port,) = ports if rule["IpProtocol"] != "-1" else ["all"]
            source = rule.get("SourceSecurityGroupId") or rule["CidrIp"]
            way = rule.get("GroupId", key), str(port), source
            found.add(tuple(part.strip("<>") for part in way))
    return found


EVER = """
    KafkaGroup all KafkaGroup
    KafkaGroup 9098 BastionGroup
    KafkaGroup 9098 ConnectGroup
    KafkaGroup 9098 SparkGroup
    DatabaseGroup 5432 BastionGroup
    DatabaseGroup 5432 ConnectGroup
    DatabaseGroup 5432 SparkGroup
    EndpointGroup 443 10.20.0.0/16
    SparkGroup all SparkGroup
    SparkGroup 8443 ServiceGroup
    ServiceGroup 9443 SparkGroup
    SparkGroup 18888 WorkspaceGroup
    """
IF_WANTED = """
    MySqlGroup 3306 BastionGroup
    MySqlGroup 3306 ConnectGroup
    MySqlGroup 3306 SparkGroup
    BastionGroup 22 203.0.113.9/32
    """


def test_3_who_may_come_in_where():
    def ways(text):
        return {tuple(line.split()) for line in text.strip().splitlines()}

    assert ingress() == ways(EVER)
    wanted = ingress(WithMySql="yes", BastionCidr="203.0.113.9/32")
    assert wanted == ways(EVER) | ways(IF_WANTED)


def test_3_a_workspace_reaches_git_with_nat_only():
    def egress(**given):
        return [
            (rule["GroupId"], rule["ToPort"], rule["CidrIp"])
            for rule in cloudformation.resources_of_type("AWS::EC2::SecurityGroupEgress", **given)
        ]

    assert egress() == [] and egress(WithNat="yes") == [("<WorkspaceGroup>", 443, "0.0.0.0/0")]


@pytest.mark.parametrize(
    "cidr, good",
    [("", True), ("203.0.113.9/32", True), ("0.0.0.0/0", False), ("203.0.113.0/24", False)],
)
def test_3_the_bastion_is_open_to_one_address_or_to_none(cidr, good):
    pattern = cloudformation.template("network")["Parameters"]["BastionCidr"]["AllowedPattern"]
    assert bool(re.fullmatch(pattern, cidr)) == good


def test_3_only_the_public_subnets_have_a_route_out_and_only_the_bastion_is_there():
    routes = cloudformation.resources_of_type("AWS::EC2::Route")
    assert [(r["RouteTableId"], r["GatewayId"]) for r in routes] == [
        ("<PublicRoutes>", "<Gateway>")
    ]
    assert {
        (r["RouteTableId"], r.get("NatGatewayId", r.get("GatewayId")))
        for r in cloudformation.resources_of_type("AWS::EC2::Route", WithNat="yes")
    } == {("<PublicRoutes>", "<Gateway>"), ("<PrivateRoutes>", "<Nat>")}
    private = {
        a["SubnetId"]
        for a in cloudformation.resources_of_type("AWS::EC2::SubnetRouteTableAssociation")
        if a["RouteTableId"] == "<PrivateRoutes>"
    }
    assert private == {"<PrivateSubnetA>", "<PrivateSubnetB>"}
    kinds = ("::DBSubnetGroup", "::Cluster", "::Application", "::Studio", "::VPCEndpoint")
    placed = json.dumps(
        [one for one in cloudformation.resources(**WITH).values() if one["Type"].endswith(kinds)]
    )
    assert "<PrivateSubnetA>" in placed and "<PublicSubnet" not in placed


def test_3_what_the_private_subnets_call_has_an_endpoint():
    """There is no other way out of them."""
    called = {
        *"s3 secretsmanager ssm glue sts logs monitoring athena kafkaconnect emr-serverless".split()
    }
    endpoints = {
        e["ServiceName"].split(".", 3)[3]: e
        for e in cloudformation.resources_of_type("AWS::EC2::VPCEndpoint")
    }
    assert endpoints.keys() == called
    assert {e["VpcEndpointType"] for name, e in endpoints.items() if name != "s3"} == {"Interface"}
    assert all(e["PrivateDnsEnabled"] for name, e in endpoints.items() if name != "s3")


# -- 4. parameter groups of the databases
# ------------------------------------------------------------------------------


def test_4_the_logs_of_both_databases_can_be_read():
    settings = {
        g["Family"]: g["Parameters"]
        for g in cloudformation.resources_of_type(
            "AWS::RDS::DBClusterParameterGroup", WithMySql="yes"
        )
    }
    assert settings["aurora-postgresql16"]["rds.logical_replication"] == "1"
    assert settings["aurora-mysql8.0"]["binlog_format"] == "ROW"
    assert settings["aurora-mysql8.0"]["binlog_row_image"] == "FULL"
    clusters = cloudformation.resources_of_type("AWS::RDS::DBCluster", WithMySql="yes")
    used = {cluster["Engine"]: cluster["DBClusterParameterGroupName"] for cluster in clusters}
    assert used == {"aurora-postgresql": "<PostgresSettings>", "aurora-mysql": "<MySqlSettings>"}


@pytest.mark.parametrize(
    "kind, key, number, given",
    [
        ("EC2::Subnet", "AvailabilityZone", 2, {"ZoneA": "2", "ZoneB": "3"}),
        (
            "RDS::DBCluster",
            "EngineVersion",
            2,
            {"PostgresVersion": "16.13", "MySqlVersion": "8.0.mysql_aurora.3.12.0"},
        ),
    ],
)
def test_4_a_zone_without_msk_and_a_version_that_aws_has_retired_can_be_replaced(
    kind, key, number, given
):
    def values(**more):
        found = cloudformation.resources_of_type(f"AWS::{kind}", WithMySql="yes", **more)
        return {each[key] for each in found}

    assert len(values()) == number and values().isdisjoint(values(**given))
    assert key == "AvailabilityZone" or values(**given) == {*given.values()}


def test_4_the_parameter_groups_keep_their_descriptions():
    """Another text makes CloudFormation replace the group of a deployment that exists."""
    resources = cloudformation.template("sources")["Resources"].values()
    groups = [r for r in resources if r["Type"] == "AWS::RDS::DBClusterParameterGroup"]
    assert {group["Properties"]["Description"] for group in groups} == {
        "The log may be decoded; nobody connects without TLS",
        "The log says of each row what it was and is; nobody connects without TLS",
    }


@pytest.mark.parametrize("kind, database", [("postgres", "devdb"), ("mysql", "sampledatabase")])
def test_4_users_and_database_are_those_of_the_world(kind, database):
    world = WORLD[kind]
    (cluster,) = [
        each
        for each in cloudformation.resources_of_type("AWS::RDS::DBCluster", **WITH)
        if each["Engine"].startswith(f"aurora-{kind}")
    ]
    assert cluster["MasterUsername"] == world["admin_user"]
    assert cluster["DatabaseName"] == (world["database"] or database) == database
    made = {
        s["Name"].partition("/")[2]: json.loads(s["GenerateSecretString"]["SecretStringTemplate"])
        for s in cloudformation.resources_of_type("AWS::SecretsManager::Secret", **WITH)
        if kind in s["Name"]
    }
    users = {
        f"{kind}.{role}": {"username": world[f"{role}_user"]} for role in ("admin", "replication")
    }
    assert made == users
    assert all(f"${{secret:{name}}}" in world.values() for name in made)


def test_4_mysql_is_made_where_it_is_wanted_and_its_address_is_told_in_any_case():
    assert one("AWS::RDS::DBCluster")["Engine"] == "aurora-postgresql"
    for given, host in (({}, "none"), (WITH, "<MySql.Endpoint.Address>")):
        told = {
            p["Name"]: p["Value"]
            for p in cloudformation.resources_of_type("AWS::SSM::Parameter", **given)
        }
        assert (told["/workbench/mysql/host"], told["/workbench/mysql/port"]) == (host, "3306")


# -- 5. the five keys of IAM, three times
# ------------------------------------------------------------------------------

IAM = {
    "security.protocol": "SASL_SSL",
    **kafka_iam.JAVA_CLIENT_PROPERTIES,
    "ssl.truststore.location": "/tmp/kafka.client.truststore.jks",
}


def manifests():
    values = {
        "ROLE_ARN": "arn:aws:iam::<account>:role/r",
        "BOOTSTRAP": "b-1.example:9098",
        "REGION": REGION,
        "DATABASE_HOST": "db.example",
        "CONNECT_IMAGE": "registry.example/connect:1",
    }
    return {
        m["kind"]: m
        for m in yaml.safe_load_all(
            Template(EKS.read_text(encoding="utf-8")).safe_substitute(values)
        )
    }


def properties(text):
    pairs = [
        line.split("=", 1)
        for line in text.splitlines()
        if line.strip() and not line.startswith("#")
    ]
    assert len(dict(pairs)) == len(pairs), "a key is there twice"
    return dict(pairs)


def test_5_the_worker_on_eks_logs_in_by_iam_as_itself_as_producer_and_as_consumer():
    worker = properties(manifests()["ConfigMap"]["data"]["connect-distributed.properties"])
    for prefix in ("", "producer.", "consumer."):
        assert {key: worker.get(prefix + key) for key in IAM} == IAM, prefix
    assert (
        worker["group.id"] == "connect-cluster"
        and worker["plugin.path"] == "/usr/local/share/kafka/plugins"
    )
    for what in ("offset", "config", "status"):
        assert worker[f"{what}.storage.topic"] == f"connect-{what}{'' if what == 'status' else 's'}"
        assert worker[f"{what}.storage.replication.factor"] == "2"


def test_5_spark_logs_in_by_iam():
    """Four of the five: Spark takes Java's own trust store, in which Amazon's certificates are."""
    told = topics.spark_options(on_aws.world())
    wanted = {
        f"kafka.{key}": value for key, value in IAM.items() if key != "ssl.truststore.location"
    }
    assert {key: told.get(key) for key in wanted} == wanted


def test_5_a_worker_of_msk_connect_names_no_login_and_reads_passwords_itself():
    """MSK Connect logs in by the connector's role, and refuses a worker configuration that says
    otherwise."""
    worker = properties(one("AWS::KafkaConnect::WorkerConfiguration")["PropertiesFileContent"])
    assert not [key for key in worker if "sasl" in key or "security" in key]
    (provider,) = re.findall(r"^\$\$\{(\w+):", WORLD["connect"]["password_reference"])
    assert (
        worker["config.providers"] == provider
        and worker[f"config.providers.{provider}.param.region"] == REGION
    )
    assert {worker["key.converter"], worker["value.converter"]} == {
        "org.apache.kafka.connect.json.JsonConverter"
    }


# -- 6. connector files (their keys and placeholders, against the published ones: test_published.py)
# -------------------


def test_6_every_connector_has_a_plugin_that_5_connect_makes():
    from workbench.connect import msk

    made = {
        p["Name"]: p["Location"]["S3Location"]["FileKey"]
        for p in cloudformation.resources_of_type("AWS::KafkaConnect::CustomPlugin", **WITH)
    }
    assert made == {f"workbench-{name}": f"plugins/{name}.zip" for name in msk.CUSTOM_PLUGINS}
    used = {
        connect.config(on_aws.world(), path.stem)["connector.class"]
        for path in (ROOT / "params/connectors").glob("*.json")
        if path.stem not in on_aws.EMBEDDED_ONLY
    }
    assert used == {*msk.CUSTOM_PLUGINS.values()}


# -- 8. Connect and the registry on EKS
# --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.32", "1.34"])
def test_8_the_manifests_are_kubernetes(version):
    for manifest in manifests().values():
        kubernetes_validate.validate(manifest, version, strict=True)


def test_8_account_database_probes_limits_and_the_password_from_a_secret():
    found = manifests()
    account = found["ServiceAccount"]["metadata"]
    assert account["annotations"] == {"eks.amazonaws.com/role-arn": "arn:aws:iam::<account>:role/r"}
    deployment = found["Deployment"]["spec"]
    pod = deployment["template"]["spec"]
    assert deployment["strategy"] == {"type": "Recreate"} and deployment["replicas"] == 1
    assert pod["serviceAccountName"] == account["name"] == "kafka-connect-msk-iam-serviceaccount"
    containers = {c["name"]: c for c in pod["containers"]}
    assert containers.keys() == {"kafka-connect", "apicurio-registry-sql"}
    for container in (*containers.values(), *pod["initContainers"]):
        for kind in ("requests", "limits"):
            assert container["resources"][kind].keys() == {"cpu", "memory"}
    for container in containers.values():
        assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()
    registry = containers["apicurio-registry-sql"]
    assert registry["image"].rpartition(":")[2] == VERSIONS["apicurio"]
    told = [e for e in registry["env"] if e["name"].startswith("REGISTRY_DATASOURCE_")]
    assert sorted(told, key=lambda e: e["name"]) == yaml.safe_load("""
        - name: REGISTRY_DATASOURCE_PASSWORD
          valueFrom: {secretKeyRef: {name: apicurio-registry, key: password}}
        - name: REGISTRY_DATASOURCE_URL
          value: jdbc:postgresql://db.example:5432/apicurio-registry
        - name: REGISTRY_DATASOURCE_USERNAME
          valueFrom: {secretKeyRef: {name: apicurio-registry, key: username}}
        """)
    plain = {e["name"] for c in containers.values() for e in c["env"] if "value" in e}
    assert not [name for name in plain if re.search("PASSW|SECRET", name)]
    assert "Secret" not in found
    service = found["Service"]["spec"]
    assert service["type"] == "NodePort" and [p["port"] for p in service["ports"]] == [8080]
    assert service["selector"].items() <= deployment["template"]["metadata"]["labels"].items()


def test_8_what_the_command_fills_in_is_all_that_is_left_open():
    text = EKS.read_text(encoding="utf-8")
    (named,) = re.findall(r"envsubst '(.*)'", text)
    assert (
        set(re.findall(r"\$\{(\w+)\}", text))
        == set(re.findall(r"\$(\w+)", named))
        == set(re.findall(r"(\w+)=…", text))
    )


# -- 9. EMR
# ------------------------------------------------------------------------------------------------------------


def test_9_the_cluster_and_the_application_have_one_release():
    (release,) = {
        one(f"AWS::{kind}")["ReleaseLabel"]
        for kind in ("EMR::Cluster", "EMRServerless::Application")
    }
    assert release


def test_9_the_guide_states_its_spark_and_hudi_beside_those_that_the_tests_run_with():
    """What the release has only AWS can tell: the guide states it, with the command that proves it.
    What the tests run with is what is installed."""
    guide = (DEPLOY / "README.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"Spark and Hudi of the release .*", guide)
    stated, tested = (
        dict(re.findall(r"(Spark|Hudi) ([\d.]+\d)", part))
        for part in row.split("|")[0].split("tested with")
    )
    (bundle,) = (jar for jar in artifacts.jars("spark") if jar.name.startswith("hudi-spark"))
    assert tested == {"Spark": pyspark.__version__, "Hudi": bundle.stem.rpartition("-")[2]}
    assert (
        stated["Hudi"] == tested["Hudi"]
        and stated["Spark"].rpartition(".")[0] == tested["Spark"].rpartition(".")[0]
    )
    assert f"--release-label {one('AWS::EMR::Cluster')['ReleaseLabel']} " in row
    differences = (ROOT / "docs/differences.md").read_text(encoding="utf-8")
    assert (
        f"| Spark of EMR: {stated['Spark']} " in differences
        and f"| Spark {tested['Spark']} |" in differences
    )


# -- 10. names written are names read
# ----------------------------------------------------------------------------------

BY_UP = {"kafka/bootstrap"}  # up.sh writes it: CloudFormation cannot ask for it


def texts(part):
    """All texts in a params file, its comments left out."""
    if isinstance(part, dict):
        return [text for value in part.values() for text in texts(value)]
    return [part] if isinstance(part, str) else []


def read():
    """The parameters that somebody reads: params/aws.yaml by reference, the library by name."""
    names = {name for value in texts(WORLD) for name in re.findall(r"\$\{ssm:([\w/]+)\}", value)}
    for path in (ROOT / "lib/workbench").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if re.search(r"\baws\.parameters?\(|\bparameters\(\)", text):
            words = {n.value for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Constant)}
            names |= {
                word
                for word in words
                if isinstance(word, str)
                and re.fullmatch(
                    r"(?:postgres|kafka|connect|lake|query|spark|emr|studio)/[\w/]+", word
                )
            }
    request = (ROOT / "lib/workbench/connect/create_connector.yaml").read_text(encoding="utf-8")
    names |= set(re.findall(r"parameters\[([\w/]+)\]", request))
    for path in DEPLOY.glob("*.sh"):
        names |= set(re.findall(r"\bparameter (\w+/\w+)", path.read_text(encoding="utf-8")))
    names.remove(
        "connect/role/"
    )  # connect/msk.py, of each connector that it is told to apply: all of the walkthroughs
    deployed = {
        name
        for each in tracks.ALL
        if not each.local_only
        for name in (*each.resources.connectors, *each.flow.sinks)
    }
    return names | {f"connect/role/{name}" for name in deployed - on_aws.EMBEDDED_ONLY}


def test_10_names_written_are_names_read():
    written = parameters().keys() | BY_UP
    assert read() - written == set(), "read, and written by nobody"
    assert written - read() == set(), "written, and read by nobody"


def test_10_the_made_up_world_of_the_tests_has_the_same_names():
    assert on_aws.PARAMETERS.keys() == parameters().keys() | BY_UP
    assert parameters()["lake/bucket"] == one("AWS::S3::Bucket")["BucketName"]
    assert parameters()["connect/subnets"] == "<PrivateSubnetA>,<PrivateSubnetB>"


def test_10_a_connectors_role_is_the_one_of_its_name():
    """And that MSK Connect may take on."""
    roles = {
        name: value for name, value in parameters().items() if name.startswith("connect/role/")
    }
    assert (
        roles
        == {
            name: f"arn:aws:iam::{on_aws.ACCOUNT}:role/workbench-connect-{name.rpartition('/')[2]}"
            for name in roles
        }
        == {name: on_aws.PARAMETERS[name] for name in roles}
    )
    trusting = {
        f"arn:aws:iam::{on_aws.ACCOUNT}:role/{role['RoleName']}": role["AssumeRolePolicyDocument"]
        for role in cloudformation.resources_of_type("AWS::IAM::Role")
    }
    for arn in roles.values():
        (trust,) = trusting[arn]["Statement"]
        assert trust["Principal"] == {"Service": "kafkaconnect.amazonaws.com"}, arn


# -- 11. databases before the jobs that use them
# -----------------------------------------------------------------------


def test_11_the_catalogs_databases_are_made_with_the_lake():
    databases = [
        one["DatabaseInput"] for one in cloudformation.resources_of_type("AWS::Glue::Database")
    ]
    made = {database["Name"]: database["LocationUri"] for database in databases}
    assert {"datalake", "pagila_kafka_connect", "moma_cow", "moma_mor"} <= made.keys()
    there = [each for each in tracks.ALL if not each.local_only]
    used = {name for each in there for name in each.owns.databases}
    captures = [capture for each in there for capture in each.flow.captures]
    used |= {
        table.get("database", hudi.Table.database) for capture in captures for table in capture.lake
    }
    world = on_aws.world()
    used |= {table.database for each in there for table in each.owns.tables(world)}
    assert used <= made.keys()
    assert cloudformation.ORDER.index("lake") < cloudformation.ORDER.index("emr")
    root = f"s3://{one('AWS::S3::Bucket')['BucketName']}/"
    assert all(place.startswith(root) and place.endswith("/") for place in made.values())


# -- 12. no column is data and partition at once
# -----------------------------------------------------------------------


def created():
    """(notebook, statement) of the tables that notebooks make with SQL."""
    for name, cells in NOTEBOOKS.items():
        for cell in cells:
            for text in re.findall(
                r'"""(\s*CREATE (?:EXTERNAL )?TABLE.*?)"""', "".join(cell["source"]), re.S
            ):
                yield name, text


def twice(text):
    """The columns that a statement has as data and as partition."""
    if "EXTERNAL" in text:
        columns, by = re.search(r"\((.*)\)\s*PARTITIONED BY \((.*?)\)", text, re.S).groups()
        names = [
            [c.split()[0].strip("`").lower() for c in part.split(",")] for part in (columns, by)
        ]
        return set(names[0]) & set(names[1])
    by = [c.strip("' ") for c in re.search(r"partitioned_by = ARRAY\[(.*?)\]", text)[1].split(",")]
    asked = sqlglot.parse_one(re.sub(r".*?\)\s+AS\b", "", text, count=1, flags=re.S), read="athena")
    names = [column.alias_or_name for column in asked.find(exp.Select).expressions]
    # CTAS: the partition columns are the last of the query, each once
    return {n for n in by if names.count(n) > 1} | (set(by) if names[-len(by) :] != by else set())


def test_12_no_table_has_a_column_that_is_data_and_partition():
    found = list(created())
    assert {name for name, _ in found} == {"23_changes", "24_silver", "35_refined"}
    for name, text in found:
        assert twice(text) == set(), name


@pytest.mark.parametrize(
    "text, column",
    [
        (
            "CREATE EXTERNAL TABLE t (a int, Country string) PARTITIONED BY (country string)",
            "country",
        ),
        ("CREATE TABLE t WITH (partitioned_by = ARRAY['c']) AS SELECT a, c, a AS c FROM t", "c"),
        ("CREATE TABLE t WITH (partitioned_by = ARRAY['c']) AS SELECT c, a FROM t", "c"),
    ],
)
def test_12_one_that_has_is_seen(text, column):
    assert twice(text) == {column}


# -- 13. what one stack gives is what a later one takes
# ----------------------------------------------------------------


def test_13_bastion_database_kafka_connect_emr():
    """Each stack takes what earlier ones give."""
    given = {name: stack for name, (stack, _) in cloudformation.exports().items()}
    imports = {
        name: {
            each.replace("${Deployment}", "workbench") for each in cloudformation.imports(template)
        }
        for name, template in (
            (each, cloudformation.template(each)) for each in cloudformation.FILES
        )
    }
    takes = {name: {given[each] for each in taken} for name, taken in imports.items()}
    expected = yaml.safe_load("""
        network: []
        lake: []
        sources: [network]
        msk: [network]
        connect: [lake, msk, sources]
        emr: [lake, network]
        studio: [lake, network]
        schedule: [lake, network, studio]
        alarms: []
        """)
    assert cloudformation.ORDER == [*expected]
    assert {name: sorted(takes[name]) for name in expected} == expected
    unused = {"workbench-Application", "workbench-SparkRole"}
    assert given.keys() - set().union(*imports.values()) == unused, "given, and taken by nobody"


def test_13_what_another_parameter_replaces_is_not_exported():
    """CloudFormation changes no value that another stack imports: a cluster of another generation
    could not be made."""
    exported = [
        json.dumps(one["Value"])
        for one in cloudformation.template("emr")["Outputs"].values()
        if "Export" in one
    ]
    assert exported and not [value for value in exported if '"Cluster' in value]
    assert (
        json.dumps(cloudformation.template("schedule")).count(
            "{{resolve:ssm:/${Deployment}/emr/cluster}}"
        )
        == 1
    )
    changes = {
        name
        for name in cloudformation.ORDER
        if "Generation" in cloudformation.template(name)["Parameters"]
    }
    assert changes == {"emr", "schedule"}, "the schedule looks again which cluster there is"


# -- 14. a teardown
# ----------------------------------------------------------------------------------------------------


def test_14_nothing_refuses_to_go():
    """What keeps data is deleted with its stack, by a decision that stands in the template; nothing
    is protected."""
    keeps = ["AWS::S3::Bucket", "AWS::RDS::DBCluster", "AWS::RDS::DBInstance", "AWS::MSK::Cluster"]
    keeps += ["AWS::Logs::LogGroup", "AWS::SQS::Queue"]
    for (name, key), resource in cloudformation.resources(WithMySql="yes").items():
        if resource["Type"] in keeps:
            assert resource.get("DeletionPolicy") == "Delete", f"{name} {key}"
        assert not {"DeletionProtection", "TerminationProtected"} & resource["Properties"].keys(), (
            f"{name} {key}"
        )


RESOURCES = yaml.safe_load(Path(__file__).with_name("resources.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", RESOURCES)
def test_a_resource_has_the_properties_that_it_must_have(kind):
    found = one(kind)
    assert {name: found[name] for name in RESOURCES[kind]} == RESOURCES[kind]


# -- the schedule
# ------------------------------------------------------------------------------------------------------


def schedules():
    return cloudformation.resources_of_type("AWS::Scheduler::Schedule")


def test_a_forgotten_cluster_is_terminated_every_evening():
    (curfew,) = [each for each in schedules() if each["Name"] == "workbench-curfew"]
    assert curfew["State"] == "ENABLED" and curfew["ScheduleExpression"] == "cron(0 20 * * ? *)"
    assert curfew["Target"]["Arn"].endswith(":aws-sdk:emr:terminateJobFlows")
    assert json.loads(curfew["Target"]["Input"]) == {"JobFlowIds": ["<Cluster>"]}


def test_failed_steps_and_jobs_and_too_high_costs_are_reported():
    rules = cloudformation.resources_of_type("AWS::Events::Rule")
    patterns = {rule["EventPattern"]["source"][0]: rule["EventPattern"]["detail"] for rule in rules}
    assert patterns == yaml.safe_load("""
        aws.emr: {state: [FAILED], message: [{wildcard: "*(workbench)*"}]}
        aws.emr-serverless: {state: [FAILED], jobRunName: [{prefix: workbench-}]}
        """)
    assert {target["Arn"] for rule in rules for target in rule["Targets"]} == {"<Topic>"}
    (publish,) = one("AWS::SNS::TopicPolicy")["PolicyDocument"]["Statement"]
    assert "events.amazonaws.com" in publish["Principal"]["Service"]
    assert cloudformation.resources_of_type("AWS::Budgets::Budget") == []
    budget = one("AWS::Budgets::Budget", Mail="a@b.example")
    kinds = [
        each["Notification"]["NotificationType"] for each in budget["NotificationsWithSubscribers"]
    ]
    assert kinds == ["ACTUAL", "FORECASTED"]


def test_the_schedules_request_is_one_that_emr_takes():
    import botocore.session
    from botocore.validate import ParamValidator

    (schedule,) = [each for each in schedules() if each["Name"] == "workbench-nightly"]
    target = schedule["Target"]
    request = json.loads(target["Input"])
    assert json.loads(request["NotebookParams"]) == {"world": "aws"}
    # the policy <deployment>-runs may describe and stop only what has this tag
    assert request["Tags"] == [{"Key": aws.DEPLOYMENT_TAG, "Value": "workbench"}]
    groups = (
        request["ExecutionEngine"]["MasterInstanceSecurityGroupId"],
        request["NotebookInstanceSecurityGroupId"],
    )
    assert groups == (parameters()["emr/cluster_group"], parameters()["emr/notebook_group"])
    studio, cluster = one("AWS::EMR::Studio"), one("AWS::EMR::Cluster")["Instances"]
    assert groups == (studio["EngineSecurityGroupId"], studio["WorkspaceSecurityGroupId"])
    assert groups[0] == cluster["EmrManagedMasterSecurityGroup"]
    assert (
        ROOT / "notebooks" / request["NotebookS3Location"]["Key"].partition("notebooks/")[2]
    ).is_file()
    service, operation = target["Arn"].rsplit(":", 2)[1:]
    shape = (
        botocore.session.get_session()
        .get_service_model(service)
        .operation_model(operation[0].upper() + operation[1:])
        .input_shape
    )
    assert not ParamValidator().validate(request, shape).has_errors()
    assert target["DeadLetterConfig"]["Arn"].endswith(":workbench-unstarted")


def test_every_parameter_has_a_default():
    declared = [cloudformation.template(name)["Parameters"] for name in cloudformation.ORDER]
    assert all("Default" in each for found in declared for each in found.values())
