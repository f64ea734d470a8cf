"""What a deployment's Sparks and notebooks need of this checkout, put into its bucket: library,
worlds, notebooks, data, jars, and the plugins of connectors.
"""

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Callable, Iterator

import nbformat
import yaml

from ..base import StackError, aws, paths
from ..spark.emr import ENVIRONMENT_ARCHIVE
from ..spark.settings import hudi_conf
from ..stack import artifacts
from . import notebooks

PUBLISHED_FOLDERS = (
    "params",
    "notebooks",
    "data",
    "deploy/jobs",
)  # as they are; jobs/bootstrap.sh puts them on the cluster
# At the end of a jar's name, behind the version (those that Maven's documentation and native
# libraries have)
CLASSIFIER = (
    r"-((?:linux|osx|mac|windows|native|jdk\d|all|shaded|tests?|sources|javadoc)(?![a-z]).*)"
)
PUBLISH_CONFIG = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


def publish(region: str, bucket: str, progress: Callable[[str], None] = print) -> int:
    """Upload what is new or has changed; return how many objects that are.

    workbench/<wheel>, workbench/environment.tar.gz: the library with its packages;
    workbench/{params,notebooks,data, jobs}/…, workbench/notebooks-pyspark/…: the notebooks for the
    PySpark kernel; workbench/jars/…; plugins/<name>.zip: Debezium's, and each folder of var/plugins
    under its name, with the jars at the root of the archive, as MSK Connect wants it (see
    `plugin_jars`).

    Raises: StackError: AWS refuses it; the jars are not there; the wheel cannot be built, or its
        packages not be had.
    """
    have = {
        one["Key"]: one["ETag"].strip('"')
        for prefix in ("workbench/", "plugins/")
        for one in aws.paginate(
            region, "s3", "list_objects_v2", "Contents", Bucket=bucket, Prefix=prefix
        )
    }
    wheel = _build_wheel()
    count = _publish_environment(region, bucket, *wheel, progress)
    for key, data in (wheel, *_objects()):
        if have.get(key) != hashlib.md5(data).hexdigest():  # noqa: S324 - what S3 calls an object put in one piece
            aws.call(region, "s3", "put_object", Bucket=bucket, Key=key, Body=data)
            progress(f"s3://{bucket}/{key}")
            count += 1
    for folder, jar, without in PUBLISH_CONFIG["by hand"]:
        if not [*(paths.VAR_DIR / folder).rglob(f"{jar}*.jar")]:
            progress(
                f'missing: var/{folder}/{jar}-<version>.jar. Without it {without} (deploy/README.md, "Before")'
            )
    return count


def _objects() -> Iterator[tuple[str, bytes]]:
    """Key and content of each object but the library."""
    for folder in (paths.ROOT / name for name in PUBLISHED_FOLDERS):
        for file in sorted(folder.rglob("*")):
            if file.is_file() and ".ipynb_checkpoints" not in file.parts:
                yield f"workbench/{folder.name}/{file.relative_to(folder)}", file.read_bytes()
    for path in notebooks.find():
        book = pyspark_variant(nbformat.read(path, as_version=4))
        yield (
            f"workbench/notebooks-pyspark/{notebooks.name(path)}",
            nbformat.writes(book).encode("utf-8"),
        )
    ours = [
        jar
        for jar in artifacts.jars("spark")
        if not jar.name.startswith(tuple(PUBLISH_CONFIG["not on EMR"]))
    ]
    for jar in [*ours, *sorted((paths.VAR_DIR / "jars").glob("*.jar"))]:
        yield f"workbench/jars/{jar.name}", _require_file(jar).read_bytes()
    for name, jars in plugin_jars().items():
        yield f"plugins/{name}.zip", _zip_jars(jars)


def plugin_jars() -> dict[str, list[Path]]:
    """Return {plugin: jars of its archive}. Each has those of var/msk-connect, for the worker
    configuration names one config provider for all plugins; of several versions of a jar each has
    the newest.
    """
    plugins = {
        folder.name: sorted(folder.rglob("*.jar"))
        for folder in sorted((paths.VAR_DIR / "plugins").glob("*"))
    }
    debezium = [
        jar
        for jar in artifacts.jars("debezium")
        if not jar.name.startswith(tuple(PUBLISH_CONFIG["not in plugins"]))
    ]
    plugins.update(
        dict.fromkeys(
            PUBLISH_CONFIG["debezium"], [*debezium, *plugins.get(PUBLISH_CONFIG["debezium"][0], [])]
        )
    )
    shared = sorted((paths.VAR_DIR / "msk-connect").rglob("*.jar"))
    return {name: _newest_versions([*jars, *shared]) for name, jars in plugins.items()}


