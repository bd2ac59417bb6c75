#!/usr/bin/env bash
# Services and scopes of systemd as tasks, in place: systemd knows their weights, keeps them over
# a daemon-reload, and has its own back afterwards, however the task or the daemon ended.
# Conditions are named functions, called through eventually.
# shellcheck disable=SC2317
set -u
root=lrs-units-$$
slots='slots.active = 1
slots.passive = 3'
# shellcheck source=tests/vm/guest/private.sh
. "$LRS_VM_PAYLOAD/guest/private.sh"
kill_daemon() { # as -9
    kill -KILL "$daemon"
    wait "$daemon" 2>/dev/null
}
units=()
cleanup() {
    systemctl stop "${units[@]}" 2>/dev/null
    end_private
}
trap cleanup EXIT

case $LRS_VM_VARIANT in
v2) property=CPUWeight file=cpu.weight base=/sys/fs/cgroup neutral=100 ;;
*) property=CPUShares file=cpu.shares base=/sys/fs/cgroup/cpu neutral=1024 ;;
esac
told() { systemctl show -P "$property" "$1"; }
weight() { cat "$base/system.slice/$1/$file"; }
state() { printf '%s: systemd %s, kernel %s, task %s\n' "$1" "$(told "$1")" "$(weight "$1")" "$(tier "$1")"; }
in_tier() { [ "$(lrsctl tasks --json | json_tier "$1")" = "$2" ]; }
json_tier() { tr -d '\n ' | sed 's/{"id"/\n&/g' | sed -n "s/.*\"name\":\"$1\".*\"tier\":\"\([a-z]*\)\".*/\1/p"; }
tier() { lrsctl tasks --json | json_tier "$1"; }
agree() { [ "$(told "$1")" = "$(weight "$1")" ]; }
is_told() { [ "$(told "$1")" = "$2" ]; }
no_task() { [ -z "$(tier "$1")" ]; }
forgotten() { ! ls "$dir"/run/state/task-*.json >/dev/null 2>&1; }
dropins() { find /run/systemd/system.control /run/systemd/transient -path "*$1*" -name '*.conf' -exec grep -H . {} + 2>/dev/null; }
service() { # from a unit file, so that it outlives its stop
    printf '[Service]\nExecStart=/bin/sleep infinity\n%s\n' "${2-}" \
        >"/run/systemd/system/$1"
    systemctl daemon-reload
    systemctl start "$1"
    units+=("$1")
}
unset_value=$(systemctl show -P "$property" cron.service 2>/dev/null || true)
service one.service
service two.service "CPUWeight=250"
unset_value=$(told one.service)
groupadd --force --system lrs
useradd --groups lrs member || fault "no user for the rights"
printf 'unset reads %s\n' "$unset_value"
start_daemon

# What cannot be a task says why, and leaves nothing.
refused() { # name, words expected
    local text
    text=$(lrsctl admit --unit "$1" 2>&1) && fault "$1 was admitted: $text"
    case $text in *"$2"*) ;; *) fault "$1: $text (expected: $2)" ;; esac
}
refused no-such-unit 'there is no unit no-such-unit.service'
refused system.slice 'slice'
refused multi-user.target 'only services and scopes'
refused init.scope 'systemd itself'
printf '[Service]\nExecStart=/bin/true\n' >/run/systemd/system/idle.service
systemctl daemon-reload
refused idle 'does not run'
systemd-run --quiet --unit=delegated -p Delegate=yes sleep infinity
units+=(delegated.service)
refused delegated 'delegated'
lrsctl admit --unit 'a b' 2>/dev/null && fault "a malformed name was admitted"
eventually "nothing left of refusals" forgotten

# One active, one passive.
one=$(lrsctl admit --unit one) || fault "one.service was not admitted"
two=$(lrsctl admit --unit two.service --job nightly) || fault "two.service was not admitted"
[ "$(lrsctl admit --unit one)" = "$one" ] || fault "asking again is another task"
eventually "systemd knows the active weight" agree one.service
eventually "systemd knows the passive weight" agree two.service
state one.service
state two.service
in_tier one.service active || fault "one.service is not active"
in_tier two.service passive || fault "two.service is not passive"
[ "$(weight one.service)" -ge $((100 * $(weight two.service))) ] || fault "the weights are too close"
active=$(weight one.service) passive=$(weight two.service)

systemctl daemon-reload
systemctl daemon-reexec
sleep 1
[ "$(weight one.service)" = "$active" ] || fault "daemon-reload changed one to $(weight one.service)"
[ "$(weight two.service)" = "$passive" ] || fault "daemon-reload changed two to $(weight two.service)"
lrsctl events --since 1 --no-follow | grep -w drift && fault "a drift was seen"

# The daemon dies; systemd and the files stay, and the next one goes on.
kill_daemon
systemctl daemon-reload
start_daemon
in_tier one.service active || fault "one.service is not active after kill -9"
[ "$(weight two.service)" = "$passive" ] || fault "kill -9 changed two to $(weight two.service)"

