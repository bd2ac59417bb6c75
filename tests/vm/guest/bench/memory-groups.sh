#!/usr/bin/env bash
# What the memory controller costs for tasks that have ended (cgroup.memory_controller): the group of each
# stays in the kernel as long as file pages of it are cached. Dying groups, Percpu and Slab before and after
# so many tasks that write 100 kB each, after dropping the caches, and the time of an admission and of an
# end, with the key on, off, and off with tiers.io. Figures, not a test:
#
#   packaging/build --profile release --format deb --fast
#   tests/vm/run --add LRS.deb --env LRS_BENCH_TASKS=5000 --test-timeout 3000 --timeout 3300 \
#       tests/vm/guest/bench/memory-groups.sh
#
# 5,000 files of 100 kB are half of the scratch disk, and of the guest's memory a quarter.
#
# Tasks are shells of this script that wait to be let go, fifty at a time: one lrsctl admits them all,
# since starting a program takes longer under emulation than all that lrsd does. Milliseconds there compare
# the two values only.
set -u
count=${1:-${LRS_BENCH_TASKS:-5000}}
batch=${LRS_BENCH_BATCH:-50}
package=$(echo "$LRS_VM_PAYLOAD"/extra/lrs_*.deb)
[ -e "$package" ] || { echo "give the package by --add" && exit 1; }
dpkg --install "$package" >/dev/null || exit 1
work=$(mktemp -d --tmpdir="${LRS_TEST_DISK_MOUNT:-/var/tmp}") # a file system with a page cache on disk
trap 'systemctl stop lrsd; dpkg --purge lrs >/dev/null 2>&1; rm -rf "$work"' EXIT
scope=/sys/fs/cgroup/lrs.slice/lrs-tasks.scope
# In the root no unit has to be looked up for an admission.
echo $$ >/sys/fs/cgroup/cgroup.procs
block=$(printf '%0102400d' 0)
gate=$(mktemp -u) && mkfifo "$gate" && exec 3<>"$gate" && rm "$gate"

field() { sed -n "s/^$1: *\([0-9]*\) kB/\1/p" /proc/meminfo; }
figures() { # WHAT
    printf '%-28s nr_dying_descendants %6s   Percpu %7s kB   Slab %8s kB%s\n' "$1" \
        "$(sed -n 's/^nr_dying_descendants //p' /sys/fs/cgroup/cgroup.stat)" \
        "$(field Percpu)" "$(field Slab)" "${2:-}"
}
now() { echo "${EPOCHREALTIME/[.,]/}"; }
dirs() { compgen -G "$scope/t*-*" >/dev/null; }

# Tasks FROM to TO; adds the microseconds to $admitting and $ending.
tasks() {
    local number pids=() began
    for ((number = $1; number <= $2; number++)); do
        (read -r -u 3 && printf '%s' "$block" >"$work/$number") &
        pids+=($!)
    done
    began=$(now)
    lrsctl admit "${pids[@]}" >/dev/null || exit 1
    admitting=$((admitting + $(now) - began))
    began=$(now)
    printf '\n%.0s' "${pids[@]}" >&3 # each takes one
    wait "${pids[@]}"
    while dirs; do read -rt 0.05 -u 3; done
    ending=$((ending + $(now) - began))
}

# The io controller brings the kernel's memory groups along, so the key acts only with tiers.io off ("none").
for value in ${LRS_BENCH_VALUES:-true false none}; do
    {
        printf '[slots]\nactive = %s\n[cgroup]\nmemory_controller = %s\n' "$batch" "${value/none/false}"
        [ "$value" != none ] || printf '[tiers]\nio = false\n'
    } >/etc/lrs/lrs.toml
    # A scope that is left from before keeps its controllers.
    systemctl stop lrsd lrs-tasks.scope 2>/dev/null
    systemctl start lrsd || exit 1
    sync
    echo 3 >/proc/sys/vm/drop_caches
    figures "$value: before"
    admitting=0 ending=0 since=0
    for ((from = 1; from <= count; from += batch)); do
        to=$((from + batch - 1 < count ? from + batch - 1 : count))
        tasks "$from" "$to"
        ((to % (count / 4) == 0 || to == count)) || continue
        figures "$value: after $to tasks" "$(printf '   an admission %d.%d ms, write and end %d.%d ms' \
            $((admitting / (to - since) / 1000)) $((admitting / (to - since) / 100 % 10)) \
            $((ending / (to - since) / 1000)) $((ending / (to - since) / 100 % 10)))"
        admitting=0 ending=0 since=$to
    done
    sync
    echo 3 >/proc/sys/vm/drop_caches
    figures "$value: caches dropped"
    rm -rf "${work:?}"/*
    figures "$value: files removed"
done
