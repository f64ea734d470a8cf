#!/usr/bin/env bash
# Remove a deployment with its lake and its databases, and prove that nothing is left.
#
#   deploy/down.sh [--world NAME] [--workspaces-deleted] [--yes] [--dry-run] [--take-ownership]
#
# Ends connectors, notebooks, sessions and jobs, then removes the stacks in reverse order. An interrupted run is continued
# by the next one. Nothing is forced: what does not end is named. --workspaces-deleted confirms that the workspaces of EMR
# Studio were deleted there: no command of AWS lists them, and they would block the network.
set -euo pipefail
# shellcheck source=deploy/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# Wait until a command lists nothing. Arguments: what it lists, the command.
wait_until_none() {
  local what=$1 left='' attempt
  shift
  if [ "$dry_run" ]; then return; fi
  for ((attempt = 0; attempt < ${ATTEMPTS:-90}; attempt++)); do
    left=$("$@")
    if [ -z "$left" ]; then return; fi
    sleep "$poll_seconds"
  done
  die "still there: $what" "$left" "remove them, or repeat the command later"
}

# The buckets of the lake's stack that exist.
buckets() {
  local listed bucket error
  if [ -z "$(field lake 2)" ]; then return; fi
  listed=$(aws cloudformation list-stack-resources --stack-name "$deployment-lake" --output text --query \
    "StackResourceSummaries[?ResourceType=='AWS::S3::Bucket'].PhysicalResourceId")
  for bucket in $listed; do
    error=$(aws s3api head-bucket --bucket "$bucket" 2>&1 > /dev/null) || { [[ $error == *404* ]] || die "$error"; continue; }
    say "$bucket"
  done
}

# ---- nothing is changed before these checks
# A list is assigned first: bash ignores the failure of a command within the words of `for`.
check_owner
lake=$(buckets)
for bucket in $lake; do
  workspaces=$(aws s3api list-objects-v2 --bucket "$bucket" --prefix studio/ --delimiter / \
    --query 'CommonPrefixes[].[Prefix]' --output text)
  if [ "$workspaces" != None ] && [ "$workspaces" ] && [ -z "$workspaces_deleted" ]; then
    die "EMR Studio has, or had, workspaces:" "$workspaces" \
      "Save their notebooks, stop and delete them in EMR Studio, then repeat the command with --workspaces-deleted"
  fi
done
# shellcheck disable=SC2016 # the text of the params file
grep -q 'host: ${ssm:postgres/host}' "$root/params/$world.yaml" ||
  say "The source database is not of this deployment, and its replication slots retain its log: first run" \
    "  workbench run 99_teardown --world $world --on emr-notebook"
say "Flows of your own keep their slots on their servers: first run workbench forget FLOW --world $world"
confirm "Remove deployment $deployment in $AWS_REGION with its lake and its databases?"

# ---- what runs
# The deployment's connectors, by their tag: workbench-b-x has the prefix, but belongs to deployment workbench-b.
connectors() {
  listed=$(aws kafkaconnect list-connectors --connector-name-prefix "$deployment-" --query "connectors$1.connectorArn" --output text)
  for arn in $listed; do
    of=$(aws kafkaconnect list-tags-for-resource --resource-arn "$arn" --query 'tags."workbench:deployment"' --output text 2> "$errors") ||
      grep -q NotFoundException "$errors" || die "$(< "$errors")" # one that has ended meanwhile has no tags
    if [ "$of" = "$deployment" ]; then say "$arn"; fi
  done
}
errors=$(mktemp) && trap 'rm -f "$errors"' EXIT
running=$(connectors "[?connectorState!='DELETING']")
for arn in $running; do
  change aws kafkaconnect delete-connector --connector-arn "$arn" --query connectorState --output text
done

cluster=$(parameter emr/cluster 2> /dev/null) || cluster=''
if [ "$cluster" ]; then
  for execution in $(aws emr list-notebook-executions --execution-engine-id "$cluster" --output text --query \
    "NotebookExecutions[?Status=='START_PENDING' || Status=='STARTING' || Status=='RUNNING'].NotebookExecutionId"); do
    change aws emr stop-notebook-execution --notebook-execution-id "$execution"
  done
fi

