#!/usr/bin/env bash
# The service needs no message bus: it starts, serves and shapes without one and with one that
# hangs, a killed lrsd is back at its tasks at once, and it is on the bus when there is one again.
# Conditions are named functions, called through eventually.
# shellcheck disable=SC2317
set -u
# shellcheck source=tests/vm/guest/package.sh
. "$LRS_VM_PAYLOAD/guest/package.sh"
hung=0
bring_bus_back() {
    [ "$hung" = 0 ] || kill -CONT "$hung"
    hung=0
    systemctl start dbus.socket dbus.service
}
# Later checks need the bus.
trap 'status=$?; bring_bus_back; (exit $status); clean_up' EXIT
hang_bus() {
    hung=$(systemctl show -P MainPID dbus.service)
    [ "$hung" != 0 ] || give_up "the bus does not run"
    kill -STOP "$hung"
}

# Without the I/O lane: emulated, a sleeper may look like a task of short bursts, and be in it.
configure() {
    printf '[slots]\nactive = 1\n[tiers]\nlane_share = 0.0\nroot_weight = %s\n' "$1" >/etc/lrs/lrs.toml
}
slice_weighs() { [ "$(systemctl show -P CPUWeight lrs.slice)" = "$1" ]; }
named() { busctl --no-pager --timeout=60 status org.lrs.Shaper1; }
gone() { ! systemctl --quiet is-active lrs-tasks.scope; }

# From the start of the process to its word that it serves, in ms, as systemd saw them.
start_took() {
    local began ready
    began=$(systemctl show -P ExecMainStartTimestampMonotonic lrsd.service)
    ready=$(systemctl show -P ActiveEnterTimestampMonotonic lrsd.service)
    echo $(((ready - began) / 1000))
}
prompt() {
    local took
    took=$(start_took)
    printf '%s: served after %s ms (%s with a bus)\n' "$1" "$took" "$usual"
    [ "$took" -le "$most" ] || fault "$1: lrsd served after $took ms, not within $most"
}

# A task in each tier; the group of the second is idle, or has a hundredth.
shapes() {
    local first second
    start_tasks 2
    first=$(cpu_directory "${tasks[0]}") second=$(cpu_directory "${tasks[1]}")
    grep -q lrs-tasks.scope/ "/proc/${tasks[1]}/cgroup" ||
        fault "$1: a task is in $(cat "/proc/${tasks[1]}/cgroup")"
    if [ -e "$second/cpu.idle" ]; then
        [ "$(cat "$first/cpu.idle" "$second/cpu.idle")" = $'0\n1' ] ||
            fault "$1: cpu.idle is $(cat "$first/cpu.idle" "$second/cpu.idle")"
    else
        [ "$(cat "$first/cpu.shares")" -ge $((100 * $(cat "$second/cpu.shares"))) ] ||
            fault "$1: cpu.shares are $(cat "$first/cpu.shares" "$second/cpu.shares")"
    fi
    remember
}
# kill -9, and the next one goes on.
survives() {
    local killed
    killed=$(main_pid)
    kill -KILL "$killed"
    await_another_than "$killed"
    prompt "$1, after kill -9"
    tasks_known "$1, after kill -9"
    [ "$(main_pid)" != 0 ] || fault "$1: lrsd ended again"
}
end_all() {
    kill "${tasks[@]}"
    wait
    tasks=()
    systemctl stop lrsd.service || fault "systemctl stop lrsd: status $?"
    eventually "the scope is gone" gone
}

install_and_start
await named
usual=$(start_took) most=1000
# Emulated CPUs are slow, waiting is not: what was waited for took more than ten seconds.
[ -z "${LRS_TEST_SLOW:-}" ] || most=$((usual * 2 + 2000))

step 'no bus from the start'
configure 131
systemctl stop lrsd.service lrs-tasks.scope dbus.socket dbus.service
systemctl start lrsd.service || give_up "without a bus: systemctl start lrsd: status $?"
prompt "without a bus"
eventually "without a bus the slice has its weight" slice_weighs 131
shapes "without a bus"
survives "without a bus"

step 'it comes later'
systemctl start dbus.socket dbus.service
await named
tasks_known "the bus came"

step 'it hangs, and lrsd is killed'
hang_bus
survives "with a bus that hangs"
kill -CONT "$hung"
hung=0
await named
tasks_known "the bus went on"
end_all

step 'it hangs from the start'
configure 132
hang_bus
systemctl start lrsd.service || give_up "with a bus that hangs: systemctl start lrsd: status $?"
prompt "with a bus that hangs"
eventually "with a bus that hangs the slice has its weight" slice_weighs 132
shapes "with a bus that hangs"
survives "with a bus that hangs, after a start with it"
bring_bus_back
await named
end_all

[ "$(systemctl show -P NRestarts lrsd.service)" -le 3 ] || fault "lrsd ended by itself"
journalctl --no-pager --boot --unit lrsd.service --lines 60 -o short-monotonic
exit "$((faults > 0))"
