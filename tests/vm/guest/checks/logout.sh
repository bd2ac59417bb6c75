#!/usr/bin/env bash
# Who outlives the login that asked (docs/operations.md, Logout), with KillUserProcesses=no and yes: its
# task, and of its waiters all or those that are parked. Those go back below their user's slice.
# Conditions are named functions, called through eventually.
# shellcheck disable=SC2317
set -u
root=lrs-check-logout
slots='slots.active = 1
slots.passive = 0'
# shellcheck source=tests/vm/guest/private.sh
. "$LRS_VM_PAYLOAD/guest/private.sh"
conf=/etc/systemd/logind.conf.d/lrs-check.conf
cleanup() {
    end_private
    pkill -KILL -u lodger
    # The last lrsd left a task, and so its group and the root.
    eventually "the groups are empty" no_groups
    systemctl stop keep-login.service "user@$uid.service" 2>/dev/null
    userdel --remove lodger 2>/dev/null
    rm -f "$conf"
    systemctl restart systemd-logind
}
no_groups() {
    find /sys/fs/cgroup -depth -type d -path "*/$root*" -exec rmdir {} \;
    [ -z "$(find /sys/fs/cgroup -type d -name "$root")" ]
}
trap cleanup EXIT

groupadd --force lrs
useradd --create-home --groups lrs lodger
uid=$(id -u lodger)
parked=9 # the active slot and eight more
waiters=12

waiting() { lrsctl queue --json | grep -o '"name": *"waiter-' | wc -l; }
are_waiting() { [ "$(waiting)" = "$1" ]; }
runs() { lrsctl tasks --json | grep -q '"name": *"runner"'; }
logged_out() { ! systemctl is-active --quiet keep-login.service; }
no_session() { ! loginctl list-sessions --no-legend | grep -q lodger; }
of_user() { pgrep -u lodger -x lrsctl; }
# All that wait are below the user's slice again.
are_back() {
    local pid
    for pid in $(of_user); do
        grep -q "^[0-9]*:\(name=systemd\)\?:/user\.slice/user-$uid\.slice/" "/proc/$pid/cgroup" || return 1
    done
}

cat >"$dir/login" <<SH
#!/bin/sh
"$bin/lrsctl" run --name runner -- sleep infinity &
until "$bin/lrsctl" tasks | grep -q runner; do sleep 0.1; done
for number in \$(seq $waiters); do
    "$bin/lrsctl" run --wait --name "waiter-\$number" -- sleep infinity 2>/dev/null &
done
until [ -e "$dir/logout" ]; do sleep 0.1; done
SH
chmod 755 "$dir/login"

for value in no yes; do
    step "KillUserProcesses=$value"
    mkdir -p "${conf%/*}"
    printf '[Login]\nKillUserProcesses=%s\n' "$value" >"$conf"
    systemctl restart systemd-logind
    start_daemon env
    rm -f "$dir/logout"
    systemd-run --quiet --collect --unit=keep-login -E LRS_ENDPOINT="$LRS_ENDPOINT" \
        -p PAMName=login -p User=lodger "$dir/login"
    eventually "all wait" are_waiting "$waiters"
    touch "$dir/logout"
    eventually "the login has ended" logged_out
    if [ "$value" = yes ]; then
        eventually "its session is gone" no_session
        eventually "those that are parked wait on" are_waiting "$parked"
        left=$parked
    else
        sleep 5 # what must not happen has no event
        left=$waiters
    fi
    are_waiting "$left" || fault "$(waiting) wait, not $left"
    eventually "the task goes on" runs

    step "KillUserProcesses=$value: lrsd stops, and who waits is below the user's slice"
    kill "$daemon"
    wait "$daemon"
    eventually "they are back" are_back
    [ "$(of_user | wc -l)" = "$left" ] || fault "$(of_user | wc -l) processes wait, not $left"
    for pid in $(of_user); do cat "/proc/$pid/cgroup"; done | sort | uniq -c
    pkill -KILL -u lodger
    eventually "the session is over" no_session
done
exit "$((faults > 0))"
