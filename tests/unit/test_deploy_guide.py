"""Checks of deploy/README.md and schedules.md.

Every command exists, and the list of what was never run is complete.
"""

import re
import shlex

import cloudformation
import pytest
from typer.main import get_command
from workbench.base.paths import ROOT
from workbench.cli import main as cli
from workbench.run import notebooks
from workbench.spark.settings import load_conf

pytestmark = pytest.mark.aws

GUIDE, NIGHT = (
    (ROOT / "deploy" / name).read_text(encoding="utf-8") for name in ("README.md", "schedules.md")
)
COMMON = (ROOT / "deploy" / "common.sh").read_text(encoding="utf-8")
NEVER = GUIDE[GUIDE.index("## Never run on a live account") :]


def commands():
    """Yield each `workbench …` of the guides, up to the shell's operators."""
    for text in (GUIDE + NIGHT).splitlines():
        for one in re.split(r"&&|;|\\?\||\s#|, |`", text):
            one = re.sub(r"^\s*(?:AWS_PROFILE=\S+ )?(?:\.venv/bin/)?", "", one)
            if re.match(r"workbench (run|ingest|forget|clean|status) ", one):
                yield re.sub(r"<[^>]*>", "3", one).strip()


@pytest.mark.parametrize("line", sorted(set(commands())))
def test_what_one_is_told_to_type_is_taken(line):
    words = shlex.split(line.replace("…", ""))[1:]
    command, context = get_command(cli.app), None
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    context = command.make_context(line, words)
    given = context.params
    for world in {given.get("world")} - {None, "mine"}:
        assert (ROOT / "params" / f"{world}.yaml").is_file()
    if "targets" in given:
        assert notebooks.find(given["targets"])


def script_calls():
    """(script, arguments) of each call of a script of deploy/ in the guides."""
    for text in (GUIDE + NIGHT).splitlines():
        for script, rest in re.findall(r"deploy/(\w+\.sh)((?: [^`|#&;]*)?)", text):
            yield script, tuple(re.sub(r"<[^>]*>", "3", rest).split(", then")[0].split())


@pytest.mark.parametrize("script, words", sorted(set(script_calls())))
def test_what_one_is_told_to_give_a_script_is_taken(script, words):
    assert (ROOT / "deploy" / script).is_file()
    options = re.findall(r"(-[\w-]+)(?: \||\))", COMMON)
    names, given = set(cloudformation.ORDER), iter(words)
    stacks = [word for word in words if word in names]
    for word in given:
        if word == "-p":
            parameter = next(given).split("=")[0]
            found = [cloudformation.template(name)["Parameters"] for name in stacks or names]
            assert any(parameter in each for each in found), parameter
        elif word == "--world":
            next(given)
        else:
            assert word in names or word in options, word


def test_nothing_that_was_built_is_missing_in_the_list_of_what_was_never_run():
    rows = [row for row in NEVER.splitlines() if row.startswith("| ")][1:]
    assert all(re.search(r"\| `?[^|]*`[^`]+`", row.replace("\\|", "/")) for row in rows), (
        "each has its command"
    )
    for path in re.findall(r"`((?:connect|topic|hudi|results|spark|run|stack)/\w+\.py)`", NEVER):
        assert (ROOT / "lib" / "workbench" / path).is_file(), path
    for made in """
        connect/msk.py topic/kafka_iam.py topic/glue_registry.py hudi/ddl.py query/athena.py spark/emr.py
        run/emr_jobs.py run/emr_notebook.py EKS Scheduler Airflow systemd publish down,
    """.split():
        assert made in NEVER, made
    assert "conditional writes" in NEVER
    for stack in cloudformation.ORDER:
        assert f"up.sh {stack}" in NEVER or stack == "studio" and "emr studio" in NEVER, stack


def test_the_proof_of_the_lake_names_the_databases_of_its_template():
    (row,) = [row for row in NEVER.splitlines() if "glue get-databases" in row]
    made = sorted(
        one["DatabaseInput"]["Name"]
        for one in cloudformation.resources_of_type("AWS::Glue::Database")
    )
    told = row.split("|")[3]
    assert (
        re.findall(r"`(\w+)`", told) == made
        and told.split(":")[0].strip() == "eight"
        and len(made) == 8
    )


VCPUS = {"m5.xlarge": 4, "t4g.nano": 2}  # of one machine (EC2, "Specifications for instance types")


def test_the_quota_that_the_guide_names_is_what_the_templates_start():
    """Instances of the families M and T share one quota, so the bastion counts with the cluster."""
    (cluster,) = cloudformation.resources_of_type("AWS::EMR::Cluster")
    groups = (cluster["Instances"][name] for name in ("MasterInstanceGroup", "CoreInstanceGroup"))
    needed = sum(VCPUS[group["InstanceType"]] * group["InstanceCount"] for group in groups)
    needed += sum(
        VCPUS[one["InstanceType"]] for one in cloudformation.resources_of_type("AWS::EC2::Instance")
    )
    assert f"needs {needed} vCPUs" in GUIDE and f"| {needed} or more |" in NEVER
    assert f"-lt {needed} ]" in (ROOT / "deploy/up.sh").read_text(encoding="utf-8")


def test_the_versions_of_aurora_that_the_guide_asks_for_are_those_of_the_template():
    given = cloudformation.template("sources")["Parameters"]
    (row,) = [line for line in NEVER.splitlines() if line.startswith("| the versions of Aurora")]
    assert all(given[name]["Default"] in row for name in ("PostgresVersion", "MySqlVersion"))


def test_a_stack_that_down_does_not_know_has_to_go_before():
    """CloudFormation removes no stack whose exports another one imports."""
    others = [
        path
        for path in (ROOT / "deploy").rglob("*.yaml")
        if path.parent != ROOT / "deploy" and "Fn::ImportValue" in path.read_text(encoding="utf-8")
    ]
    down = GUIDE[GUIDE.index("## Down") : GUIDE.index("## Never run")]
    assert (
        others
        and all(f"`{path.parent.name}/{path.name}`" in down for path in others)
        and "delete-stack" in down
    )


def test_files_that_are_named_are_there():
    for name in re.findall(r"\]\((?!#|http)([^)#]+)", GUIDE + NIGHT):
        assert (ROOT / "deploy" / name).is_file(), name


def test_the_cell_of_the_smoke_path_is_python_and_its_settings_are_there():
    (cell,) = re.findall(r"```python\n(.*?)```", GUIDE, re.S)
    cell = re.sub(r"(?m)^   ", "", cell)
    compile(cell, "smoke", "exec")
    exec("\n".join(re.findall(r"(?m)^from .+", cell)), {})
    assert "HoodieCatalog" in load_conf("hudi")["spark.sql.catalog.spark_catalog"]


def test_the_guide_is_short():
    assert len(GUIDE.split()) <= 2500
