#!/usr/bin/env bash
# Under systemd the log is in the journal with fields to search by, at the right priorities, and
# a flood does not fill it.
# Conditions are named functions, called through eventually.
# shellcheck disable=SC2317
set -u
# shellcheck source=tests/vm/guest/check.sh
. "$LRS_VM_PAYLOAD/guest/check.sh"

bin=$LRS_VM_PAYLOAD/bin
dir=$(mktemp -d)
unit=lrs-check-journal.service
cat >"$dir/lrs.toml" <<TOML
cgroup.root = "lrs-journal-$$"
daemon.runtime_dir = "$dir/run"
daemon.log = "info,lrs=debug"
grpc.listen = ["unix:$dir/lrsd.sock"]
dbus.bus = "off"
TOML
export LRS_ENDPOINT=unix:$dir/lrsd.sock
cleanup() {
    systemctl stop "$unit" 2>/dev/null
    rm -rf "$dir"
}
trap cleanup EXIT
# A limit of the kind that lrsd.service has, small enough to be reached here.
burst=5
systemd-run --quiet --unit="$unit" -p LogRateLimitIntervalSec=10min -p LogRateLimitBurst="$burst" \
    "$bin/lrsd" --config "$dir/lrs.toml"
serves() { "$bin/lrsctl" status >/dev/null 2>&1; }
eventually "lrsd serves" serves

"$bin/lrsctl" run --name sleeper --job nightly --kind map -- true || fault "the task failed"
lines() { journalctl --quiet --no-pager -u "$unit" -o cat "$@"; }
line_there() { [ -n "$(lines "$@")" ]; }
eventually "the completion is in the journal" line_there LRS_EVENT=completed
admitted=$(journalctl --quiet --no-pager -u "$unit" -o export LRS_EVENT=admitted)
printf '%s\n' "$admitted"
task=$(printf '%s\n' "$admitted" | sed -n 's/^LRS_TASK=//p')
[ -n "$task" ] || fault "no LRS_TASK"
for field in LRS_JOB=nightly LRS_KIND=map LRS_TIER=active PRIORITY=7 SYSLOG_IDENTIFIER=lrsd; do
    printf '%s\n' "$admitted" | grep -qx "$field" || fault "the admission lacks $field"
done
printf '%s\n' "$admitted" | grep -q '^LRS_SEQ=[0-9]' || fault "the admission lacks LRS_SEQ"
printf '%s\n' "$admitted" | grep -q '^LRS_REASON=' || fault "the admission lacks LRS_REASON"
[ "$(lines LRS_TASK="$task" | wc -l)" -ge 2 ] || fault "not every line of $task has its id"
lines LRS_TASK="$task"
lines PRIORITY=6 | grep -q 'ready' || fault "the start is not at info"

# An error of start-up is one for the journal too, before there is a log.
printf 'nonsense = 1\n' >"$dir/bad.toml"
systemd-run --quiet --wait --unit=lrs-check-bad "$bin/lrsd" --config "$dir/bad.toml" &&
    fault "a bad configuration started"
bad_there() { [ -n "$(journalctl --quiet --no-pager -u lrs-check-bad -o cat PRIORITY=3)" ]; }
eventually "the bad configuration is an error in the journal" bad_there
systemctl reset-failed lrs-check-bad 2>/dev/null

# A journald that hangs stops the log and nothing else. At trace level one call says more than its
# socket takes.
sed -i 's/^daemon.log = .*/daemon.log = "trace"/' "$dir/lrs.toml"
"$bin/lrsctl" reload || fault "no reload"
journald=$(systemctl show -P MainPID systemd-journald)
kill -STOP "$journald"
for _ in {1..5}; do
    for call in drain resume; do
        timeout 60 "$bin/lrsctl" "$call" || fault "no answer to $call beside a journald that hangs"
    done
done
timeout 60 "$bin/lrsctl" run -- true || fault "no task beside a journald that hangs"
kill -CONT "$journald"

# A flood of failed reloads is cut off by journald, which multiplies the burst by 1 to 6 for the
# space there is (journald.conf(5), RateLimitBurst=).
printf 'nonsense = 1\n' >"$dir/lrs.toml"
main=$(systemctl show -P MainPID "$unit")
for _ in {1..100}; do
    kill -HUP "$main"
    sleep 0.1 # a signal that is still pending swallows the next
done
refused() { lines PRIORITY=3 | grep -c 'was not reloaded'; }
burst_there() { [ "$(refused)" -ge "$burst" ]; }
eventually "a burst of lines is in the journal" burst_there
count=$(refused)
printf '%s lines of 100 passed\n' "$count"
[ "$count" -le "$((6 * burst))" ] || fault "$count lines passed, not at most $((6 * burst))"
exit "$((faults > 0))"