# Arguments: states. The applications of EMR Serverless in them.
applications() {
  aws emr-serverless list-applications --states "$@" --query "applications[?name=='$deployment'].id" --output text
}
# Arguments: application, further states. Sessions and jobs that have not ended.
sessions() {
  aws emr-serverless list-sessions --application-id "$1" --states SUBMITTED STARTING STARTED IDLE BUSY "${@:2}" \
    --query 'sessions[].sessionId' --output text
}
jobs_of() {
  aws emr-serverless list-job-runs --application-id "$1" --states SUBMITTED PENDING SCHEDULED QUEUED RUNNING "${@:2}" \
    --query 'jobRuns[].id' --output text
}
for application in $(applications STARTING STARTED STOPPING); do
  for session in $(sessions "$application"); do
    change aws emr-serverless terminate-session --application-id "$application" --session-id "$session"
  done
  for job in $(jobs_of "$application"); do
    change aws emr-serverless cancel-job-run --application-id "$application" --job-run-id "$job"
  done
  wait_until_none "sessions of Spark" sessions "$application" TERMINATING
  wait_until_none "jobs of Spark" jobs_of "$application" CANCELLING
  change aws emr-serverless stop-application --application-id "$application"
done
wait_until_none "running applications of EMR Serverless" applications STARTING STARTED STOPPING
wait_until_none "connectors" connectors '[]'

# ---- the stacks
# The interfaces that services have put into the network; those of its own stack go with it.
interfaces() {
  groups=$(aws cloudformation describe-stacks --stack-name "$deployment-network" --output text --query \
    "Stacks[0].Outputs[?ends_with(OutputKey, 'Group') && OutputKey!='BastionGroup'].[OutputValue]")
  if [ -z "$groups" ] || [ "$groups" = None ]; then return; fi
  aws ec2 describe-network-interfaces --filters "Name=group-id,Values=${groups//$'\n'/,}" \
    --query 'NetworkInterfaces[].[NetworkInterfaceId, Description]' --output text
}
for name in $(names | tac); do
  if [ -z "$(field "$name" 2)" ]; then continue; fi
  case $name in
    lake) for bucket in $lake; do change aws s3 rm --recursive --only-show-errors "s3://$bucket"; done ;;
    network) wait_until_none "network interfaces" interfaces ;;
  esac
  change aws cloudformation delete-stack --stack-name "$deployment-$name"
  change aws cloudformation wait stack-delete-complete --stack-name "$deployment-$name" ||
    die "$deployment-$name was not removed: $(failure "$deployment-$name")" "remove the cause, then repeat the command"
  if [ -z "$dry_run" ]; then say "$deployment-$name is removed"; fi
done
if parameter kafka/bootstrap > /dev/null 2>&1; then change aws ssm delete-parameter --name "/$deployment/kafka/bootstrap"; fi
if [ "$dry_run" ]; then exit; fi

# ---- the proof
# What is left: by its tag, except of kinds that AWS lists for another hour after their end; those by their state; and what
# has no tag, by its name.
remaining() {
  local tagged tag="Name=tag:workbench:deployment,Values=$deployment"
  tagged=$(aws resourcegroupstaggingapi get-resources --tag-filters "Key=workbench:deployment,Values=$deployment" \
    --query 'ResourceTagMappingList[].[ResourceARN]' --output text)
  grep -vE '^$|:ec2:.*:(instance|natgateway)/|:elasticmapreduce:.*:cluster/' <<< "$tagged" || true
  aws ec2 describe-instances --filters "$tag" Name=instance-state-name,Values=pending,running,shutting-down,stopping,stopped \
    --query 'Reservations[].Instances[].[InstanceId]' --output text
  aws ec2 describe-nat-gateways --filter "$tag" Name=state,Values=pending,failed,available,deleting \
    --query 'NatGateways[].[NatGatewayId]' --output text
  aws emr list-clusters --active --query "Clusters[?Name=='$deployment'].[Id]" --output text
  aws logs describe-log-groups --log-group-name-prefix "/$deployment/" --query 'logGroups[].[logGroupName]' --output text
  aws secretsmanager list-secrets --filters "Key=name,Values=$deployment/" --query 'SecretList[].[Name]' --output text
  aws rds describe-db-cluster-snapshots --query "DBClusterSnapshots[?DBClusterIdentifier=='$deployment-postgres' ||
    DBClusterIdentifier=='$deployment-mysql'].[DBClusterSnapshotIdentifier]" --output text
}
wait_until_none "resources of deployment $deployment" remaining
say "nothing is left of deployment $deployment in $AWS_REGION"
