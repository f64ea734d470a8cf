"""Upload to a deployment's bucket what its Sparks and notebooks need of this checkout.

This is the library, the worlds, notebooks, data, jars, and the plugins of connectors.
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
from typing import Any, Callable, Iterator, NamedTuple

import nbformat
import yaml

from ..base import StackError, aws, paths
from ..spark.emr import ENVIRONMENT_ARCHIVE
from ..spark.settings import hudi_conf
from ..stack import artifacts
from . import notebooks

# Uploaded unchanged; jobs/bootstrap.sh copies them to the cluster
PUBLISHED_FOLDERS = ("params", "notebooks", "data", "deploy/jobs")
# At the end of a jar's name, after the version (classifiers of Maven's documentation and of native
# libraries)
CLASSIFIER = (
    r"-((?:linux|osx|mac|windows|native|jdk\d|all|shaded|tests?|sources|javadoc)(?![a-z]).*)"
)
PUBLISH_CONFIG = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


def publish(region: str, bucket: str, progress: Callable[[str], None] = print) -> int:
    """Upload what is new or has changed.

    workbench/<wheel>, workbench/environment.tar.gz: the library with its packages;
    workbench/{params,notebooks,data,jobs}/…; workbench/notebooks-pyspark/…: the notebooks for the
    PySpark kernel; workbench/jars/…; plugins/<name>.zip: Debezium, and each folder of var/plugins
    under its name, with the jars at the root of the archive, as MSK Connect requires (see
    `plugin_jars`).

    Args:
        region: AWS region.
        bucket: name of the bucket.
        progress: called with each line for the user.

    Returns:
        The number of uploaded objects.

    Raises:
        StackError: AWS rejects an upload, a jar is missing, the wheel cannot be built, or its
            packages cannot be downloaded.
    """
    uploaded = {
        item["Key"]: item["ETag"].strip('"')
        for prefix in ("workbench/", "plugins/")
        for item in aws.paginate(
            region, "s3", "list_objects_v2", "Contents", Bucket=bucket, Prefix=prefix
        )
    }
    wheel = _build_wheel()
    count = _publish_environment(region, bucket, *wheel, progress)
    for key, data in (wheel, *_objects()):
        digest = hashlib.md5(data).hexdigest()  # noqa: S324 - S3's ETag of an object put in one piece
        if uploaded.get(key) != digest:
            aws.call(region, "s3", "put_object", Bucket=bucket, Key=key, Body=data)
            progress(f"s3://{bucket}/{key}")
            count += 1
    for folder, jar, consequence in PUBLISH_CONFIG["manual_jars"]:
        if not list((paths.VAR_DIR / folder).rglob(f"{jar}*.jar")):
            progress(
                f"missing: var/{folder}/{jar}-<version>.jar. Without it {consequence} "
                '(deploy/README.md, "Before")'
            )
    return count


def _objects() -> Iterator[tuple[str, bytes]]:
    """Yield key and content of each object except the library."""
    for name in PUBLISHED_FOLDERS:
        folder = paths.ROOT / name
        for file in sorted(folder.rglob("*")):
            if file.is_file() and ".ipynb_checkpoints" not in file.parts:
                yield f"workbench/{folder.name}/{file.relative_to(folder)}", file.read_bytes()
    for path in notebooks.find():
        text = nbformat.writes(pyspark_variant(nbformat.read(path, as_version=4)))
        yield f"workbench/notebooks-pyspark/{notebooks.name(path)}", text.encode("utf-8")
    spark_jars = _exclude(artifacts.jars("spark"), "excluded_jars")
    for jar in [*spark_jars, *sorted((paths.VAR_DIR / "jars").glob("*.jar"))]:
        yield f"workbench/jars/{jar.name}", _require_file(jar).read_bytes()
    for name, jars in plugin_jars().items():
        yield f"plugins/{name}.zip", _zip_jars(jars)


def _exclude(jars: list[Path], setting: str) -> list[Path]:
    """Return the jars whose names do not start with a prefix of this setting."""
    prefixes = tuple(PUBLISH_CONFIG[setting])
    return [jar for jar in jars if not jar.name.startswith(prefixes)]


def plugin_jars() -> dict[str, list[Path]]:
    """Return {plugin: jars of its archive}.

    Each plugin has the jars of var/msk-connect, because the worker configuration names one config
    provider for all plugins. Of several versions of a jar each has the newest.
    """
    plugins = {
        folder.name: sorted(folder.rglob("*.jar"))
        for folder in sorted((paths.VAR_DIR / "plugins").glob("*"))
    }
    names = PUBLISH_CONFIG["debezium"]
    debezium = _exclude(artifacts.jars("debezium"), "excluded_plugin_jars")
    debezium += plugins.get(names[0], [])
    plugins.update(dict.fromkeys(names, debezium))
    shared = sorted((paths.VAR_DIR / "msk-connect").rglob("*.jar"))
    return {name: _newest_versions([*jars, *shared]) for name, jars in plugins.items()}


class JarName(NamedTuple):
    """The parts of a jar's name."""

    artifact: str
    version: str
    classifier: str


