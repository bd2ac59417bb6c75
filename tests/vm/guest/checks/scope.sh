#!/usr/bin/env bash
# A daemon that systemd started keeps its tasks in the delegated scope lrs-tasks.scope: they
# live on whatever becomes of the daemon, and are shaped again by the next one.
# Conditions are named functions, called through await.
# shellcheck disable=SC2317
set -u
# shellcheck source=tests/vm/guest/check.sh
. "$LRS_VM_PAYLOAD/guest/check.sh"
export PATH="$LRS_VM_PAYLOAD/bin:$PATH"
here=/run/lrs-scope-check
mkdir -p "$here"
export LRS_ENDPOINT=unix:$here/sock
cat >"$here/lrs.toml" <<TOML
[daemon]
runtime_dir = "$here/run"
[slots]
active = 1
expand = false
[grpc]
listen = ["unix:$here/sock"]
[dbus]
bus = "off"
TOML
install -d /run/systemd/system
cat >/run/systemd/system/lrs-check.service <<UNIT
[Unit]
StartLimitIntervalSec=0
[Service]
Type=notify
ExecStart=$LRS_VM_PAYLOAD/bin/lrsd --config $here/lrs.toml
ExecReload=$LRS_VM_PAYLOAD/bin/lrsctl --endpoint unix:$here/sock reload
WatchdogSec=30
Restart=always
RestartSec=100ms
UNIT
systemctl daemon-reload

# The v1 hierarchy or the unified one, whichever has the weights.
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    cpu=/sys/fs/cgroup tracked=/sys/fs/cgroup
else
    cpu=/sys/fs/cgroup/cpu tracked=/sys/fs/cgroup/systemd
fi
scope=lrs.slice/lrs-tasks.scope

gone() { [ ! -e "$1" ]; }
inactive() { ! systemctl --quiet is-active "$1"; }

# What must be true of both tasks at any time.
intact() {
    local when=$1 pid name
    for pid in "$one" "$two"; do
        kill -0 "$pid" 2>/dev/null || fault "$when: task process $pid is gone"
        grep -q "/$scope/t.*-" "/proc/$pid/cgroup" || fault "$when: $pid is in $(cat "/proc/$pid/cgroup")"
    done
    name=$(basename "$(echo "$cpu/$scope"/t*.second)")
    [ "$(cat "$cpu/$scope/$name/cpu.idle" 2>/dev/null)" = 1 ] ||
        fault "$when: the passive task is not idle ($(cat "$cpu/$scope/$name"/cpu.{idle,weight,shares} 2>/dev/null | tr '\n' ' '))"
}
serving() {
    local when=$1
    await lrsctl status || return
    [ "$(task_ids)" = "$ids" ] ||
        fault "$when: the tasks are $(lrsctl tasks --json)"
    intact "$when"
}

systemctl start lrs-check || fault "the service does not start: $(systemctl status lrs-check)"
systemctl status lrs-check | sed -n 1,12p
[ -d "$tracked/$scope" ] || fault "no scope without tasks: $(systemctl status lrs-tasks.scope)"
lrsctl status
lrsctl status --json | grep -q "\"root\": *\"/$scope\"" || fault "status names another root"

task_ids() { lrsctl tasks --json | grep -o '"id": *"[^"]*"'; }
tasks() { [ "$(task_ids | wc -l)" = "$1" ]; }
lrsctl run --name first -- sleep infinity &
one=$!
await tasks 1
lrsctl run --name second -- sleep infinity &
two=$!
await tasks 2
ids=$(task_ids)
systemctl --no-pager status lrs-tasks.scope
systemd-cgls --no-pager | grep -A8 lrs-tasks || fault "systemd-cgls does not show the tasks"
systemctl --no-pager status lrs-tasks.scope | grep -q '\.second' || fault "status does not name the task"
intact "at first"
# A systemd that is busy does not answer in time; it is asked again.
slice_weighs() { [ "$(systemctl show -P CPUWeight lrs.slice)" = "$1" ]; }
await slice_weighs 100
! grep -q NoNewPrivs:.1 "/proc/$one/status" || fault "the task has the daemon's sandbox"

must() { "$@" || fault "$*: status $?"; }
must systemctl restart lrs-check
serving "after restart"
must systemctl daemon-reload
serving "after daemon-reload"
must systemctl daemon-reexec
serving "after daemon-reexec"
must systemctl kill --signal=KILL --kill-whom=main lrs-check
restarted() { [ "$(systemctl show -P NRestarts lrs-check)" -ge 1 ]; }
await restarted
serving "after kill -9"
must systemctl stop lrs-check
intact "stopped"
must systemctl daemon-reload
intact "stopped and daemon-reload"
must systemctl start lrs-check
serving "after stop and start"
must systemctl restart dbus
serving "after a restart of the bus"
must systemctl stop dbus.socket dbus.service
inactive dbus.service || fault "the bus still runs"
must systemctl restart lrs-check
serving "without a bus"
must systemctl start dbus.socket dbus.service
# A weight that is tried again is told.
systemctl --no-pager status lrs-check | grep -v 'weight of the LRS root' | grep -i "warn\|error" &&
    fault "warnings in the log"

# A new task: the first is active again when it is the only one.
kill "$one"
wait "$one" 2>/dev/null
name=$(basename "$(echo "$cpu/$scope"/t*.second)")
promoted() { [ "$(cat "$cpu/$scope/$name/cpu.idle")" = 0 ]; }
await promoted
kill "$two"
wait "$two" 2>/dev/null

