"""The walkthroughs: what is particular to each."""
from . import load, load_moma

LOADERS = {"northwind": load.load_northwind, "moma": load_moma.load_moma}  # of `workbench load`
