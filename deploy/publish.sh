#!/usr/bin/env bash
# Upload library, params, notebooks, data, jars and connector plugins of this checkout to the bucket of a deployment.
#
#   deploy/publish.sh [--world NAME] [--dry-run]
#
# A file is uploaded if its size differs or its time is later (`aws s3 sync`). What analysts keep in their workspaces (studio/) is not touched.
set -euo pipefail
# shellcheck source=deploy/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

check_owner
bucket=$(parameter lake/bucket)
"${PYTHON:-$root/.venv/bin/python}" "$here/pack.py" "$root/dist/aws"
change aws s3 sync "$root/dist/aws/workbench" "s3://$bucket/workbench" --delete --no-progress
change aws s3 sync "$root/dist/aws/plugins" "s3://$bucket/plugins" --no-progress
