#!/usr/bin/env bash
# Bootstrap action of the EMR cluster (6-emr.yaml), on each of its nodes. Argument: the bucket of the deployment.
# Copies the files of `deploy/publish.sh` to /opt/workbench: the library with its packages, params, notebooks and
# data, Spark's jars. Nothing is downloaded from elsewhere: the node's subnet has no internet access.
set -eu
bucket=$1
sudo mkdir -p /opt/workbench/environment
sudo chown -R "$(id -un)" /opt/workbench
aws s3 sync --only-show-errors "s3://$bucket/workbench/" /opt/workbench/
tar -xzf /opt/workbench/environment.tar.gz -C /opt/workbench/environment
# A login shell on the node finds the library, the cluster's own Spark, and the published worlds.
sudo tee /etc/profile.d/workbench.sh > /dev/null <<'EOF'
export WORKBENCH_ROOT=/opt/workbench
export WORKBENCH_SPARK=classic
export SPARK_HOME=/usr/lib/spark
export PYTHONPATH=/opt/workbench/environment:/usr/lib/spark/python:$(ls /usr/lib/spark/python/lib/py4j-*-src.zip 2>/dev/null | head -1)
EOF
