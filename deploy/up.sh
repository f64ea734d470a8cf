#!/usr/bin/env bash
# Create or update the stacks of a deployment in their order; a stack without changes is left as it is.
#
#   deploy/up.sh [STACK…] [-p NAME=VALUE]… [--world NAME] [--yes] [--dry-run] [--take-ownership]
#
# STACK is the name of a template, such as network; all by default. -p sets a parameter of a template; others keep
# their values. --world names the params file with the region and the name of the deployment (aws by default).
# --dry-run asks AWS, and only shows the commands that change something. After a failure repeat the command.
set -euo pipefail
# shellcheck source=deploy/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# ---- everything that can be checked is checked before the first change
[ ${#stacks[@]} -gt 0 ] || mapfile -t stacks < <(names)
for name in "${stacks[@]}"; do
  names | grep -x -- "$name" > /dev/null || die "there is no template $name; there are: $(names | xargs)"
done
for pair in ${parameters[@]+"${parameters[@]}"}; do
  awk '/^[A-Z]/ { inside = /^Parameters:/ } inside && /^  [A-Z]/ { sub(":.*", ""); print $1 }' "$here"/[0-9]-*.yaml |
    grep -x -- "${pair%%=*}" > /dev/null || die "no template has a parameter ${pair%%=*}"
done
# Whether a stack is among those to create or update.
wanted() { say "${stacks[@]}" | grep -x -- "$1" > /dev/null; }

check_owner
case $owner in
  *:root) die "this is the account's root user, whom EMR Studio refuses: use a role or an IAM user" ;;
esac
plan=$(aws freetier get-account-plan-state --region us-east-1 --query accountPlanType --output text 2> /dev/null) || plan=unknown
if [ "$plan" = FREE ]; then
  say "warning: the account has a free plan, which excludes some services; upgrade it if a stack fails for that reason"
fi
if wanted emr && [ -z "$(field emr 2)" ]; then
  quota=$(aws service-quotas get-service-quota --service-code ec2 --quota-code L-1216C47A --query Quota.Value --output text) ||
    quota=unknown
  if [ "$quota" = unknown ]; then
    say "warning: the quota of EC2 could not be read; 14 vCPUs are needed"
  elif [ "${quota%.*}" -lt 14 ]; then
    die "the account may run $quota vCPUs, 14 are needed: request more of quota L-1216C47A (a new account waits for days)"
  fi
fi
# Stop if a zone of the subnets lacks brokers or nodes. Arguments: the parameter, its default.
check_zone() {
  local number=$2 pair zone id offered
  for pair in ${parameters[@]+"${parameters[@]}"}; do
    if [ "${pair%%=*}" = "$1" ]; then number=${pair#*=}; fi
  done
  read -r zone id < <(aws ec2 describe-availability-zones --query "AvailabilityZones[$number].[ZoneName, ZoneId]" --output text)
  offered=$(aws ec2 describe-instance-type-offerings --location-type availability-zone --output text --query \
    InstanceTypeOfferings[].Location --filters Name=instance-type,Values=m5.xlarge "Name=location,Values=$zone")
  if [ -z "$offered" ] || [ "$id" = use1-az3 ]; then
    die "zone $zone ($id) lacks MSK or m5.xlarge: choose others by -p ZoneA=… -p ZoneB=…, counted from 0"
  fi
}
if wanted network && [ -z "$(field network 2)" ]; then
  check_zone ZoneA 0
  check_zone ZoneB 1
fi
confirm "Create or update ${stacks[*]} of deployment $deployment in $AWS_REGION? It costs money from then on (deploy/README.md, \"Costs\")."

# ---- the stacks
# Bring a stack into a state from which it can be created or updated.
make_deployable() {
  local stack=$deployment-$1
  while [[ $(field "$1" 2) == *_IN_PROGRESS && $(field "$1" 2) != REVIEW_IN_PROGRESS ]]; do
    say "$stack: waiting for the end of $(field "$1" 2)"
    sleep "$poll_seconds"
    existing=$(read_stacks)
  done
  case $(field "$1" 2) in
    ROLLBACK_COMPLETE | ROLLBACK_FAILED | DELETE_FAILED | REVIEW_IN_PROGRESS)
      change aws cloudformation delete-stack --stack-name "$stack"
      change aws cloudformation wait stack-delete-complete --stack-name "$stack"
      ;;
    UPDATE_ROLLBACK_FAILED)
      change aws cloudformation continue-update-rollback --stack-name "$stack"
      change aws cloudformation wait stack-rollback-complete --stack-name "$stack"
      ;;
  esac
}

# MSK Connect's own role, one for each account. Notebooks, which create the first connector, may not create roles.
create_connect_role() {
  error=$(aws iam get-role --role-name AWSServiceRoleForKafkaConnect 2>&1 > /dev/null) && return
  [[ $error == *NoSuchEntity* ]] || die "$error"
  change aws iam create-service-linked-role --aws-service-name kafkaconnect.amazonaws.com --query Role.RoleName --output text
}

# Store the brokers' addresses, which CloudFormation does not know, among the deployment's parameters.
store_brokers() {
  local brokers='<the brokers>' name=/$deployment/kafka/bootstrap
  if [ -z "$dry_run" ]; then
    brokers=$(aws kafka get-bootstrap-brokers --cluster-arn "$(parameter kafka/cluster)" \
      --query BootstrapBrokerStringSaslIam --output text)
  fi
  change aws ssm put-parameter --name "$name" --value "$brokers" --type String --overwrite --query Version --output text
  change aws ssm add-tags-to-resource --resource-type Parameter --resource-id "$name" \
    --tags "Key=workbench:deployment,Value=$deployment"
}

for name in $(names); do
  if ! wanted "$name"; then continue; fi
  if [ "$name" = connect ]; then create_connect_role; fi
  make_deployable "$name"
  change aws cloudformation deploy --stack-name "$deployment-$name" --template-file "$here"/[0-9]-"$name".yaml \
    --capabilities CAPABILITY_NAMED_IAM --no-fail-on-empty-changeset \
    --parameter-overrides "Deployment=$deployment" ${parameters[@]+"${parameters[@]}"} \
    --tags "workbench:deployment=$deployment" "workbench:owner=$owner" ||
    die "$deployment-$name failed: $(failure "$deployment-$name")" "correct the cause, then repeat the command"
  case $name in
    lake) change "$here/publish.sh" --world "$world" ;;
    msk) store_brokers ;;
  esac
done
say "deployment $deployment is as the templates say; deploy/down.sh --world $world ends it"
