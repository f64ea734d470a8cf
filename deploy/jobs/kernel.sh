#!/usr/bin/env bash
# Step of the EMR cluster (6-emr.yaml), on its first node, once EMR has installed what notebooks run in: the kernel
# "Python 3" of EMR Studio, and of runs without anybody's Studio, is the node's own Python from now on, with the library,
# the cluster's own Spark and the worlds that were published. EMR's own one has none of these, and no index to get them.
set -eu
. /etc/profile.d/workbench.sh
specs=$(sudo find /emr /usr/share/jupyter /usr/local/share/jupyter -path '*/kernels/python3/kernel.json' 2>/dev/null || true)
[ -n "$specs" ] || { echo "there is no kernel python3 on this node" >&2; exit 1; }
for spec in $specs; do
  sudo tee "$spec" > /dev/null <<EOF
{
  "display_name": "Python 3",
  "language": "python",
  "argv": ["/usr/bin/python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
  "env": {
    "WORKBENCH_ROOT": "$WORKBENCH_ROOT",
    "WORKBENCH_SPARK": "$WORKBENCH_SPARK",
    "SPARK_HOME": "$SPARK_HOME",
    "PYTHONPATH": "$PYTHONPATH"
  }
}
EOF
done
/usr/bin/python3 -c "import ipykernel, workbench"
