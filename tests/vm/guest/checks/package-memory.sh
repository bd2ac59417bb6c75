#!/usr/bin/env bash
# `MemoryMax=400M` on lrs.slice, tasks that take most of it, and others that wait: no slot opens whose
# task does not fit, the kernel kills nobody, status and doctor name the limit. cgroup v2 alone: on v1
# LRS moves nothing in memory, and lrs.slice limits no task.
# Conditions are named functions, called through eventually.
# shellcheck disable=SC2317
set -u
# shellcheck source=tests/vm/guest/package.sh
. "$LRS_VM_PAYLOAD/guest/package.sh"
ready=$(mktemp -d)
unlimit() {
    local status=$?
    rm -rf "$ready" /run/systemd/system.control/lrs.slice.d
    systemctl daemon-reload
    return "$status"
}
trap 'unlimit; clean_up' EXIT
if [ "$LRS_VM_VARIANT" != v2 ]; then
    echo "not on $LRS_VM_VARIANT: no task is in the memory group of lrs.slice there"
    exit 0
fi
slice=/sys/fs/cgroup/lrs.slice

install_and_start
printf '[slots]\nactive = 2\npassive = 2\n' >/etc/lrs/lrs.toml
systemctl reload lrsd.service || fault "systemctl reload: status $?"
systemctl set-property --runtime lrs.slice MemoryMax=400M

is_named() { lrsctl status --json | grep -q "\"limit_file\": *\"$slice/memory.max\""; }
at_base() { lrsctl status | grep -qE 'passive [0-9]+ of 2([ ,]|$)'; }
is_ready() { [ -e "$ready/$1" ]; }
queued() { [ "$(lrsctl queue --json | grep -o '"name": *"waiter-' | wc -l)" = "$1" ]; }
killed() { sed -n 's/^oom_kill //p' "$slice/memory.events"; }
# A task of 86 MiB, perl included, which says when it has them. It reads them: a string that is computed
# would be there twice.
eat() { # NAME [OPTION]
    # shellcheck disable=SC2016 # perl's
    lrsctl run "${@:2}" --name "$1" -- perl -e '
        open my $zero, "<", "/dev/zero" or die;
        sysread $zero, my $memory, 85 << 20 or die;
        open my $ready, ">", shift or die;
        sleep 100000' "$ready/$1" &
    tasks+=("$!")
}

step 'the limit binds'
eventually "status names the limit" is_named
for number in 1 2 3 4; do
    eat "eater-$number"
    eventually "eater-$number has its memory" is_ready "eater-$number"
done
# While the last one grew there may have been room for one more, also in a reading that is under way;
# free slots go after some cycles.
sampled() { lrsctl status --json | tr -d '\n ' | sed 's/.*"sampled_at":"\([^"]*\)".*/\1/'; }
before=
next_cycle() { [ "$(sampled)" != "$before" ]; }
for _ in 1 2 3; do
    before=$(sampled)
    eventually "a cycle" next_cycle
done
eventually "no slot is open beyond the base" at_base
text=$(lrsctl status | tr -s ' \n' ' ')
printf '%s\n' "$text"
grep -qF "of 400.0 MiB available (the limit in $slice/memory.max)" <<<"$text" ||
    fault "status does not name the limit"
lrsctl doctor | tr -s ' \n' ' ' | grep -qF "of 400.0 MiB available (the limit in $slice/memory.max)" ||
    fault "doctor does not name the limit"

step 'those who wait do so'
for number in 1 2 3 4; do eat "waiter-$number" --wait; done
eventually "four wait" queued 4
sleep 30 # ten cycles on a node with idle CPUs: what must not happen has no event
queued 4 || fault "a slot opened: $(lrsctl status)"
[ "$(killed)" = 0 ] || fault "the kernel killed $(killed) tasks: $(cat "$slice/memory.events")"

step 'one that ends makes room for one'
kill "${tasks[0]}"
eventually "three wait" queued 3
one_ready() { compgen -G "$ready/waiter-*"; }
eventually "it has its memory" one_ready
sleep 6 # two cycles
queued 3 || fault "more than one slot opened: $(lrsctl status)"
[ "$(killed)" = 0 ] || fault "the kernel killed $(killed) tasks: $(cat "$slice/memory.events")"

step 'a reserve above the limit is a failure'
printf '[slots]\nactive = 2\npassive = 2\n[guard]\nmemory_reserve = "1GiB"\n' >/etc/lrs/lrs.toml
text=$(lrsctl doctor | tr -s ' \n' ' ')
grep -qF "guard.memory_reserve is 1.0 GiB: no passive slot is ever offered" <<<"$text" ||
    fault "doctor says: $text"
lrsctl why slots
exit "$((faults > 0))"
