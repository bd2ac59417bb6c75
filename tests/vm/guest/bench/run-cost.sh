#!/usr/bin/env bash
# What a slot costs a short command: `lrsctl run -- true` against `systemd-run --scope -- true`,
# each less a shell that writes itself to cgroup.procs and becomes `true`. Interleaved; medians
# in milliseconds, and the same with the mount option favordynmods (cgroup-v2.rst, Linux 6.0). Figures, not a test:
# tests/vm/run --variant v2 tests/vm/guest/bench/run-cost.sh
#
# With release binaries: packaging/build --format deb, then --add that .deb.
set -u
rounds=${LRS_BENCH_ROUNDS:-40}
package=$(echo "$LRS_VM_PAYLOAD"/extra/lrs_*.deb)
[ -e "$package" ] || { echo "give the package by --add" && exit 1; }
dpkg --install "$package" >/dev/null || exit 1
trap 'dpkg --purge lrs >/dev/null 2>&1; rmdir "$bare" 2>/dev/null' EXIT
systemctl start lrsd || exit 1
lrsctl --version

bare=/sys/fs/cgroup/lrs-bench-bare
[ -e /sys/fs/cgroup/cgroup.procs ] || bare=/sys/fs/cgroup/cpu/lrs-bench-bare
mkdir -p "$bare"

took() { # milliseconds of one run of a command, to two digits
    local began=${EPOCHREALTIME/[.,]/} took
    "$@" || exit 1
    took=$((${EPOCHREALTIME/[.,]/} - began))
    printf '%d.%02d\n' $((took / 1000)) $((took % 1000 / 10))
}
by_shell() { sh -c 'echo $$ >"$0/cgroup.procs" && exec true' "$bare"; }
by_systemd() { systemd-run --quiet --scope -- true; }
by_lrs() { lrsctl run -- true; }

work=$(mktemp -d)
median() { sort -n "$work/$1" | sed -n "$(((rounds + 1) / 2))p"; }
measure() {
    local round what
    rm -f "$work"/by_*
    for ((round = 0; round < rounds; round++)); do
        for what in by_shell by_systemd by_lrs; do
            took "$what" >>"$work/$what"
        done
    done
    for what in by_shell by_systemd by_lrs; do
        printf '%-11s median %8s ms   p95 %8s ms\n' "$what" "$(median "$what")" \
            "$(sort -n "$work/$what" | sed -n "$((rounds * 95 / 100))p")"
    done
    awk -v shell="$(median by_shell)" -v systemd="$(median by_systemd)" -v lrs="$(median by_lrs)" \
        'BEGIN { printf "(lrs - shell) / (systemd - shell) = %.3f\n", (lrs - shell) / (systemd - shell) }'
}
measure
if mount -o remount,favordynmods /sys/fs/cgroup; then
    echo "With favordynmods (moves into a cgroup wait for no grace period):"
    measure
fi
systemctl stop lrsd
rm -r "$work"
