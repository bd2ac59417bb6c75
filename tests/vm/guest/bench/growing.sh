#!/usr/bin/env bash
# What a queue of tasks that grow leaves of the memory: each takes 250 MiB over five seconds and then waits for
# fifteen, and far from all fit at once. Prints the least memory available at any time beside
# guard.memory_reserve, which slots opened and what the guard did. Figures, not a test:
#
#   packaging/build --profile release --format deb --fast
#   tests/vm/run --add LRS.deb --test-timeout 1200 tests/vm/guest/bench/growing.sh
set -u
count=${1:-${LRS_BENCH_TASKS:-40}}
package=$(echo "$LRS_VM_PAYLOAD"/extra/lrs_*.deb)
[ -e "$package" ] || { echo "give the package by --add" && exit 1; }
dpkg --install "$package" >/dev/null || exit 1
trap 'systemctl stop lrsd; dpkg --purge lrs >/dev/null 2>&1' EXIT
systemctl start lrsd || exit 1
lrsctl --version

field() { sed -n "s/^$1: *\([0-9]*\) kB/\1/p" /proc/meminfo; }
# shellcheck disable=SC2016 # the variables are perl's
grow='for (1..50) { push @a, chr(65 + $_ % 26) x (5 << 20); select undef, undef, undef, .1 } sleep 15'

total=$(field MemTotal) least=$(field MemAvailable) began=$SECONDS
printf '%d MiB, of which %d are available at first\n' $((total / 1024)) $((least / 1024))
for ((number = 0; number < count; number++)); do
    lrsctl run --wait -- perl -e "$grow" 2>/dev/null &
done
while [ -n "$(jobs -r)" ]; do
    available=$(field MemAvailable)
    ((available < least)) && least=$available
    sleep 0.2
done
wait
printf '%d tasks in %d s\n' "$count" $((SECONDS - began))
printf 'least available %d MiB, reserve (a twentieth) %d MiB\n' $((least / 1024)) $((total / 20 / 1024))
lrsctl status | grep -E '^(slots|guard|tasks|totals)'
lrsctl events --no-follow | grep -cE ' guard' | sed 's/^/events of the guard: /'
lrsctl events --no-follow | grep -E ' (expanded|shrunk|guard) ' | tail -40
