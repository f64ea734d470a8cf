#!/usr/bin/env bash
# Bootstrap action of the EMR cluster (6-emr.yaml), on each of its nodes. Argument: the bucket of the deployment.
# What `workbench aws publish` has put there goes to /opt/workbench: the library with its packages, worlds, notebooks and
# data, Spark's jars. Nothing comes from elsewhere: the node's subnet has no way out.
set -eu
bucket=$1
sudo mkdir -p /opt/workbench/environment
sudo chown -R "$(id -un)" /opt/workbench
aws s3 sync --only-show-errors "s3://$bucket/workbench/" /opt/workbench/ --exclude "notebooks-pyspark/*" --exclude "studio/*"
tar -xzf /opt/workbench/environment.tar.gz -C /opt/workbench/environment
# who types on the node has the library, the cluster's own Spark, and the worlds that were published
sudo tee /etc/profile.d/workbench.sh > /dev/null <<'EOF'
export WORKBENCH_ROOT=/opt/workbench
export WORKBENCH_SPARK=classic
export SPARK_HOME=/usr/lib/spark
export PYTHONPATH=/opt/workbench/environment:/usr/lib/spark/python:$(ls /usr/lib/spark/python/lib/py4j-*-src.zip 2>/dev/null | head -1)
EOF
