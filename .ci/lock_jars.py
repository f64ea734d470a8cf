"""Resolve params/jars.ivy.xml transitively and write params/jars.lock (`make lock`)."""

import hashlib
import re
import shutil

from workbench.stack import artifacts

text = (artifacts.ROOT / "params" / "jars.ivy.xml").read_text(encoding="utf-8")
text = re.sub(r"\$\{(\w+)\}", lambda m: str(artifacts.versions()[m.group(1)]), text)
folder = artifacts.CACHE / "lock"
shutil.rmtree(folder, ignore_errors=True)
retrieve = (
    "files/[conf]/[organisation]/[artifact]/[revision]/[artifact]-[revision](-[classifier]).[ext]"
)
# also what the files depend on, each checked by the repository's own sum
artifacts.run_ivy(text, folder, retrieve, "-Dpoms=true", "-Dchecksums=sha1")
lines = []
for path in (folder / "files").rglob("*"):
    if path.is_file():
        service, org, name, rev, file = path.relative_to(folder / "files").parts
        classifier, _, ext = file[len(f"{name}-{rev}") :].lstrip("-").partition(".")
        checksum = hashlib.sha256(path.read_bytes()).hexdigest()
        lines.append(f"{service} {org} {name} {rev} {classifier} {ext} {checksum}")
HEADER = "service org name rev classifier ext sha256"
artifacts.LOCK.write_text("\n".join([HEADER, *sorted(lines), ""]))
shutil.rmtree(artifacts.CACHE)
print(f"{len(lines)} files locked")
