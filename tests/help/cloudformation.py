"""The templates of deploy/ as CloudFormation resolves them.

Intrinsic functions are resolved. Ids of resources that do not exist are invented. A stack can import
the exports of an earlier one.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import yaml
from on_aws import ACCOUNT, REGION
from workbench.base import ROOT

DEPLOY = ROOT / "deploy"
FILES = {path.stem.split("-", 1)[1]: path for path in sorted(DEPLOY.glob("[0-9]-*.yaml"))}
ORDER = list(FILES)  # the order of `deploy/up.sh`
FILES["eks-role"] = DEPLOY / "eks" / "role.yaml"
PSEUDO = {
    "AWS::Region": REGION,
    "AWS::AccountId": ACCOUNT,
    "AWS::Partition": "aws",
    "AWS::StackName": "stack",
}
REF_NAME_PROPERTIES = {  # {type: the property that Ref returns}
    "AWS::IAM::Role": "RoleName",
    "AWS::S3::Bucket": "BucketName",
    "AWS::Logs::LogGroup": "LogGroupName",
    "AWS::Glue::Registry": "Name",
    "AWS::Athena::WorkGroup": "Name",
}
ARN_PATTERNS = {  # {type: its ARN}, by Ref or by GetAtt
    "AWS::IAM::Role": "arn:aws:iam::{account}:role/{RoleName}",
    "AWS::IAM::ManagedPolicy": "arn:aws:iam::{account}:policy/{ManagedPolicyName}",
    "AWS::S3::Bucket": "arn:aws:s3:::{BucketName}",
    "AWS::Logs::LogGroup": "arn:aws:logs:{region}:{account}:log-group:{LogGroupName}:*",
    "AWS::SQS::Queue": "arn:aws:sqs:{region}:{account}:{QueueName}",
    "AWS::SecretsManager::Secret": "arn:aws:secretsmanager:{region}:{account}:secret:{Name}-AbCdEf",
    "AWS::MSK::Cluster": "arn:aws:kafka:{region}:{account}:cluster/{ClusterName}/1b2c3d4e-5f60-7081-92a3-b4c5d6e7f8-2",
    "AWS::EMRServerless::Application": "arn:aws:emr-serverless:{region}:{account}:/applications/00f1r4c2hs0mq01p",
}
REF_IS_ARN = (
    "AWS::IAM::ManagedPolicy",
    "AWS::SecretsManager::Secret",
    "AWS::MSK::Cluster",
)  # types whose Ref is the ARN


class _Loader(yaml.SafeLoader):
    pass


def _tag(loader: Any, suffix: str, node: Any) -> Any:
    kind = {
        yaml.ScalarNode: loader.construct_scalar,
        yaml.SequenceNode: lambda n: loader.construct_sequence(n, True),
        yaml.MappingNode: lambda n: loader.construct_mapping(n, True),
    }
    value = kind[type(node)](node)
    return {"Ref" if suffix == "Ref" else f"Fn::{suffix}": value}


_Loader.add_multi_constructor("!", _tag)


@functools.cache
def template(name: str) -> Any:
    """Return deploy/<n>-<name>.yaml, with its functions in their long form."""
    return yaml.load(FILES[name].read_text(encoding="utf-8"), _Loader)  # noqa: S506 - a SafeLoader


@functools.cache
def _resolver(name: str, **parameters: str) -> Any:
    """Return a function that resolves any part of a template.

    Args:
        name: name of the template.
        parameters: values of its parameters, by default their defaults.
    """
    raw = template(name)
    values = {
        **PSEUDO,
        **{
            key: entry.get("Default", f"<{key}>")
            for key, entry in raw.get("Parameters", {}).items()
        },
    }
    values.update({key: value for key, value in parameters.items() if key in values})

    def resource(key: str, attribute: str = "") -> Any:
        entry = raw["Resources"][key]
        names = {
            k: resolve(v) for k, v in entry.get("Properties", {}).items() if k.endswith("Name")
        }
        if entry["Type"] in ARN_PATTERNS and (
            attribute == "Arn" or (not attribute and entry["Type"] in REF_IS_ARN)
        ):
            return ARN_PATTERNS[entry["Type"]].format(region=REGION, account=ACCOUNT, **names)
        if not attribute and entry["Type"] in REF_NAME_PROPERTIES:
            return names[REF_NAME_PROPERTIES[entry["Type"]]]
        return f"<{key}.{attribute}>" if attribute else f"<{key}>"

    def ref_value(key: str) -> Any:
        return values[key] if key in values else resource(*key.split(".", 1))

    def substitute(argument: Any) -> str:
        text, more = argument if isinstance(argument, list) else (argument, {})
        more = {key: resolve(value) for key, value in more.items()}
        return re.sub(
            r"\$\{([^!}]+)\}", lambda m: str(more[m[1]] if m[1] in more else ref_value(m[1])), text
        )

    def resolve(part: Any) -> Any:
        if isinstance(part, list):
            return [resolve(entry) for entry in part]
        if not isinstance(part, dict):
            return part
        function, argument = next(iter(part.items()), ("", None))
        if function == "Ref":
            return ref_value(argument)
        if function == "Fn::Sub":
            return substitute(argument)
        if not function.startswith("Fn::"):
            return {key: resolve(value) for key, value in part.items()}
        argument = resolve(argument)
        if function == "Fn::GetAtt":
            return resource(*(argument.split(".", 1) if isinstance(argument, str) else argument))
        if function == "Fn::ImportValue":
            return exports()[argument][1]()
        if function == "Fn::Join":
            return argument[0].join(map(str, argument[1]))
        if function == "Fn::Base64":
            return argument
        if function == "Fn::If":
            return argument[1] if resolve(raw["Conditions"][argument[0]]) else argument[2]
        if function == "Fn::Equals":
            return argument[0] == argument[1]
        if function == "Fn::Not":
            return not argument[0]
        return f"<{function[4:]} {argument}>"

    return resolve


@functools.cache
def exports() -> dict[str, tuple[str, Any]]:
    """Return {export: (template, function that returns its value)}."""
    return {
        _resolver(name)(entry["Export"]["Name"]): (
            name,
            functools.partial(_resolver(name), entry["Value"]),
        )
        for name in FILES
        for entry in template(name).get("Outputs", {}).values()
        if "Export" in entry
    }


def imports(part: Any) -> set[str]:
    """Return the names that a part of a template imports, unresolved."""
    if isinstance(part, dict):
        own = {part["Fn::ImportValue"]["Fn::Sub"]} if "Fn::ImportValue" in part else set()
        return own.union(*map(imports, part.values()))
    return set().union(*map(imports, part)) if isinstance(part, list) else set()


@functools.cache
def resources(**parameters: str) -> dict[tuple[str, str], Any]:
    """Return {(template, logical id): resource}, resolved, without those that a condition excludes.

    Args:
        parameters: parameters of any template.
    """
    found = {}
    for name in FILES:
        resolve, raw = _resolver(name, **parameters), template(name)
        found.update(
            {
                (name, key): {"Properties": {}, **resolve(entry)}
                for key, entry in raw["Resources"].items()
                if "Condition" not in entry or resolve(raw["Conditions"][entry["Condition"]])
            }
        )
    return found


def resources_of_type(kind: str, **parameters: str) -> list[Any]:
    """Return the properties of all resources of a type."""
    return [
        entry["Properties"] for entry in resources(**parameters).values() if entry["Type"] == kind
    ]
