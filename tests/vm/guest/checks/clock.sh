#!/usr/bin/env bash
# The wall clock jumps a day ahead and two days back: nothing that LRS measures goes by it. Only here,
# for another test on the same machine would jump as well.
# Conditions are named functions, called through eventually.
# shellcheck disable=SC2317
set -u
# shellcheck source=tests/vm/guest/check.sh
. "$LRS_VM_PAYLOAD/guest/check.sh"

# By count: bash's SECONDS go by the wall clock.
eventually() {
    local what=$1 tries
    shift
    for ((tries = 0; tries < 300; tries++)); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    fault "$what: not after 300 tries: $*"
    return 1
}

bin=$LRS_VM_PAYLOAD/bin
dir=$(mktemp -d)
unit=lrs-check-clock.service
cat >"$dir/lrs.toml" <<TOML
cgroup.root = "lrs-clock-$$"
daemon.runtime_dir = "$dir/run"
daemon.sample_period = "1s"
slots.active = 1
slots.passive = 1
slots.passive_max = 1
grpc.listen = ["unix:$dir/lrsd.sock"]
dbus.bus = "off"
TOML
export LRS_ENDPOINT=unix:$dir/lrsd.sock
timedatectl set-ntp false 2>/dev/null
cleanup() {
    systemctl stop "$unit" 2>/dev/null
    rm -rf "$dir"
}
trap cleanup EXIT
systemd-run --quiet --unit="$unit" "$bin/lrsd" --config "$dir/lrs.toml"
serves() { "$bin/lrsctl" status >/dev/null 2>&1; }
eventually "lrsd serves" serves

# What is there at each jump: an active task, a passive one, one that waits.
begin() {
    "$bin/lrsctl" run --wait --name "$1" -- sh -c "until [ -e $dir/end-$1 ]; do sleep 0.1; done; date +%s >$dir/$1" &
    eventually "$1 is there" there "$1"
}
there() { "$bin/lrsctl" tasks --json | grep -q "\"name\": *\"$1\"" || waits "$1"; }
waits() { "$bin/lrsctl" queue --json | grep -q "\"name\": *\"$1\""; }
tier() { "$bin/lrsctl" tasks --json | tr -d ' \n' | grep -q "\"name\":\"$1\"[^}]*\"tier\":\"$2\"\|\"tier\":\"$2\"[^}]*\"name\":\"$1\""; }
ok() { "$bin/lrsctl" status >/dev/null; }
turns() { "$bin/lrsctl" status --json | sed -n 's/^ *"cycle_seq": *\([0-9]*\).*/\1/p'; }

seen() {
    printf '%s\n' "$1"
    date
    "$bin/lrsctl" tasks
    "$bin/lrsctl" queue
    "$bin/lrsctl" events --no-follow 2>/dev/null | tail -n 5
}

begin a1
eventually "a1 is active" tier a1 active
begin p1
begin w1
eventually "w1 waits" waits w1
step "a day ahead"
date -s '+1 day' >/dev/null
seen "after the jump ahead"
ok || fault "status is not ok after a jump ahead: $("$bin/lrsctl" status 2>&1)"
waits w1 || fault "w1 waits no more"
touch "$dir/end-a1"
eventually "p1 is promoted after a jump ahead" tier p1 active
eventually "w1 has its slot" tier w1 passive

step "two days back"
begin w2
eventually "w2 waits" waits w2
date -s '-2 days' >/dev/null
seen "after the jump back"
ok || fault "status is not ok after a jump back: $("$bin/lrsctl" status 2>&1)"
touch "$dir/end-p1"
eventually "w1 is promoted after a jump back" tier w1 active
eventually "w2 has the slot of w1" tier w2 passive

step "a daemon that starts in another day finds them"
date -s '+3 days' >/dev/null
systemctl restart "$unit" 2>/dev/null || {
    systemctl stop "$unit"
    systemd-run --quiet --unit="$unit" "$bin/lrsd" --config "$dir/lrs.toml"
}
eventually "lrsd serves again" serves
eventually "w1 is still active" tier w1 active
eventually "w2 is still passive" tier w2 passive
touch "$dir/end-w1" "$dir/end-w2"
eventually "w2 ends" test -s "$dir/w2"
ended() { [ "$("$bin/lrsctl" history --json | tr -d ' \n' | grep -o '"ended_at"' | wc -l)" -ge 4 ]; }
eventually "all four are in the history" ended
"$bin/lrsctl" history
"$bin/lrsctl" history --json | grep -E '"(elapsed|waited|age)[a-z_]*": *-' && fault "a duration is negative"
date -s '-2 days' >/dev/null
exit "$((faults > 0))"
