"""Run a `workbench` command as a job on EMR.

`workbench ingest … --on emr-serverless` starts it, or a scheduler of your own.

Arguments: the URI of the folder that `deploy/publish.sh` uploaded to, then the arguments of
`workbench`:

    s3://<bucket>/workbench ingest cdc_events --world aws
"""

import os
import sys
import tempfile


def main(uri: str, *arguments: str) -> None:
    """Prepare library, params and data, then run a command."""
    for folder in (
        "environment",
        "/opt/workbench/environment",
    ):  # where Spark, or bootstrap.sh, unpacked the library
        if os.path.isdir(folder):
            sys.path.insert(0, os.path.abspath(folder))
    from pyarrow import fs

    root = tempfile.mkdtemp(prefix="workbench-")
    for folder in ("params", "data"):
        os.mkdir(os.path.join(root, folder))
        fs.copy_files(f"{uri}/{folder}", os.path.join(root, folder))
    # Set before the library is imported, which reads them: Spark is that of the job, and each batch
    # is a line of the log.
    os.environ.update(WORKBENCH_ROOT=root, WORKBENCH_SPARK="classic")
    os.environ.setdefault("WORKBENCH_LOG", "info")
    from workbench.cli import main as cli

    cli.main(list(arguments))


if __name__ == "__main__":
    main(*sys.argv[1:])