def _newest_versions(jars: list[Path]) -> list[Path]:
    """One jar for each artifact and classifier, that of its highest version, in the order of their
    names.
    """

    def parts(jar: Path) -> tuple[str, str, str]:
        """Artifact, version and classifier of a jar. What is no known classifier is a part of the
        version.
        """
        artifact, _, rest = re.match(r"(.*?)(?:(-)(?=\d)(.*))?$", jar.stem).groups()
        version, *classifier = re.split(CLASSIFIER, rest or "", maxsplit=1)
        return artifact, version, "".join(classifier)

    def version(jar: Path) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", parts(jar)[1])]

    highest = {parts(jar)[::2]: jar for jar in sorted(jars, key=version)}
    return sorted(highest.values(), key=lambda jar: jar.name)


def _require_file(jar: Path) -> Path:
    if not jar.is_file():
        raise StackError(f"{jar.name} is not there", location=str(jar), hint="run `make install`")
    return jar


def _zip_jars(jars: list[Path]) -> bytes:
    """An archive with these files at its root: the same files give the same bytes."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for jar in jars:
            archive.writestr(zipfile.ZipInfo(jar.name), _require_file(jar).read_bytes())
    return data.getvalue()


def _run_pip(failed: str, *arguments: str, expected: str = "") -> None:
    """Raises: StackError: pip did not do it: what failed, and the end of what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1735689600"},
    )  # else no two wheels are the same
    if done.returncode:
        raise StackError(
            failed, location=(done.stdout + done.stderr).strip()[-500:], expected=expected
        )


def _build_wheel() -> tuple[str, bytes]:
    """Key and content of the library's wheel."""
    with tempfile.TemporaryDirectory() as folder:
        _run_pip(
            "the wheel was not built",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--wheel-dir",
            folder,
            str(paths.ROOT),
        )
        (file,) = Path(folder).glob("*.whl")
        return f"workbench/{file.name}", file.read_bytes()


def _publish_environment(
    region: str, bucket: str, key: str, wheel: bytes, say: Callable[[str], None]
) -> int:
    """Have the library with all that it needs in the bucket, as one archive; return how many were
    made, 0 or 1.

    EMR's Pythons have next to no packages, and its networks no way to an index of them: they are
    fetched here, for EMR's Python (EMR Serverless User Guide, "Using Python libraries with EMR
    Serverless").
    """
    where, made_of = (
        {"Bucket": bucket, "Key": ENVIRONMENT_ARCHIVE},
        hashlib.sha256(wheel).hexdigest(),
    )
    with aws.ignore_error_codes("^404$|NotFound|NoSuchKey"):
        if aws.call(region, "s3", "head_object", **where)["Metadata"].get("wheel") == made_of:
            return 0
    say(
        f"s3://{bucket}/{ENVIRONMENT_ARCHIVE}: the library and its packages for Python {PUBLISH_CONFIG['python']}, a minute or two …"
    )
    with tempfile.TemporaryDirectory() as folder:
        local, archive = Path(folder, Path(key).name), Path(folder, "environment.tar.gz")
        local.write_bytes(wheel)
        _run_pip(
            "the library's packages were not had",
            "install",
            "--quiet",
            "--no-compile",
            "--target",
            f"{folder}/environment",
            "--python-version",
            PUBLISH_CONFIG["python"],
            *PUBLISH_CONFIG["platform"],
            *PUBLISH_CONFIG["only there"],
            str(local),
            expected="an index of packages that pip can reach from here",
        )
        with tarfile.open(archive, "w:gz") as made:
            made.add(f"{folder}/environment", arcname=".")
        with archive.open("rb") as body:
            aws.call(region, "s3", "put_object", **where, Body=body, Metadata={"wheel": made_of})
    return 1


def pyspark_variant(book: Any) -> Any:
    """A copy of a notebook for sparkmagic's PySpark kernel, whose cells run in a session that Livy
    keeps on the
    cluster: its first cell says what that Spark needs, and the library takes that session
        (WORKBENCH_SPARK).
    """
    made = nbformat.from_dict(json.loads(json.dumps(book)))
    made.metadata["kernelspec"] = {
        "name": "pysparkkernel",
        "display_name": "PySpark",
        "language": "python",
    }
    made.metadata["language_info"] = {"name": "python"}
    needed = {"conf": {**hudi_conf(), "spark.jars": "/usr/lib/hudi/hudi-spark-bundle.jar"}}
    cells = (
        f"%%configure -f\n{json.dumps(needed, indent=1)}",
        'import os\n\nos.environ["WORKBENCH_SPARK"] = "existing"',
    )
    made.cells[1:1] = [
        nbformat.v4.new_code_cell(text, id=f"pyspark-{n}") for n, text in enumerate(cells)
    ]
    return made