# The active one is stopped: the other is promoted, and nothing passive or active outlives it.
systemctl stop one.service
eventually "one.service is over" no_task one.service
eventually "two.service is promoted" in_tier two.service active
eventually "systemd knows of the promotion" agree two.service
[ "$(weight two.service)" -ge 250 ] || fault "promoted below the owner's weight: $(weight two.service)"
eventually "one.service has its weight back" is_told one.service "$unset_value"
state two.service
systemctl start one.service
if [ -e "$base/system.slice/one.service/$file" ]; then
    [ "$(weight one.service)" = "$neutral" ] || fault "one.service came back with $(weight one.service)"
fi

# What its owner says meanwhile is repaired, and told again.
systemctl set-property --runtime two.service CPUWeight=275

# It comes back as passive, ends while the daemon is away, and is still given back.
one=$(lrsctl admit --unit one) || fault "one.service was not admitted again"
eventually "systemd knows that one is passive" agree one.service
in_tier one.service passive || fault "one.service is not passive"
is_told one.service "$unset_value" && fault "systemd was told nothing of one.service"
kill_daemon
systemctl stop one.service
start_daemon
eventually "one.service is over" no_task one.service
eventually "one.service has its weight back after kill -9" is_told one.service "$unset_value"
dropins one.service

# Released: the owner's own weight is back, the one that was there before.
eventually "systemd is told again after the owner" agree two.service
is_told two.service 275 && fault "systemd was not told again"
lrsctl release "$two" || fault "two.service was not released"
[ "$(systemctl show -P CPUWeight two.service)" = 250 ] ||
    fault "after the release CPUWeight of two is $(systemctl show -P CPUWeight two.service)"
owners() { [ "$(weight two.service)" = $((250 * neutral / 100)) ]; }
eventually "the kernel has two's own weight" owners
eventually "no record is left" forgotten

# One that waits for a slot is given back what it had when it got one.
fillers=()
for _ in 1 2 3 4; do
    "$bin/lrsctl" run --name filler -- sleep infinity &
    fillers+=($!)
done
full() { [ "$(json_tier filler < <(lrsctl tasks --json) | grep -c .)" = 4 ]; }
eventually "all slots are taken" full
"$bin/lrsctl" admit --wait --unit two >"$dir/two" &
waiter=$!
waits() { lrsctl status --json | tr -d '\n ' | grep -q '"waiting":1'; }
eventually "two.service waits" waits
systemctl set-property --runtime two.service CPUWeight=333
kill "${fillers[0]}"
wait "$waiter" || fault "two.service did not get the free slot"
eventually "systemd knows the weight of two" agree two.service
lrsctl release "$(cat "$dir/two")" || fault "two.service was not released again"
[ "$(systemctl show -P CPUWeight two.service)" = 333 ] ||
    fault "after the wait CPUWeight of two is $(systemctl show -P CPUWeight two.service)"
kill "${fillers[@]:1}"
eventually "the slots are free" forgotten

# What its owner has set for good masks what LRS sets until the next boot, with every reload.
service kept.service
systemctl set-property kept.service CPUWeight=60
lrsctl admit --unit kept >"$dir/kept" || fault "kept.service was not admitted"
own_weight() { [ "$(systemctl show -P CPUWeight kept.service)" = 60 ]; }
ours() { ! own_weight && agree kept.service; }
eventually "systemd knows the weight of kept" ours
systemctl daemon-reload
own_weight || fault "a setting for good does not mask ours; say so in Known limits"
eventually "systemd is told again after the reload" ours
lrsctl release "$(cat "$dir/kept")" || fault "kept.service was not released"
own_weight || fault "kept.service was given $(systemctl show -P CPUWeight kept.service)"
rm -r /etc/systemd/system.control/kept.service.d
systemctl stop kept.service

# Members: no unit, not by its name nor by a process of their own; what is delegated is theirs.
member() { runuser -u member -- "$bin/lrsctl" "$@"; }
member_refused() { # what is asked
    local text
    text=$(member admit "$@" 2>&1) && fault "a member admitted $*: $text"
    case $text in *"may not shape a unit"*) ;; *) fault "a member, $*: $text" ;; esac
}
systemd-run --quiet --unit=members -p User=member -p CPUWeight=100 sleep infinity
units+=(members.service)
main=$(systemctl show -P MainPID members.service)
member_refused --unit members
member_refused --in-place "$main"
if [ "$LRS_VM_VARIANT" = v2 ]; then
    group=/sys/fs/cgroup/system.slice/delegated-too.service
    # A file, because systemd has its own idea of $ in a command line.
    cat >"$dir/part" <<SH
mkdir "$group/part.scope" && echo \$\$ >"$group/part.scope/cgroup.procs" &&
    echo +cpu >"$group/cgroup.subtree_control" && exec sleep infinity
