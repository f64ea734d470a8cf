"""Write what a deployment needs of this checkout into a folder, which publish.sh uploads.

    .venv/bin/python deploy/pack.py FOLDER

* workbench/<wheel> is the library, workbench/environment.tar.gz the library with its packages.
* workbench/{params,notebooks,data,jobs}/… are these folders of the checkout.
* workbench/jars/… are the jars of Spark.
* plugins/<name>.zip is Debezium, or a folder of var/plugins.

A file is written only if its content is new: `aws s3 sync` uploads by size and time.
"""

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import botocore
from workbench.base import StackError, paths
from workbench.spark.emr import ENVIRONMENT_ARCHIVE
from workbench.stack import artifacts

FOLDERS = ("params", "notebooks", "data", "deploy/jobs")
# Jars of the embedded stack that EMR provides, or that only a single machine needs
EXCLUDED_JARS = ("hudi-", "spark-connect_", "spark-avro_", "hadoop-")
# Plugins with the same jars: a plugin of MSK Connect has one connector class
DEBEZIUM = ("debezium-postgres", "debezium-mysql")
# Jars of Debezium that Kafka Connect provides in its own versions, by the beginning of their names
EXCLUDED_PLUGIN_JARS = (
    *("connect-api-", "kafka-clients-", "slf4j-api-"),
    *("lz4-java-", "snappy-java-", "zstd-jni-"),
)
# Jars that no package index has: folder below var/, beginning of the name, consequence of its absence
MANUAL_JARS = (
    ("jars", "aws-msk-iam-auth", "Spark cannot log in to MSK"),
    ("msk-connect", "msk-config-providers", "no connector starts"),
    ("msk-connect", "schema-registry-kafkaconnect-converter", "no connector writes Avro for Glue"),
)
PYTHON = "3.9"  # of EMR 7
PIP_OPTIONS = (
    *("--only-binary=:all:", "--python-version", PYTHON),
    *("--platform", "manylinux2014_x86_64", "--platform", "manylinux_2_28_x86_64"),
)
# All packages in their versions, so that two days give the same archive
LOCK = Path(__file__).with_name("environment.lock")
# Services whose model in the last boto3 for EMR's Python lacks operations that the library calls
NEWER_MODELS = ("kafkaconnect",)
# What follows the version in a jar's name: a Maven classifier, or the platform of a native library
CLASSIFIER = (
    r"-((?:linux|osx|mac|windows|native|jdk\d|all|shaded|tests?|sources|javadoc)(?![a-z]).*)"
)


def pack(target: Path) -> None:
    """Write all files below a folder, and remove those of an earlier run that are no longer made.

    Raises:
        StackError: a jar of `make install` is missing, or pip cannot build the wheel or download
            its dependencies.
    """
    wheel = build_wheel()
    environment = target / ENVIRONMENT_ARCHIVE
    digest = target / "environment.digest"
    made = {environment, digest}
    write_environment(environment, digest, *wheel)
    for name, data in (wheel, *checkout_files(), *plugin_archives()):
        made.add(target / name)
        write_if_new(target / name, data)
    for folder in ("workbench", "plugins"):  # nothing else in the target is ours
        for file in (target / folder).rglob("*"):
            if file.is_file() and file not in made:
                file.unlink()
    for place, jar, consequence in MANUAL_JARS:
        if not list((paths.VAR_DIR / place).rglob(f"{jar}*.jar")):
            print(f"missing: var/{place}/{jar}-<version>.jar. Without it {consequence}")


def write_if_new(file: Path, data: bytes) -> None:
    """Write a file unless it has this content already."""
    if not file.is_file() or file.read_bytes() != data:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def checkout_files() -> list[tuple[str, bytes]]:
    """Return (name, content) of the checkout's folders and of Spark's jars."""
    files = {}
    for name in FOLDERS:
        folder = paths.ROOT / name
        for file in folder.rglob("*"):
            if file.is_file() and not {".ipynb_checkpoints", "__pycache__"} & {*file.parts}:
                files[f"workbench/{folder.name}/{file.relative_to(folder)}"] = file
    jars = [jar for jar in artifacts.jars("spark") if not jar.name.startswith(EXCLUDED_JARS)]
    for jar in [*jars, *(paths.VAR_DIR / "jars").glob("*.jar")]:
        files[f"workbench/jars/{jar.name}"] = jar
    return [(name, read(file)) for name, file in files.items()]


def plugin_archives() -> list[tuple[str, bytes]]:
    """Return (name, content) of each plugin's archive."""
    return [(f"plugins/{name}.zip", zip_jars(jars)) for name, jars in plugin_jars().items()]


