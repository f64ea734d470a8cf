"""deploy/pack.py as a module."""

import importlib.util

from workbench.base import ROOT

_spec = importlib.util.spec_from_file_location("pack", ROOT / "deploy" / "pack.py")
pack = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(pack)
