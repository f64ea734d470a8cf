"""Resolve params/jars.ivy.xml transitively by Apache Ivy, and write params/jars.lock (`make lock`)."""

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

from workbench.base.paths import VAR_DIR
from workbench.stack import artifacts

text = (artifacts.ROOT / "params" / "jars.ivy.xml").read_text(encoding="utf-8")
text = re.sub(r"\$\{(\w+)\}", lambda m: str(artifacts.versions()[m.group(1)]), text)
# a folder of its own: a pom.xml in the current folder would mislead Ivy
folder = VAR_DIR / "ivy"
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
(folder / "ivy.xml").write_text(text)
retrieve = (
    "files/[conf]/[organisation]/[artifact]/[revision]/[artifact]-[revision](-[classifier]).[ext]"
)
program = next((artifacts.package_dir("pyspark") / "jars").glob("ivy-*.jar"))
java = [artifacts.java_home() / "bin" / "java", *artifacts.truststore_options(folder)]
settings = ["-ivy", "ivy.xml", "-settings", Path(__file__).parent.resolve() / "ivysettings.xml"]
target = ["-cache", "cache", "-retrieve", retrieve, "-types", "jar", "bundle", "tar.gz"]
subprocess.run([*java, "-jar", program, *settings, *target, "-warn"], cwd=folder, check=True)
lines = []
for path in (folder / "files").rglob("*"):
    if path.is_file():
        service, org, name, rev, file = path.relative_to(folder / "files").parts
        classifier, _, ext = file[len(f"{name}-{rev}") :].lstrip("-").partition(".")
        checksum = hashlib.sha256(path.read_bytes()).hexdigest()
        lines.append(f"{service} {org} {name} {rev} {classifier} {ext} {checksum}")
HEADER = "service org name rev classifier ext sha256"
artifacts.LOCK.write_text("\n".join([HEADER, *sorted(lines), ""]))
shutil.rmtree(folder)
print(f"{len(lines)} files locked")