# Given back, a task returns to its session; when that is gone it gets a scope of its own.
systemd-run --quiet --scope --unit=lrs-origin lrsctl run --name given -- sleep infinity &
await tasks 1
await inactive lrs-origin.scope
id=$(task_ids | grep -o 't[a-z0-9]*-[0-9]*')
given=$(lrsctl task "$id" --json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' | head -n 1)
lrsctl release "$id" || fault "release"
grep -q "system.slice/lrs-released-$id.scope" "/proc/$given/cgroup" ||
    fault "a released process is in $(cat "/proc/$given/cgroup")"
systemctl --no-pager status "lrs-released-$id.scope" | head -n 8
kill "$given"
await inactive "lrs-released-$id.scope"

# Of a user's session both what ran and what waited for a slot go below that user's slice.
of_user() { systemd-run --quiet --scope --slice=user-4711.slice --unit="lrs-origin-$1" \
    lrsctl run --wait --name "$1" -- sleep infinity; }
in_slice() { grep -q 'user-4711.slice/lrs-released-.*[.]scope' "/proc/$1/cgroup"; }
of_user ran &
await tasks 1
id=$(task_ids | grep -o 't[a-z0-9]*-[0-9]*')
ran=$(lrsctl task "$id" --json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' | head -n 1)
lrsctl run --name fills -- sleep infinity &
fills=$!
await tasks 2
# What waits is parked, so that its session is empty and goes as that of a task does.
of_user waits &
await inactive lrs-origin-ran.scope
queued() { waits=$(lrsctl queue --json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' | head -n 1) && [ -n "$waits" ]; }
await queued
await inactive lrs-origin-waits.scope
grep -q "$scope" "/proc/$waits/cgroup" || fault "who waits is in $(cat "/proc/$waits/cgroup")"
must systemctl stop lrs-check
in_slice "$waits" || fault "who waited is in $(cat "/proc/$waits/cgroup")"
must systemctl start lrs-check
await lrsctl status
lrsctl release "$id" || fault "release of what ran"
in_slice "$ran" || fault "what ran is in $(cat "/proc/$ran/cgroup")"
kill "$ran" "$waits"
await tasks 1

# The same where that slice is about to go, as right after a logout: it is waited for.
await inactive user-4711.slice
of_user late &
await tasks 2
id=$(task_ids | grep -o 't[a-z0-9]*-[0-9]*' | tail -n 1)
late=$(lrsctl task "$id" --json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' | head -n 1)
must systemd-run --quiet --unit=lrs-lingers --slice=user-4711.slice -p TimeoutStopSec=500ms \
    bash -c 'trap "" TERM; while :; do sleep 0.1; done'
must systemctl stop --no-block user-4711.slice
lrsctl release "$id" || fault "release while the slice stops"
in_slice "$late" || fault "what was released late is in $(cat "/proc/$late/cgroup")"
kill "$late" "$fills"
await tasks 0

# Somebody kills the anchor: tasks and lock are where they were, the next task brings another.
lrsctl run --name holds -- sleep infinity &
one=$!
await tasks 1
pkill -x lrs-anchor || fault "no process is called lrs-anchor"
lrsctl run --name beside -- true || fault "no task without the anchor"
pgrep -x lrs-anchor >/dev/null || fault "no new anchor"
[ "$(pgrep -xc lrs-anchor)" = 1 ] || fault "anchors: $(pgrep -xa lrs-anchor)"

# The scope is being stopped and a task is slow to go: nobody is put beside it to be killed.
kill "$one"
wait "$one" 2>/dev/null
lrsctl run --name slow -- bash -c 'trap "" TERM; echo up >'"$here"'/up; sleep infinity & wait; wait' &
slow=$!
await test -s "$here/up"
systemctl stop --no-block lrs-tasks.scope
stopping() { [ "$(systemctl show -P ActiveState lrs-tasks.scope)" = deactivating ]; }
await stopping
text=$(lrsctl run -- true 2>&1) && fault "a task was put into a scope that is being stopped"
grep -q 'taking down lrs-tasks.scope' <<<"$text" || fault "the refusal says: $text"
systemctl kill --signal=KILL lrs-tasks.scope
wait "$slow" 2>/dev/null
await gone "$tracked/$scope"

# A directory that systemd knows nothing about is no obstacle.
systemctl stop lrs-check
await inactive lrs-tasks.scope
await gone "$tracked/$scope"
mkdir -p "$tracked/$scope/anchor"
systemctl start lrs-check || fault "an orphaned directory keeps lrsd from starting"
lrsctl run --name orphan -- grep -q "$scope/t.*orphan" /proc/self/cgroup || fault "no task in the new scope"

# Somebody stops the scope: the next task gets a new one. Since the reload systemd knows nothing of
# the controllers that it needed, so that on v1 it moves all in system.slice once more, the caller too.
for round in 1 2 3; do
    systemctl stop lrs-tasks.scope
    gone "$tracked/$scope" || fault "the scope is still there"
    systemctl daemon-reload
    systemd-run --quiet --scope true
    lrsctl run --name third -- grep -q "$scope/t.*third" /proc/self/cgroup ||
        fault "no task after the scope was stopped, round $round"
done
lrsctl status --json | grep -q '"warnings": *\[\]' || lrsctl status

# The last one out turns off the light.
systemctl stop lrs-check
await inactive lrs-tasks.scope
await gone "$tracked/$scope"
for round in 1 2 3 4 5; do
    systemctl restart lrs-check || fault "restart $round"
    lrsctl run -- true || fault "run in round $round"
done
systemctl stop lrs-check
await gone "$tracked/$scope"
leftover=$(find /sys/fs/cgroup -type d -path "*/$scope*")
[ -z "$leftover" ] || fault "left behind: $leftover"
journalctl --no-pager -u lrs-check -o cat | tail -n 60
rm -f /run/systemd/system/lrs-check.service
rm -rf "$here"
systemctl daemon-reload
exit "$((faults > 0))"
