"""The templates of deploy/, as CloudFormation would understand them: intrinsic functions are worked
out, with the ids of what does not exist made up; what one stack exports, the next imports."""

from __future__ import annotations

import functools
import re
from typing import Any

import yaml
from on_aws import ACCOUNT, REGION
from workbench.base import ROOT

DEPLOY = ROOT / "deploy"
FILES = {path.stem.split("-", 1)[1]: path for path in sorted(DEPLOY.glob("[0-9]-*.yaml"))}
ORDER = list(FILES)  # that of `workbench aws up`
FILES["eks-role"] = DEPLOY / "eks" / "role.yaml"
PSEUDO = {
    "AWS::Region": REGION,
    "AWS::AccountId": ACCOUNT,
    "AWS::Partition": "aws",
    "AWS::StackName": "stack",
}
REF_NAME_PROPERTIES = {  # what Ref gives where that is a name which the template gives
    "AWS::IAM::Role": "RoleName",
    "AWS::S3::Bucket": "BucketName",
    "AWS::Logs::LogGroup": "LogGroupName",
    "AWS::Glue::Registry": "Name",
    "AWS::Athena::WorkGroup": "Name",
}
ARN_PATTERNS = {  # an ARN of a type, {} its name: by Ref or by GetAtt
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
)  # whose Ref is their ARN


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
    """deploy/<n>-<name>.yaml as it stands, its functions in their long form."""
    return yaml.load(FILES[name].read_text(encoding="utf-8"), _Loader)  # noqa: S506 - a SafeLoader


@functools.cache
def _resolver(name: str, **given: str) -> Any:
    """What works out any part of a template; given: its parameters, where they are not their
    defaults."""
    raw = template(name)
    values = {
        **PSEUDO,
        **{key: one.get("Default", f"<{key}>") for key, one in raw.get("Parameters", {}).items()},
    }
    values.update({key: value for key, value in given.items() if key in values})

    def resource(key: str, attribute: str = "") -> Any:
        one = raw["Resources"][key]
        names = {k: told(v) for k, v in one.get("Properties", {}).items() if k.endswith("Name")}
        if one["Type"] in ARN_PATTERNS and (
            attribute == "Arn" or (not attribute and one["Type"] in REF_IS_ARN)
        ):
            return ARN_PATTERNS[one["Type"]].format(region=REGION, account=ACCOUNT, **names)
        if not attribute and one["Type"] in REF_NAME_PROPERTIES:
            return names[REF_NAME_PROPERTIES[one["Type"]]]
        return f"<{key}.{attribute}>" if attribute else f"<{key}>"

    def named(key: str) -> Any:
        return values[key] if key in values else resource(*key.split(".", 1))

    def sub(of: Any) -> str:
        text, more = of if isinstance(of, list) else (of, {})
        more = {key: told(value) for key, value in more.items()}
        return re.sub(
            r"\$\{([^!}]+)\}", lambda m: str(more[m[1]] if m[1] in more else named(m[1])), text
        )

    def told(part: Any) -> Any:
        if isinstance(part, list):
            return [told(one) for one in part]
        if not isinstance(part, dict):
            return part
        function, of = next(iter(part.items()), ("", None))
        if function == "Ref":
            return named(of)
        if function == "Fn::Sub":
            return sub(of)
        if not function.startswith("Fn::"):
            return {key: told(value) for key, value in part.items()}
        of = told(of)
        if function == "Fn::GetAtt":
            return resource(*(of.split(".", 1) if isinstance(of, str) else of))
        if function == "Fn::ImportValue":
            return exports()[of][1]()
        if function == "Fn::Join":
            return of[0].join(map(str, of[1]))
        if function == "Fn::Base64":
            return of
        if function == "Fn::If":
            return of[1] if told(raw["Conditions"][of[0]]) else of[2]
        if function == "Fn::Equals":
            return of[0] == of[1]
        if function == "Fn::Not":
            return not of[0]
        return f"<{function[4:]} {of}>"

    return told


@functools.cache
def exports() -> dict[str, tuple[str, Any]]:
    """{what a stack exports: (its template, what gives the value)}"""
    return {
        _resolver(name)(one["Export"]["Name"]): (
            name,
            functools.partial(_resolver(name), one["Value"]),
        )
        for name in FILES
        for one in template(name).get("Outputs", {}).values()
        if "Export" in one
    }


def imports(part: Any) -> set[str]:
    """The names that a part of a template imports, as they stand in it."""
    if isinstance(part, dict):
        own = {part["Fn::ImportValue"]["Fn::Sub"]} if "Fn::ImportValue" in part else set()
        return own.union(*map(imports, part.values()))
    return set().union(*map(imports, part)) if isinstance(part, list) else set()


@functools.cache
def resources(**given: str) -> dict[tuple[str, str], Any]:
    """{(template, logical id): resource}, all functions worked out, without those that a condition
    leaves out; given: parameters of any template."""
    found = {}
    for name in FILES:
        told, raw = _resolver(name, **given), template(name)
        found.update(
            {
                (name, key): {"Properties": {}, **told(one)}
                for key, one in raw["Resources"].items()
                if "Condition" not in one or told(raw["Conditions"][one["Condition"]])
            }
        )
    return found


def resources_of_type(kind: str, **given: str) -> list[Any]:
    """The properties of all resources of a type."""
    return [one["Properties"] for one in resources(**given).values() if one["Type"] == kind]
