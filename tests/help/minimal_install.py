"""Import the library as if only its base dependencies, those of pyproject.toml, were installed."""

import importlib.metadata
import re

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from workbench.base.paths import ROOT


def listed(block):
    """Return the requirements of a list in pyproject.toml; Python 3.10 has no TOML parser."""
    text = re.search(rf"^{block} = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.M | re.S)[
        1
    ]
    return [Requirement(one) for one in re.findall(r'"([^"]+)"', text)]


# distributions that only the embedded stack needs, by the names of their dist-info folders
EMBEDDED_PACKAGES = {one.name.replace("-", "_") for one in listed("embedded")} - {"pyspark"}


def base_distributions():
    """Return the names of the base dependencies and of all that they require, and of pyspark, which EMR provides."""
    distributions = set()
    pending = [*listed("dependencies"), Requirement("pyspark")]
    while pending:
        requirement = pending.pop()
        name = canonicalize_name(requirement.name)
        try:
            required = map(Requirement, importlib.metadata.requires(name) or [])
        except importlib.metadata.PackageNotFoundError:  # not for this platform or Python
            continue
        if name not in distributions:
            distributions.add(name)
            extras = [{"extra": extra} for extra in ("", *requirement.extras)]
            pending += [
                one for one in required if not one.marker or any(map(one.marker.evaluate, extras))
            ]
    return distributions


def refused_modules():
    """Return the installed top-level modules of all other distributions."""
    base = base_distributions()
    return {
        module
        for module, names in importlib.metadata.packages_distributions().items()
        if not base & set(map(canonicalize_name, names)) and module != "workbench"
    }


IMPORT_SCRIPT = """
import importlib, pkgutil, sys
class Refused:
    def find_spec(self, name, *_):
        if name.split(".")[0] in {refused!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Refused())
import workbench
failed = []
for module in pkgutil.walk_packages(workbench.__path__, "workbench.", onerror=lambda name: None):
    try:
        importlib.import_module(module.name)
    except Exception as e:
        failed.append(f"{{module.name}}: {{e}}")
print("\\n".join(failed))
"""
