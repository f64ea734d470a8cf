"""Run the notebooks of a track every night, in order, by papermill (schedules.md).

For Apache Airflow 2.4 and later, and 3.

Put this file into the folder of DAGs. Airflow's workers need the provider
`apache-airflow-providers-papermill`, the library's wheel with pyspark 3.5.7, and a role with the
policies of 6-emr.yaml (README.md). Environment variables are read when Airflow parses this file.
`world` and `runs` can also be set when a run is triggered manually.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
from pathlib import Path

from airflow import DAG
from airflow.providers.papermill.operators.papermill import PapermillOperator

ROOT = Path(
    os.environ["WORKBENCH_ROOT"]
)  # contains params/, notebooks/ and data/; the library reads it, too
RUNS = os.environ[
    "WORKBENCH_AIRFLOW_RUNS"
]  # folder of executed notebooks: s3://<bucket>/runs/airflow
TRACK = os.environ.get("WORKBENCH_TRACK", "10_outbox")


def log_failure(context: dict) -> None:
    """Log a failure below papermill's traceback. Add a notifier of your own here."""
    task = context["task_instance"]
    logging.error(
        "notebook %s failed; the executed copy, as far as it came: %s",
        task.task_id,
        task.task.output_nb,
    )


with DAG(
    f"workbench_{TRACK}",
    schedule="0 2 * * *",
    start_date=dt.datetime(2026, 11, 1, tzinfo=dt.timezone.utc),
    catchup=False,  # a missed night is skipped: each run starts from the beginning
    max_active_runs=1,  # two runs of one walkthrough would disturb each other
    params={"world": "aws", "runs": RUNS},
    default_args={
        "retries": 1,  # each notebook can be repeated
        "retry_delay": dt.timedelta(minutes=5),
        "execution_timeout": dt.timedelta(hours=1),
        "on_failure_callback": log_failure,
    },
):
    previous = None
    for notebook in sorted((ROOT / "notebooks" / TRACK).glob("[0-9]*.ipynb")):
        task = PapermillOperator(
            task_id=notebook.stem,
            input_nb=str(notebook),
            output_nb="{{ params.runs }}/{{ ts_nodash }}/" + f"{TRACK}/{notebook.name}",
            parameters={"world": "{{ params.world }}"},
            kernel_name="python3",
            language_name="python",
        )
        if previous is not None:
            (
                previous >> task
            )  # after a failure the rest of the track is skipped, as in `workbench run`
        previous = task
