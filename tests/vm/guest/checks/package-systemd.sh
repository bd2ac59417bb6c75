#!/usr/bin/env bash
# systemd's own tools show tasks: in lrs-tasks.scope, in lrs.slice, under readable names.
set -u
# shellcheck source=tests/vm/guest/package.sh
. "$LRS_VM_PAYLOAD/guest/package.sh"
trap clean_up EXIT

install_and_start
start_tasks 3
remember
mapfile -t task_ids < <(cut -d'"' -f4 <<<"$ids_before")

step 'systemctl status lrs-tasks.scope'
shown=$(systemctl status --no-pager --full lrs-tasks.scope) || fault "status $?"
printf '%s\n' "$shown"
for pid in "${tasks[@]}"; do
    grep -q "─$pid sleep" <<<"$shown" || fault "systemctl status does not show process $pid"
done
[ "$(systemctl show --property Slice --value lrs-tasks.scope)" = lrs.slice ] ||
    fault "the scope is not in lrs.slice"
[ "$(systemctl show --property Delegate --value lrs-tasks.scope)" = yes ] ||
    fault "the scope is not delegated"
[ "$(systemctl show --property TasksMax --value lrs-tasks.scope)" = infinity ] ||
    fault "TasksMax= of the scope is $(systemctl show --property TasksMax --value lrs-tasks.scope)"

step systemd-cgls
shown=$(systemd-cgls --no-pager --unit lrs.slice)
printf '%s\n' "$shown"
for pid in "${tasks[@]}"; do
    grep -q "─ *$pid sleep" <<<"$shown" || fault "systemd-cgls does not show process $pid"
done
for id in "${task_ids[@]}"; do
    grep -qF -- "$id" <<<"$shown" || fault "systemd-cgls does not show the id $id"
done

step systemd-cgtop
shown=$(systemd-cgtop --batch --iterations 1 --depth 5 --raw)
grep -F lrs <<<"$shown"
for id in "${task_ids[@]}"; do
    grep -qF -- "$id" <<<"$shown" || fault "systemd-cgtop does not show the id $id"
done

if [ "$LRS_VM_VARIANT" = v2 ]; then
    step 'the memory floor'
    for group in lrs.slice lrs.slice/lrsd.service; do
        floor=$(cat "/sys/fs/cgroup/$group/memory.min")
        [ "$floor" = $((64 * 1024 * 1024)) ] || fault "memory.min of $group is $floor"
    done
fi

exit "$((faults > 0))"
