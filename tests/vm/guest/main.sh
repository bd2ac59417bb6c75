#!/usr/bin/env bash
# Runs in the guest as root, once it has booted: every test of the payload's manifest, each
# reported over the second serial port as it goes. The lines that start with "@lrs " are for
# tests/vm/run; everything else is the tests' own output.
set -uo pipefail

readonly payload=/run/payload
readonly out=/run/lrs-vm/out
readonly port=/dev/ttyS1

say() { printf '%s\n' "$*" >"$port"; }

argument() { # the value of lrs.NAME= on the kernel command line
    sed -n "s/.*\blrs\.$1=\([^ ]*\).*/\1/p" /proc/cmdline
}

disk() { # the device with this serial number
    local block
    for block in /sys/block/vd*; do
        if [ "$(cat "$block/serial")" = "$1" ]; then
            printf '/dev/%s' "${block##*/}"
            return
        fi
    done
    say "lrs-vm: no disk with the serial number $1"
    return 1
}

# Output goes to a file that is followed, not through a pipe: a process that a test leaves
# behind holds a pipe open, and the run would wait for it.
run_test() {
    local name=$1 kind=$2 path=$3 limit=$4 log=$out/tests/$1.log status pid began leftover
    local journal=$out/since-$1 cursor
    local -a command
    case $kind in
    rust) mapfile -t command < <(printf '%s\n' "$path" && cat "$path.arguments") ;;
    script) command=(bash "$path") ;;
    *) command=(false) && say "lrs-vm: unknown kind $kind of test $name" ;;
    esac
    say "@lrs start $name"
    cursor=$(journalctl --quiet --lines 0 --show-cursor | sed -n 's/^-- cursor: //p')
    began=$(date +%s%3N)
    : >"$log"
    # In a scope, as in a login's session: what `lrsctl run` may do depends on the unit it is in.
    (cd "$payload/repo" && exec systemd-run --quiet --scope --collect --unit="lrs-vm-test-$name" \
        timeout --kill-after=10 "$limit" "${command[@]}") \
        >"$log" 2>&1 </dev/null &
    pid=$!
    tail -n +1 -s 0.1 -f --pid="$pid" "$log" >"$port"
    wait "$pid"
    status=$?
    [ -z "$(tail -c 1 "$log")" ] || say ''
    if [ "$status" = 124 ] || [ "$status" = 137 ]; then
        say "lrs-vm: $name was stopped after $limit s"
    fi
    # Whatever the test looked at.
    journalctl --sync
    journalctl --quiet --no-pager --output=short-monotonic --after-cursor="$cursor" >"$journal"
    if ! "$payload/repo/tests/panics" "$log" "$journal" >"$port"; then
        say "lrs-vm: a program of LRS panicked while $name ran, see above"
        [ "$status" != 0 ] || status=1
    fi
    rm "$journal"
    # Groups named like systemd units are a package's, not a test's.
    leftover=$(find /sys/fs/cgroup -mindepth 1 -type d -name 'lrs-*' \
        ! -name '*.*' -print -prune 2>/dev/null)
    if [ -n "$leftover" ] && [ "$leftover" != "$known_leftover" ]; then
        say "lrs-vm: $name left cgroups behind: $leftover"
        known_leftover=$leftover
        [ "$status" != 0 ] || status=1
    fi
    say "@lrs end $name $status $(($(date +%s%3N) - began))"
}

main() {
    local name kind path limit scratch results variable count=0
    stty -F "$port" raw -echo
    mkdir -p "$out/tests"
    say "@lrs boot $(cut -d' ' -f1 /proc/uptime)"
    limit=$(argument test_timeout)

    # The test binaries know the checkout and its binaries under the paths of the host.
    while IFS=$'\t' read -r path name; do
        mkdir -p "${path%/*}"
        ln -sfn "$payload/$name" "$path"
    done <"$payload/links"

    modprobe bfq
    if scratch=$(disk scratch); then
        echo bfq >"/sys/block/${scratch##*/}/queue/scheduler"
        mkdir -p /mnt/scratch
        mount -t ext4 "$scratch" /mnt/scratch
    fi
    LRS_VM_VARIANT=$(argument variant)
    [ "$(argument slow)" = 0 ] || export LRS_TEST_SLOW=1
    export LRS_VM_VARIANT LRS_TEST_DISK=$scratch LRS_TEST_DISK_MOUNT=/mnt/scratch
    export RUST_BACKTRACE=1 LRS_VM_PAYLOAD=$payload HOME=/run/lrs-vm
    # Cargo gives its tests these.
    export CARGO_MANIFEST_DIR=$payload/repo
    if [ -e "$payload/environment" ]; then
        while IFS= read -r -d '' variable; do export "${variable?}"; done <"$payload/environment"
    fi

    known_leftover=''
    while IFS=$'\t' read -r name kind path; do
        run_test "$name" "$kind" "$payload/$path" "$limit"
        count=$((count + 1))
    done <"$payload/manifest"

    journalctl --boot --no-pager --output=short-monotonic >"$out/journal.txt" 2>&1
    systemctl --no-pager --failed >"$out/failed-units.txt" 2>&1
    cp /proc/cmdline "$out/cmdline.txt"
    if results=$(disk results); then
        tar -C "$out" -cf "$results" . && sync "$results"
    fi
    say "@lrs done $count"
}

main
