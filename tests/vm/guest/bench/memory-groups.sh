#!/usr/bin/env bash
# What the memory controller costs for tasks that have ended (cgroup.memory_controller): the group of each
# stays in the kernel as long as file pages of it are cached. Dying groups, Percpu and Slab before and after
# so many short tasks that write 100 kB each, after dropping the caches, with the key on and off. Figures,
# not a test: tests/vm/run --variant v2 --env LRS_BENCH_TASKS=5000 tests/vm/guest/bench/memory-groups.sh
#
# 5,000 files of 100 kB are half of the scratch disk, and of the guest's memory a quarter.
#
# The package comes by --add (packaging/build --format deb; debug binaries will do, since the figures are
# the kernel's). Under emulation 1,000 tasks take five minutes and more for each value: raise --timeout and
# --test-timeout.
set -u
count=${1:-${LRS_BENCH_TASKS:-5000}}
package=$(echo "$LRS_VM_PAYLOAD"/extra/lrs_*.deb)
[ -e "$package" ] || { echo "give the package by --add" && exit 1; }
dpkg --install "$package" >/dev/null || exit 1
work=$(mktemp -d --tmpdir="${LRS_TEST_DISK_MOUNT:-/var/tmp}") # a file system with a page cache on disk
trap 'systemctl stop lrsd; dpkg --purge lrs >/dev/null 2>&1; rm -rf "$work"' EXIT

field() { sed -n "s/^$1: *\([0-9]*\) kB/\1/p" /proc/meminfo; }
figures() { # WHAT
    printf '%-34s nr_dying_descendants %6s   Percpu %7s kB   Slab %8s kB\n' "$1" \
        "$(sed -n 's/^nr_dying_descendants //p' /sys/fs/cgroup/cgroup.stat)" \
        "$(field Percpu)" "$(field Slab)"
}

for value in ${LRS_BENCH_VALUES:-true false}; do
    printf '[cgroup]\nmemory_controller = %s\n' "$value" >/etc/lrs/lrs.toml
    # A scope that is left from before keeps its controllers.
    systemctl stop lrsd lrs-tasks.scope 2>/dev/null
    systemctl start lrsd || exit 1
    sync
    echo 3 >/proc/sys/vm/drop_caches
    figures "$value: before"
    for ((from = 1; from <= count; from += 1000)); do
        to=$((from + 999 < count ? from + 999 : count))
        # shellcheck disable=SC2016 # for the inner shell
        seq "$from" "$to" |
            lrsctl run --each -- sh -c 'head -c 100k /dev/zero >"$0"' "$work/{}" || exit 1
        figures "$value: after $to tasks"
    done
    sync
    echo 3 >/proc/sys/vm/drop_caches
    figures "$value: caches dropped"
    rm -rf "${work:?}"/*
    figures "$value: files removed"
done
