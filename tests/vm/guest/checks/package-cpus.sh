#!/usr/bin/env bash
# Which CPUs count, by systemd's own properties: AllowedCPUs= of lrs.slice and not of lrsd.slice (v2),
# CPUQuota= of lrs.slice, and a CPU that goes and comes back. Doctor agrees with the daemon each time.
# shellcheck disable=SC2317 # conditions are called by name
set -u
# shellcheck source=tests/vm/guest/package.sh
. "$LRS_VM_PAYLOAD/guest/package.sh"

cpu1=/sys/devices/system/cpu/cpu1/online
restore() {
    local status=$?
    [ ! -e "$cpu1" ] || echo 1 >"$cpu1"
    rm -rf /run/systemd/system.control/lrs{,d}.slice.d
    systemctl daemon-reload
    return "$status"
}
trap 'restore; clean_up' EXIT

[ "$(nproc)" = 2 ] || give_up "this check is for two CPUs, not $(nproc)"
install_and_start

in_a_line() { lrsctl status | tr -s ' \n' ' '; }
capacity() { in_a_line | sed -n 's/.* active [0-9]* of \([0-9]*\), passive.*/\1/p'; }
used() { in_a_line | sed -n 's/.* active \([0-9]*\) of [0-9]*, passive \([0-9]*\) of.*/\1 + \2/p'; }
sampled() { lrsctl status --json | grep -o '"sampled_at": *"[^"]*"'; }
is_capacity() { [ "$(capacity)" = "$1" ]; }
agrees() { lrsctl doctor --json | grep -q "so $1 active slots"; }
both() { # what was done, slots
    eventually "$1: $2 active slots" is_capacity "$2"
    eventually "$1: doctor says $2 active slots" agrees "$2"
}
property() { systemctl set-property --runtime "$@" || fault "set-property $*: status $?"; }
cycles() { # lets so many more readings come
    local n last now
    last=$(sampled)
    for ((n = 0; n < $1; n++)); do
        eventually "one more cycle" another_cycle
        last=$now
    done
}
another_cycle() { now=$(sampled) && [ "$now" != "$last" ]; }
last_event() {
    lrsctl events --since 1 --no-follow --json | tail -n 1 | sed 's/.*"seq": *"*\([0-9]*\).*/\1/'
}
none_opened_since() { # event
    local opened
    opened=$(lrsctl events --since "$(($1 + 1))" --no-follow --json | grep -c '"type": *"expanded"')
    [ "$opened" = 0 ] || fault "$2: $opened times slots were opened"
}

both "at the start" 2
if [ "$LRS_VM_VARIANT" = v2 ]; then
    step 'AllowedCPUs= of the slice of the tasks, and of that of lrsd'
    property lrsd.slice AllowedCPUs=0
    cycles 2
    both "lrsd.slice on one CPU" 2
    property lrs.slice AllowedCPUs=0
    both "lrs.slice on one CPU" 1
    property lrs.slice AllowedCPUs=0-1
    property lrsd.slice AllowedCPUs=0-1
    both "all CPUs again" 2
fi

step 'hogs in every slot, and more that wait'
for _ in {1..8}; do
    lrsctl run --wait -- sh -c 'while :; do :; done' &
    tasks+=("$!")
done
all_used() { [ "$(($(used)))" -ge 4 ]; }
eventually "four slots are used" all_used
cycles 2

step 'CPUQuota='
before=$(last_event)
property lrs.slice CPUQuota=100%
both "a quota of one CPU" 1
cycles 2
none_opened_since "$before" "under a quota"
lrsctl status
in_a_line | grep -q '1.00 CPUs that a quota above the tasks allows' ||
    fault "status does not name the quota"
property lrs.slice CPUQuota=
both "no quota" 2
cycles 2

if [ -w "$cpu1" ]; then
    step 'cpu1 goes and comes back'
    echo 0 >"$cpu1" || fault "cpu1 stays online"
    both "cpu1 offline" 1
    before=$(last_event)
    echo 1 >"$cpu1"
    both "cpu1 online" 2
    none_opened_since "$before" "cpu1 came back"
fi
exit "$((faults > 0))"
