#!/usr/bin/env bash
# Bootstrap action of the EMR cluster (6-emr.yaml), on each of its nodes. Argument: the bucket of the deployment.
# What `workbench aws publish` has put there goes to /opt/workbench: the library into the cluster's Python, worlds,
# notebooks and data beside it, Spark's jars where every Spark of the cluster finds them.
set -eu
bucket=$1
sudo mkdir -p /opt/workbench/jars
sudo chown -R "$(id -un)" /opt/workbench
aws s3 sync --only-show-errors "s3://$bucket/workbench/" /opt/workbench/ --exclude "notebooks-pyspark/*"
sudo python3 -m pip install --quiet /opt/workbench/lakehouse_workbench-*.whl
# a kernel, and who types on the node, runs with the cluster's own Spark and the worlds that were published
sudo tee /etc/profile.d/workbench.sh > /dev/null <<'EOF'
export WORKBENCH_ROOT=/opt/workbench
export WORKBENCH_SPARK=classic
export SPARK_HOME=/usr/lib/spark
export PYTHONPATH=/usr/lib/spark/python:$(ls /usr/lib/spark/python/lib/py4j-*-src.zip 2>/dev/null | head -1)
EOF
sudo tee -a /etc/environment > /dev/null <<'EOF'
WORKBENCH_ROOT=/opt/workbench
WORKBENCH_SPARK=classic
SPARK_HOME=/usr/lib/spark
EOF