SH
    systemd-run --quiet --unit=delegated-too -p User=member -p Delegate=yes sh "$dir/part"
    units+=(delegated-too.service)
    eventually "the delegated part is there" test -e "$group/part.scope/cpu.weight"
    part=$(member admit --in-place "$(systemctl show -P MainPID delegated-too.service)") ||
        fault "a member may not admit in what is delegated to it"
    member release "$part" || fault "a member may not release what is its own"

    # Two processes of one unit at once: one task, and the other leaves its weights alone.
    service pair.service 'ExecStartPost=/bin/sh -c "sleep infinity & exit 0"'
    systemctl set-property --runtime pair.service CPUWeight=70
    mapfile -t pids <"/sys/fs/cgroup/system.slice/pair.service/cgroup.procs"
    [ "${#pids[@]}" = 2 ] || fault "pair.service has processes ${pids[*]}"
    asking=()
    for pid in "${pids[@]}"; do
        "$bin/lrsctl" admit --in-place "$pid" >>"$dir/pair" 2>>"$dir/pair.refused" &
        asking+=($!)
    done
    wait "${asking[@]}"
    [ "$(wc -l <"$dir/pair")" = 1 ] || fault "one unit became: $(cat "$dir/pair" "$dir/pair.refused")"
    taken() { ! is_told pair.service 70 && agree pair.service; }
    eventually "systemd knows the weight of pair" taken
    lrsctl release "$(head -n 1 "$dir/pair")" || fault "pair.service was not released"
    eventually "pair.service has its own weight" is_told pair.service 70
    systemctl stop pair.service delegated-too.service
fi
systemctl stop members.service
eventually "no record is left of the members" forgotten

# A scope, by pid: the unit is found, and its transient settings go with it.
systemd-run --quiet --scope --unit=three sleep infinity &
in_scope() { systemctl is-active --quiet three.scope; }
eventually "the scope runs" in_scope
units+=(three.scope)
lrsctl admit --unit three.scope >/dev/null || fault "three.scope was not admitted"
eventually "systemd knows the scope's weight" agree three.scope
state three.scope
systemctl stop three.scope
eventually "three.scope is over" no_task three.scope
eventually "no record is left of the scope" forgotten
lines=$(dropins three.scope)
[ -z "$lines" ] || fault "left of three.scope: $lines"

systemctl start one.service
main=$(systemctl show -P MainPID one.service)
systemctl set-property --runtime one.service CPUAccounting=yes CPUWeight=100
lrsctl admit --in-place "$main" >/dev/null || fault "one.service was not admitted by pid"
if [ "$LRS_VM_VARIANT" = v2 ]; then
    eventually "systemd knows one by its pid" agree one.service
    is_told one.service 100 && fault "systemd was not told of one.service by pid"
fi
state one.service

# Stopped at any moment of its admission, a unit leaves no task and no weight.
for delay in 0.2 0.5 0.8 1.1 1.5; do
    systemd-run --quiet --unit=brief sleep infinity
    lrsctl admit --unit brief >/dev/null 2>"$dir/why" &
    admission=$!
    sleep "$delay"
    systemctl stop brief.service
    wait "$admission" || cat "$dir/why"
    eventually "brief.service is over" no_task brief.service
    lines=$(dropins brief.service)
    [ -z "$lines" ] || fault "left of brief.service: $lines"
done
# A daemon that systemd does not hear manages in place by files alone, and says so.
systemctl stop one.service
eventually "no record is left" forgotten
kill "$daemon"
wait "$daemon" || fault "lrsd did not stop cleanly"
systemctl start one.service
before=$(told one.service)
# shellcheck disable=SC2016 # for the inner shell
start_daemon env DBUS_SYSTEM_BUS_ADDRESS="unix:path=$dir/nowhere" unshare --mount \
    sh -c 'mount --bind /dev/null /run/systemd/private && exec "$@"' sh
refused one.service 'systemd cannot be reached'
id=$(lrsctl admit --in-place "$(systemctl show -P MainPID one.service)") ||
    fault "not admitted by files alone"
grep -q 'by files alone' "$dir/log" || fault "files alone, and nothing was said"
is_told one.service "$before" || fault "systemd was told after all"
lrsctl release "$id" || fault "not released by files alone"

# One that hangs is waited for once: the next one goes on by files at once.
kill "$daemon"
wait "$daemon" || fault "lrsd did not stop cleanly after files alone"
systemd-socket-activate --listen="$dir/hangs" sleep infinity 2>/dev/null &
hangs=$!
eventually "a systemd that hangs" test -S "$dir/hangs"
# Its own socket and the bus.
# shellcheck disable=SC2016 # for the inner shell
start_daemon env DBUS_SYSTEM_BUS_ADDRESS="unix:path=$dir/hangs" HANGS="$dir/hangs" unshare --mount \
    sh -c 'mount --bind "$HANGS" /run/systemd/private && exec "$@"' sh
for unit in one two; do
    id=$(lrsctl admit --in-place "$(systemctl show -P MainPID $unit.service)") ||
        fault "$unit was not admitted beside a systemd that hangs"
    lrsctl release "$id" || fault "$unit was not released beside a systemd that hangs"
done
refused two.service 'systemd does not answer'
grep -q 'did not finish GetUnitByPID' "$dir/log" || fault "nothing was said of a systemd that hangs"
kill "$hangs"
systemctl stop one.service
eventually "no record is left at the end" forgotten
exit "$((faults > 0))"