def _parse_jar_name(jar: Path) -> JarName:
    """Split a jar's name; an unknown classifier is a part of the version."""
    artifact, *suffix = re.split(r"-(?=\d)", jar.stem, maxsplit=1)
    version, *classifier = re.split(CLASSIFIER, "".join(suffix), maxsplit=1)
    return JarName(artifact, version, "".join(classifier))


def _newest_versions(jars: list[Path]) -> list[Path]:
    """Return one jar for each artifact and classifier, that of the highest version, by name."""

    def version_numbers(jar: Path) -> list[int]:
        return [int(digits) for digits in re.findall(r"\d+", _parse_jar_name(jar).version)]

    newest = {}
    for jar in sorted(jars, key=version_numbers):
        parts = _parse_jar_name(jar)
        newest[parts.artifact, parts.classifier] = jar
    return sorted(newest.values(), key=lambda jar: jar.name)


def _require_file(jar: Path) -> Path:
    if not jar.is_file():
        raise StackError(f"{jar.name} is missing", location=str(jar), hint="run `make install`")
    return jar


def _zip_jars(jars: list[Path]) -> bytes:
    """Return an archive with these files at its root; equal files give equal bytes."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for jar in jars:
            archive.writestr(zipfile.ZipInfo(jar.name), _require_file(jar).read_bytes())
    return data.getvalue()


def _run_pip(error_message: str, *arguments: str, expected: str = "") -> None:
    """Run pip; raise StackError with the end of its output if it fails."""
    result = subprocess.run(
        [sys.executable, "-m", "pip", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1735689600"},  # makes wheels reproducible
    )
    if result.returncode:
        output = (result.stdout + result.stderr).strip()
        raise StackError(error_message, location=output[-500:], expected=expected)


def _build_wheel() -> tuple[str, bytes]:
    """Return key and content of the library's wheel."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder]
        _run_pip("could not build the wheel", "wheel", *options, str(paths.ROOT))
        (file,) = Path(folder).glob("*.whl")
        return f"workbench/{file.name}", file.read_bytes()


def _publish_environment(
    region: str, bucket: str, key: str, wheel: bytes, progress: Callable[[str], None]
) -> int:
    """Upload the library with all packages that it needs, as one archive, unless it is there.

    EMR's Pythons have few packages, and its networks cannot reach an index of packages. They are
    downloaded here, for EMR's Python (EMR Serverless User Guide, "Using Python libraries with EMR
    Serverless").

    Returns:
        The number of uploaded archives, 0 or 1.
    """
    archive_object = {"Bucket": bucket, "Key": ENVIRONMENT_ARCHIVE}
    digest = hashlib.sha256(wheel).hexdigest()
    with aws.ignore_error_codes("^404$|NotFound|NoSuchKey"):
        head = aws.call(region, "s3", "head_object", **archive_object)
        if head["Metadata"].get("wheel") == digest:
            return 0
    python = PUBLISH_CONFIG["python"]
    progress(
        f"s3://{bucket}/{ENVIRONMENT_ARCHIVE}: the library and its packages for Python {python}, "
        "a minute or two …"
    )
    with tempfile.TemporaryDirectory() as folder:
        local, archive = Path(folder, Path(key).name), Path(folder, "environment.tar.gz")
        environment = f"{folder}/environment"
        local.write_bytes(wheel)
        _run_pip(
            "could not download the library's dependencies",
            *["install", "--quiet", "--no-compile"],
            *["--target", environment, "--python-version", python],
            *PUBLISH_CONFIG["platform"],
            *PUBLISH_CONFIG["extra_requirements"],
            str(local),
            expected="an index of packages that pip can reach from here",
        )
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(environment, arcname=".")
        with archive.open("rb") as body:
            aws.call(
                region, "s3", "put_object", **archive_object, Body=body, Metadata={"wheel": digest}
            )
    return 1


def pyspark_variant(notebook: Any) -> Any:
    """Return a copy of a notebook for sparkmagic's PySpark kernel.

    Its cells run in a session of Livy on the cluster. The first code cell configures that Spark,
    and the second one makes the library use that session (WORKBENCH_SPARK).

    Args:
        notebook: the notebook.
    """
    variant = nbformat.from_dict(json.loads(json.dumps(notebook)))
    variant.metadata["kernelspec"] = {
        "name": "pysparkkernel",
        "display_name": "PySpark",
        "language": "python",
    }
    variant.metadata["language_info"] = {"name": "python"}
    spark_conf = {**hudi_conf(), "spark.jars": "/usr/lib/hudi/hudi-spark-bundle.jar"}
    sources = (
        f"%%configure -f\n{json.dumps({'conf': spark_conf}, indent=1)}",
        'import os\n\nos.environ["WORKBENCH_SPARK"] = "existing"',
    )
    variant.cells[1:1] = [
        nbformat.v4.new_code_cell(source, id=f"pyspark-{number}")
        for number, source in enumerate(sources)
    ]
    return variant
