"""Strip the outputs of notebooks before a commit, and set the count of kept outputs to 1.

nbstripout keeps all counts or none. nbval treats a cell with an output but no count as not run.
"""

import subprocess
import sys

import nbformat

subprocess.run([sys.executable, "-m", "nbstripout", "--keep-id", *sys.argv[1:]], check=True)
for path in sys.argv[1:]:
    book = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    kept = [c for c in book.cells if c.cell_type == "code" and c.outputs]
    for cell in kept:
        cell.execution_count = 1
    if kept:
        nbformat.write(book, path)
