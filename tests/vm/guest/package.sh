#!/usr/bin/env bash
# For the checks of the package, which source it: installing, tasks of their own, and what
# must not change about them. Each check installs and purges the package itself.

packages=$LRS_VM_PAYLOAD/packages
first=$(echo "$packages"/lrs_*-1_*.deb)
# The same files at the next revision: what an upgrade brings.
# shellcheck disable=SC2034 # for the checks
second=$(echo "$packages"/lrs_*-2_*.deb)
export DEBIAN_FRONTEND=noninteractive

# shellcheck source=tests/vm/guest/check.sh
. "$LRS_VM_PAYLOAD/guest/check.sh"

# Ends the check: without what failed the rest of it says nothing.
give_up() {
    fault "$*"
    systemctl status --no-pager --full lrsd.service
    journalctl --no-pager --boot --unit lrsd.service --lines 40
    exit 1
}

# Takes down what the check has left, whatever became of it.
clean_up() {
    local status=$?
    [ ${#tasks[@]} = 0 ] || kill "${tasks[@]}" 2>/dev/null
    wait
    dpkg --purge lrs >/dev/null 2>&1 || true
    exit "$status"
}

# An operator who edited the configuration keeps it.
install() { dpkg --force-confold --install "$1" || give_up "dpkg --install $1: status $?"; }

# Installs the package and starts the service, which is ready when systemctl returns.
install_and_start() {
    install "$first"
    systemctl enable --now lrsd.service || give_up "systemctl enable --now lrsd: status $?"
}

main_pid() { systemctl show --property MainPID --value lrsd.service; }

# Waits until the service runs under another process than $1 and answers.
await_another_than() {
    local attempt pid
    for attempt in {1..150}; do
        pid=$(main_pid)
        [ "$pid" = 0 ] || [ "$pid" = "$1" ] || ! lrsctl status >/dev/null 2>&1 || return 0
        sleep 0.2
    done
    give_up "lrsd is not back after its process $1 ended ($attempt attempts)"
}

tasks=()
# Starts $1 tasks that sleep; their processes are in the array tasks.
start_tasks() {
    local number pid
    for ((number = 1; number <= $1; number++)); do
        lrsctl run --name "sleeper-$number" -- sleep 100000 &
        pid=$!
        tasks+=("$pid")
        for _ in {1..150}; do
            [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != sleep ] || continue 2
            sleep 0.1
        done
        give_up "lrsctl run --name sleeper-$number has not become its command"
    done
}

# The directory of process $1 in the hierarchy that has the cpu controller.
cpu_directory() {
    local line
    line=$(grep -E '^[0-9]+:([^:]*,)?cpu(,[^:]*)?:' "/proc/$1/cgroup") ||
        line=$(grep '^0::' "/proc/$1/cgroup")
    case $line in
    0::*) printf '/sys/fs/cgroup%s' "${line#0::}" ;;
    *) printf '/sys/fs/cgroup/cpu%s' "${line#*:*:}" ;;
    esac
}

# Where each task's process is, and the weights there.
picture() {
    local pid directory file
    for pid in "${tasks[@]}"; do
        printf '%s %s\n' "$pid" "$(cat "/proc/$pid/comm" 2>&1)"
        cat "/proc/$pid/cgroup"
        directory=$(cpu_directory "$pid")
        for file in cpu.weight cpu.idle cpu.shares io.weight io.bfq.weight; do
            [ ! -e "$directory/$file" ] || printf '%s = %s\n' "$file" "$(cat "$directory/$file")"
        done
    done
}

ids() { lrsctl tasks --json | grep -o '"id":"[^"]*"' | sort; }

# Remembers the tasks as they are now.
remember() {
    before=$(picture)
    ids_before=$(ids)
    [ "$(wc -l <<<"$ids_before")" = "${#tasks[@]}" ] ||
        give_up "lrsctl tasks lists $ids_before for the processes ${tasks[*]}"
}

# Nothing about the tasks' processes has changed since remember.
tasks_untouched() {
    local now
    now=$(picture)
    [ "$now" = "$before" ] ||
        fault "after $1 the tasks differ:"$'\n'"$(diff <(echo "$before") <(echo "$now"))"
}

# The daemon that answers now knows the same tasks.
tasks_known() {
    local now
    tasks_untouched "$1"
    now=$(ids)
    [ "$now" = "$ids_before" ] || fault "after $1 lrsctl tasks lists $now, before it $ids_before"
}
