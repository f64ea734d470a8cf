"""Apache Airflow (2.4 and later, 3): each night the notebooks of a track, in order, by papermill (schedules.md).

Put this file into the folder of DAGs. Airflow's workers need the provider `apache-airflow-providers-papermill`, the
library's wheel with pyspark 3.5.7, and a role with the policies of 6-emr.yaml (README.md). What is read of the
environment is read when Airflow reads this file; `world` and `runs` can also be given when a run is triggered by hand.
"""
from __future__ import annotations

import datetime as dt
import logging
import os
from pathlib import Path

from airflow import DAG
from airflow.providers.papermill.operators.papermill import PapermillOperator

ROOT = Path(os.environ["WORKBENCH_ROOT"])  # holds params/, notebooks/ and data/; the library reads it, too
RUNS = os.environ["WORKBENCH_AIRFLOW_RUNS"]  # where executed notebooks go: s3://<bucket>/runs/airflow
TRACK = os.environ.get("WORKBENCH_TRACK", "10_outbox")


def told(context: dict) -> None:
    """What a failure says in the task's log, below papermill's traceback. A notifier of yours has its place here."""
    task = context["task_instance"]
    logging.error("notebook %s failed; the executed copy, as far as it came: %s", task.task_id, task.task.output_nb)


with DAG(
    f"workbench_{TRACK}",
    schedule="0 2 * * *",
    start_date=dt.datetime(2026, 11, 1, tzinfo=dt.timezone.utc),
    catchup=False,  # a night that was missed is not made up for: each run begins anew
    max_active_runs=1,  # two runs of one walkthrough would disturb each other
    params={"world": "aws", "runs": RUNS},
    default_args={
        "retries": 1,  # each notebook can be run twice
        "retry_delay": dt.timedelta(minutes=5),
        "execution_timeout": dt.timedelta(hours=1),
        "on_failure_callback": told,
    },
):
    before = None
    for notebook in sorted((ROOT / "notebooks" / TRACK).glob("[0-9]*.ipynb")):
        task = PapermillOperator(
            task_id=notebook.stem,
            input_nb=str(notebook),
            output_nb="{{ params.runs }}/{{ ts_nodash }}/" + f"{TRACK}/{notebook.name}",
            parameters={"world": "{{ params.world }}"},
            kernel_name="python3",
            language_name="python",
        )
        if before is not None:
            before >> task  # what fails leaves the rest of the track out, as in `workbench run`
        before = task
