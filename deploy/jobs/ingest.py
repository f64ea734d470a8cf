"""What a job on EMR begins with (`workbench ingest … --on emr-serverless` or `emr-step`, or a scheduler of your own).

Arguments: the address below which `workbench aws publish` has put everything, then what `workbench` is given:

    s3://<bucket>/workbench ingest cdc_events --world aws
"""
import os
import sys
import tempfile


def main(address: str, *arguments: str) -> None:
    for folder in ("environment", "/opt/workbench/environment"):  # where Spark, or bootstrap.sh, unpacked the library
        if os.path.isdir(folder):
            sys.path.insert(0, os.path.abspath(folder))
    from pyarrow import fs

    root = tempfile.mkdtemp(prefix="workbench-")
    for folder in ("params", "data"):
        os.mkdir(os.path.join(root, folder))
        fs.copy_files(f"{address}/{folder}", os.path.join(root, folder))
    # Before the import of the library, which reads these variables: it uses the job's Spark, and logs a line per batch.
    os.environ.update(WORKBENCH_ROOT=root, WORKBENCH_SPARK="classic")
    os.environ.setdefault("WORKBENCH_LOG", "info")
    from workbench import cli

    cli.main(list(arguments))


if __name__ == "__main__":
    main(*sys.argv[1:])
