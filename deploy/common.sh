# shellcheck shell=bash disable=SC2034 # variables of the three scripts
# What up.sh, publish.sh and down.sh share: their options, and questions to CloudFormation.
shopt -s inherit_errexit || exit # bash 4.4; the scripts also need GNU coreutils (on macOS: brew install bash coreutils)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
export AWS_PAGER=""
poll_seconds=${POLL_SECONDS:-10}

say() { printf '%s\n' "$@"; }

die() {
  say "$@" >&2
  exit 1
}

# Run a command that changes something; with --dry-run only show it.
change() {
  if [ "$dry_run" ]; then say "+ $*"; else "$@"; fi
}

world=aws yes='' dry_run='' take_ownership='' workspaces_deleted='' stacks=() parameters=()
while [ $# -gt 0 ]; do
  case $1 in
    --world) world=$2 && shift ;;
    -p | --parameter) [[ $2 == *=* ]] || die "-p $2 has no value: -p NAME=VALUE" && parameters+=("$2") && shift ;;
    --yes) yes=1 ;;
    --dry-run) dry_run=1 ;;
    --take-ownership) take_ownership=1 ;;
    --workspaces-deleted) workspaces_deleted=1 ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" && exit ;;
    -*) die "there is no option $1; $0 --help lists them" ;;
    *) stacks+=("$1") ;;
  esac
  shift
done

# A setting of the params file.
setting() { sed -n "s/^ *$1: *\([^ #]*\).*/\1/p" "$root/params/$world.yaml"; }

[ -f "$root/params/$world.yaml" ] || die "there is no params/$world.yaml"
deployment=$(setting deployment)
AWS_REGION=$(setting region)
AWS_DEFAULT_REGION=$AWS_REGION
export AWS_REGION AWS_DEFAULT_REGION
if [ -z "$deployment" ] || [ -z "$AWS_REGION" ]; then
  die "params/$world.yaml has no deployment on AWS: it needs stack.deployment and region"
fi

# The names of the templates, in the order of their creation.
names() {
  local file
  for file in "$here"/[0-9]-*.yaml; do
    file=${file##*/?-}
    say "${file%.yaml}"
  done
}

# The value of an SSM parameter of the deployment.
parameter() { aws ssm get-parameter --name "/$deployment/$1" --query Parameter.Value --output text; }

# One line for each stack of the account: name, status, deployment, owner.
read_stacks() {
  aws cloudformation describe-stacks --output text --query "Stacks[].[StackName, StackStatus,
    Tags[?Key=='workbench:deployment'].Value | [0], Tags[?Key=='workbench:owner'].Value | [0]]"
}

# A field of a template's stack in the lines of read_stacks; nothing if there is no such stack.
field() {
  awk -F '\t' -v name="$deployment-$1" -v number="$2" '$1 == name { print $number }' <<< "$existing"
}

# An identity without the name of its session, which AWS's tools make anew for each login.
without_session() { sed -E 's#(:assumed-role/[^/]+)/.*#\1#' <<< "$1"; }

# Stop unless all existing stacks of this deployment are those of the caller. Sets owner and existing.
check_owner() {
  local name of by caller
  caller=$(aws sts get-caller-identity --query Arn --output text)
  owner=$(without_session "$caller")
  existing=$(read_stacks)
  for name in $(names); do
    of=$(field "$name" 3) by=$(without_session "$(field "$name" 4)")
    if [ -z "$(field "$name" 2)" ]; then continue; fi
    if [ "$of" != "$deployment" ] || { [ "$by" != "$owner" ] && [ -z "$take_ownership" ]; }; then
      die "stack $deployment-$name is not yours; nothing was changed" "made by $by; you are $owner" \
        "Choose another stack.deployment in a params file of your own; if it is yours: --take-ownership"
    fi
  done
}

# The first failure of a stack's last attempt: later ones are only cancellations.
failure() {
  aws cloudformation describe-stack-events --stack-name "$1" --output text \
    --query 'StackEvents[].[LogicalResourceId, ResourceStatus, ResourceStatusReason]' |
    awk -F '\t' -v stack="$1" '
      over { next }
      $1 == stack && $2 ~ /^(CREATE|UPDATE|DELETE)_IN_PROGRESS$/ { over = 1 }
      $2 ~ /_FAILED$/ { first = $1 ": " $3 }
      END { print first }'
}

confirm() {
  if [ "$yes" ] || [ "$dry_run" ]; then return; fi
  read -r -p "$1 [y/N] " answer || answer='' # no terminal: --yes
  [ "$answer" = y ] || die "nothing was changed; --yes answers the question"
}
