"""Upload this checkout to the bucket of a deployment, for Spark on EMR, notebooks and MSK Connect.

The objects are the library, the params files, notebooks, data, jars and connector plugins.
"""

import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Callable, Iterator, NamedTuple

import yaml

from ..base import StackError, aws, paths
from ..spark.emr import ENVIRONMENT_ARCHIVE
from ..stack import artifacts

# Uploaded unchanged; jobs/bootstrap.sh copies them to the cluster
PUBLISHED_FOLDERS = ("params", "notebooks", "data", "deploy/jobs")
# The part of a jar's name after the version: a Maven classifier, or the platform of a native library.
CLASSIFIER = (
    r"-((?:linux|osx|mac|windows|native|jdk\d|all|shaded|tests?|sources|javadoc)(?![a-z]).*)"
)
PUBLISH_CONFIG = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


def publish(region: str, bucket: str, progress: Callable[[str], None] = print) -> int:
    """Upload the new and changed objects.

    * workbench/<wheel> is the library.
    * workbench/environment.tar.gz is the library with its dependencies.
    * workbench/{params,notebooks,data,jobs}/… are these folders of the checkout.
    * workbench/jars/… are the jars of Spark.
    * plugins/<name>.zip is Debezium, or a folder of var/plugins.

    MSK Connect requires the jars of a plugin at the root of its archive (see `plugin_jars`).

    Args:
        region: AWS region.
        bucket: name of the bucket.
        progress: called with a line per uploaded object and per missing jar.

    Returns:
        The number of uploaded objects.

    Raises:
        StackError: AWS rejects a request, a jar of `make install` is missing, or pip cannot build
            the wheel or download its dependencies.
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
    for key, data in (wheel, *_read_objects()):
        digest = hashlib.md5(data).hexdigest()  # noqa: S324 - the ETag of an object that was uploaded in one part
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


def _read_objects() -> Iterator[tuple[str, bytes]]:
    """Yield (key, content) of each object except the wheel and the environment archive."""
    for name in PUBLISHED_FOLDERS:
        folder = paths.ROOT / name
        for file in sorted(folder.rglob("*")):
            if file.is_file() and ".ipynb_checkpoints" not in file.parts:
                yield f"workbench/{folder.name}/{file.relative_to(folder)}", file.read_bytes()
    spark_jars = _exclude_jars(artifacts.jars("spark"), "excluded_jars")
    for jar in [*spark_jars, *sorted((paths.VAR_DIR / "jars").glob("*.jar"))]:
        yield f"workbench/jars/{jar.name}", _require_file(jar).read_bytes()
    for name, jars in plugin_jars().items():
        yield f"plugins/{name}.zip", _zip_jars(jars)


def _exclude_jars(jars: list[Path], setting: str) -> list[Path]:
    """Return the jars without those whose names start with a prefix of a setting in publish.yaml."""
    prefixes = tuple(PUBLISH_CONFIG[setting])
    return [jar for jar in jars if not jar.name.startswith(prefixes)]


def plugin_jars() -> dict[str, list[Path]]:
    """Return {plugin: jars of its archive}, with only the newest version of each jar.

    Each archive includes the jars of var/msk-connect, because the worker configuration names one
    config provider for all plugins.
    """
    plugins = {
        folder.name: sorted(folder.rglob("*.jar"))
        for folder in sorted((paths.VAR_DIR / "plugins").glob("*"))
    }
    # the first name is also that of a folder in var/plugins
    debezium_plugins = PUBLISH_CONFIG["debezium"]
    debezium = _exclude_jars(artifacts.jars("debezium"), "excluded_plugin_jars")
    debezium += plugins.get(debezium_plugins[0], [])
    plugins.update(dict.fromkeys(debezium_plugins, debezium))
    shared = sorted((paths.VAR_DIR / "msk-connect").rglob("*.jar"))
    return {name: _newest_versions([*jars, *shared]) for name, jars in plugins.items()}


class JarName(NamedTuple):
    """The parts of a jar's name: `<artifact>-<version>-<classifier>.jar`."""

    artifact: str
    version: str
    classifier: str


def _parse_jar_name(jar: Path) -> JarName:
    """Split a jar's name. An unknown classifier counts as part of the version."""
    artifact, *suffix = re.split(r"-(?=\d)", jar.stem, maxsplit=1)
    version, *classifier = re.split(CLASSIFIER, "".join(suffix), maxsplit=1)
    return JarName(artifact, version, "".join(classifier))


def _newest_versions(jars: list[Path]) -> list[Path]:
    """Return the highest version of each (artifact, classifier), sorted by file name."""

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
    """Return a zip archive with these files at its root. Equal files give equal bytes."""
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
    """Return (key, content) of the library's wheel."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder]
        _run_pip("could not build the wheel", "wheel", *options, str(paths.ROOT))
        (file,) = Path(folder).glob("*.whl")
        return f"workbench/{file.name}", file.read_bytes()


def _publish_environment(
    region: str, bucket: str, key: str, wheel: bytes, progress: Callable[[str], None]
) -> int:
    """Upload one archive of the library and its dependencies, unless the bucket has this archive.

    EMR's Python has few packages, and its network has no package index. So this machine downloads
    the packages for EMR's version of Python (EMR Serverless User Guide, "Using Python libraries with EMR
    Serverless").

    Args:
        region: AWS region.
        bucket: name of the bucket.
        key: key of the wheel.
        wheel: content of the wheel. The digest of the wheel is stored as metadata of the archive.
        progress: called before the download.

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
        wheel_file, archive = Path(folder, Path(key).name), Path(folder, "environment.tar.gz")
        environment = f"{folder}/environment"
        wheel_file.write_bytes(wheel)
        _run_pip(
            "could not download the library's dependencies",
            *["install", "--quiet", "--no-compile"],
            *["--target", environment, "--python-version", python],
            *PUBLISH_CONFIG["platform"],
            *PUBLISH_CONFIG["extra_requirements"],
            str(wheel_file),
            expected="a package index that pip can reach from this machine",
        )
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(environment, arcname=".")
        with archive.open("rb") as body:
            aws.call(
                region, "s3", "put_object", **archive_object, Body=body, Metadata={"wheel": digest}
            )
    return 1
