#!/usr/bin/env bash
# Step of the EMR cluster (6-emr.yaml), on its first node. It replaces the kernel "Python 3" of EMR Studio, and of runs
# without a Studio, by the node's own Python with the library, the cluster's own Spark and the published worlds. EMR's
# kernel has none of these, and no package index.
#
# EMR installs its notebook environment after the first steps, and may overwrite the kernel file. So this step waits for
# the installation, until its own content has been unchanged for some polls. Kernels run as user emr-notebook, who needs
# folders for the library, and one in HDFS for the files of a Spark session.
set -eu
. "${PROFILE:-/etc/profile.d/workbench.sh}"
python=${PYTHON:-/usr/bin/python3} poll=${POLL:-10} user=emr-notebook
end=$(($(date +%s) + ${WAIT:-1200}))

kernel=$(cat <<EOF
{
  "display_name": "Python 3",
  "language": "python",
  "argv": ["$python", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
  "env": {
    "WORKBENCH_ROOT": "$WORKBENCH_ROOT",
    "WORKBENCH_SPARK": "$WORKBENCH_SPARK",
    "SPARK_HOME": "$SPARK_HOME",
    "PYTHONPATH": "$PYTHONPATH"
  }
}
EOF
)

specs() {  # some are behind links
  sudo find -L ${KERNELS:-/emr /usr/share/jupyter /usr/local/share/jupyter} \
    -path '*/kernels/python3/kernel.json' 2>/dev/null || true
}

stood=0
while [ "$stood" -lt 4 ]; do
  if [ "$(date +%s)" -gt "$end" ]; then
    echo "this node has no kernel python3, or no user $user" >&2
    exit 1
  fi
  found=$(specs)
  if [ -z "$found" ] || ! id "$user" > /dev/null 2>&1; then
    stood=0
  else
    stood=$((stood + 1))
    for spec in $found; do
      if [ "$(sudo cat "$spec")" != "$kernel" ]; then
        printf '%s\n' "$kernel" | sudo tee "$spec" > /dev/null
        stood=1
      fi
    done
  fi
  sleep "$poll"
done

sudo install -d -o "$user" -m 700 "$WORKBENCH_ROOT/var" "$WORKBENCH_ROOT/runs"
hadoop fs -mkdir -p "/user/$user"
hadoop fs -chown "$user" "/user/$user"
"$python" -c "import ipykernel, workbench"