def plugin_jars() -> dict[str, list[Path]]:
    """Return {plugin: jars of its archive}, with only the newest version of each jar.

    Each archive includes the jars of var/msk-connect, because the worker configuration names one
    config provider for all plugins.
    """
    plugins = {
        folder.name: list(folder.rglob("*.jar")) for folder in (paths.VAR_DIR / "plugins").glob("*")
    }
    debezium = [
        jar for jar in artifacts.jars("debezium") if not jar.name.startswith(EXCLUDED_PLUGIN_JARS)
    ]
    debezium += plugins.get(DEBEZIUM[0], [])  # somebody's additions
    plugins.update(dict.fromkeys(DEBEZIUM, debezium))
    shared = list((paths.VAR_DIR / "msk-connect").rglob("*.jar"))
    return {name: newest_versions([*jars, *shared]) for name, jars in plugins.items()}


def newest_versions(jars: list[Path]) -> list[Path]:
    """Return the highest version of each (artifact, classifier), sorted by file name."""
    newest: dict[tuple[str, str], tuple[list[int], Path]] = {}
    for jar in jars:
        artifact, *suffix = re.split(r"-(?=\d)", jar.stem, maxsplit=1)
        version, *classifier = re.split(CLASSIFIER, "".join(suffix), maxsplit=1)
        numbers = [int(digits) for digits in re.findall(r"\d+", version)]
        key = artifact, "".join(classifier)
        newest[key] = max(newest.get(key, (numbers, jar)), (numbers, jar))
    return sorted((jar for _, jar in newest.values()), key=lambda jar: jar.name)


def zip_jars(jars: list[Path]) -> bytes:
    """Return an archive with these files at its root, as MSK Connect requires."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for jar in jars:
            archive.writestr(zipfile.ZipInfo(jar.name), read(jar))
    return data.getvalue()


def read(file: Path) -> bytes:
    """Return the content of a file; a missing one is a StackError."""
    if not file.is_file():
        raise StackError(f"{file.name} is missing", location=str(file), hint="run `make install`")
    return file.read_bytes()


def build_wheel() -> tuple[str, bytes]:
    """Return (name, content) of the library's wheel."""
    with tempfile.TemporaryDirectory() as folder:
        options = ("--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder)
        pip("could not build the wheel", "wheel", *options, str(paths.ROOT))
        (file,) = Path(folder).glob("*.whl")
        return f"workbench/{file.name}", file.read_bytes()


def write_environment(archive: Path, digest_file: Path, wheel_name: str, wheel: bytes) -> None:
    """Write the archive of the library with its packages for EMR's Python.

    EMR's network has no package index. The archive is kept while wheel, lock and options are the
    same; without its file it is made again.
    """
    origin = repr((PIP_OPTIONS, LOCK.read_text(), NEWER_MODELS, botocore.__version__))
    digest = hashlib.sha256(wheel + origin.encode()).hexdigest()
    if archive.is_file() and digest_file.is_file() and digest_file.read_text() == digest:
        return
    print(f"{archive.name}: the library and its packages for Python {PYTHON}, a minute or two …")
    with tempfile.TemporaryDirectory() as folder:
        wheel_file, packages = Path(folder, Path(wheel_name).name), Path(folder, "packages")
        wheel_file.write_bytes(wheel)
        pip(
            "could not download the library's dependencies",
            *("install", "--quiet", "--no-compile", "--target", str(packages), "--no-deps"),
            *PIP_OPTIONS,
            *("--requirement", str(LOCK)),
            str(wheel_file),
        )
        for service in NEWER_MODELS:
            model = Path("botocore", "data", service)
            newer = Path(botocore.__file__).parent.parent / model
            shutil.rmtree(packages / model, ignore_errors=True)
            shutil.copytree(newer, packages / model)
        archive.parent.mkdir(parents=True, exist_ok=True)
        partial = archive.with_name(f"{archive.name}.part")  # an interrupted run leaves no archive
        with tarfile.open(partial, "w:gz") as tar:
            tar.add(packages, arcname=".")
        partial.replace(archive)
    digest_file.write_text(digest)


def pip(error_message: str, *arguments: str) -> None:
    """Run pip; raise StackError with the end of its output if it fails."""
    result = subprocess.run(
        [sys.executable, "-m", "pip", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1735689600"},  # makes wheels reproducible
    )
    if result.returncode:
        output = (result.stdout + result.stderr).strip()
        raise StackError(error_message, location=output[-500:])


if __name__ == "__main__":
    try:
        pack(Path(sys.argv[1]))
    except StackError as e:
        sys.exit(str(e))
