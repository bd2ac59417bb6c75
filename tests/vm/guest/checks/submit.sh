#!/usr/bin/env bash
# `lrsctl submit`, `log` and the stop of a submitted task, with real services of systemd's, as root
# and by a user's manager.
# Conditions are named functions, called through eventually.
# shellcheck disable=SC2317,SC2119
set -u
root=lrs-submit-$$
slots='slots.active = 1
slots.passive = 0'
# shellcheck source=tests/vm/guest/private.sh
. "$LRS_VM_PAYLOAD/guest/private.sh"
cleanup() {
    systemctl stop 'lrs-submit-*' 2>/dev/null
    end_private
    systemctl stop "user@$uid.service" 2>/dev/null
    loginctl disable-linger lodger 2>/dev/null
    userdel --remove lodger 2>/dev/null
    # v1: as in run-in-unit.sh
    [ "$LRS_VM_VARIANT" = v2 ] || rmdir "/sys/fs/cgroup/blkio/$root" 2>/dev/null
}
trap cleanup EXIT
groupadd --force --system lrs
useradd --create-home --groups lrs lodger || fault "no user for his manager"
uid=$(id -u lodger)
start_daemon

is_task() { lrsctl tasks --no-header -o name | grep -qx "$1"; }
no_task() { ! is_task "$1"; }
waits() { lrsctl queue --json | grep -q "\"name\": *\"$1\""; }
none_waits() { ! waits "$1"; }
said() { [ "$(lrsctl log "$1")" = "$2" ]; }
ended() { ! [ -e "/proc/$1" ]; }
# Before Linux 6.15 systemd may reap a process before lrsd has seen how it ended.
ends() {
    local status
    lrsctl wait "$2" 2>"$dir/ended"
    status=$?
    [ "$status" = "$1" ] || grep -q 'is not known' "$dir/ended" ||
        fault "wait for $2 ended with $status, not $1: $(cat "$dir/ended")"
}
inactive() { ! systemctl is-active --quiet "$1"; }

step "a task in the tiers, its output in the journal, its end in the history"
# The dollar is for the task's shell alone: neither this one nor systemd may expand it.
# shellcheck disable=SC2016
name=$(cd /usr && umask 027 && LC_PAPER=x SECRET=s \
    lrsctl submit --job nightly -- sh -c 'echo "$PWD $(umask) ${LC_PAPER} ${SECRET-none} 100%% $0"; exit 3' 'a  b') ||
    fault "submit failed"
case $name in sh-?????) ;; *) fault "the name is $name" ;; esac
ends 3 "$name"
eventually "its output is in the journal" said "$name" '/usr 0027 x none 100%% a  b'
id=$(lrsctl history --job nightly --no-header -o id)
said "$id" '/usr 0027 x none 100%% a  b' || fault "no log by the id $id: $(lrsctl log "$id")"
eventually "the unit is gone" inactive "lrs-submit-$name.service"

step "systemctl stop ends all of it, also while lrsd is away"
stop_all() {
    local name child
    name=$(lrsctl submit -- sh -c 'sleep infinity & echo $!; setsid sleep infinity') || fault "submit failed"
    case $(lrsctl task "$name" --json | sed -n 's/.*"cgroup": *"\([^"]*\)".*/\1/p') in
    "/$root/"*) ;;
    *) fault "$name is not in the tiers" ;;
    esac
    child_known() { child=$(lrsctl log "$name") && [ -n "$child" ]; }
    eventually "the child is known" child_known
    if [ "$1" = away ]; then kill -STOP "$daemon"; fi
    systemctl stop "lrs-submit-$name.service"
    eventually "the child of $name has ended" ended "$child"
    if [ "$1" = away ]; then kill -CONT "$daemon"; fi
    eventually "$name is over" no_task "$name"
}
stop_all here
stop_all away

step "a name may be anything"
# shellcheck disable=SC2016 # nothing is to be expanded
odd='a b%/$x.timer'
# shellcheck disable=SC2016
name=$(lrsctl submit --name "$odd" -- sh -c 'echo $((1 + 1))')
[ "$name" = "$odd" ] || fault "the name is $name"
ends 0 "$odd"
eventually "its output is in the journal" said "$odd" 2

step "the lrsd that is named is asked, and a variable is given"
# shellcheck disable=SC2016
name=$(env -u LRS_ENDPOINT "$bin/lrsctl" --endpoint "$LRS_ENDPOINT" submit --env 'A=b $c' -- sh -c 'echo "$A"') ||
    fault "submit failed"
ends 0 "$name"
# shellcheck disable=SC2016
eventually "its output is in the journal" said "$name" 'b $c'

step "what gets no slot is no success"
lrsctl submit --name slotless --reservation r1-1 -- true 2>"$dir/slotless"
[ $? = 125 ] || fault "submit without a slot: $(cat "$dir/slotless")"
grep -q 'slotless got no slot' "$dir/slotless" || fault "said: $(cat "$dir/slotless")"

step "SIGKILL is not needed by what ends, and lrsctl kill serves too"
name=$(lrsctl submit --name killed -- sleep infinity)
[ "$name" = killed ] || fault "the name is $name"
lrsctl submit --name killed -- true 2>"$dir/twice" && fault "two units of one name"
grep -q 'systemd-run failed: .*lrs-submit-killed' "$dir/twice" || fault "said: $(cat "$dir/twice")"

step "what waits is in the queue, and leaves it with its unit"
second=$(lrsctl submit -- true)
waits "$second" || fault "$second is not in the queue"
systemctl stop "lrs-submit-$second.service"
eventually "nobody waits" none_waits "$second"
third=$(cd "$dir" && lrsctl submit --output ./third -- sh -c 'echo out; echo error >&2')
waits "$third" || fault "$third is not in the queue"
lrsctl kill killed
eventually "killed is over" no_task killed
ends 0 "$third"
# Emulated, it may have waited long enough to be told so.
[ "$(grep -v '^lrsctl: waiting for a slot' "$dir/third")" = "out
error" ] || fault "in the file: $(cat "$dir/third")"

step "as a user, by his manager"
loginctl enable-linger lodger || fault "no linger for the user manager"
systemctl start "user@$uid.service" || fault "no user manager"
user() { (cd / && runuser -u lodger -- env XDG_RUNTIME_DIR="/run/user/$uid" "$@"); }
name=$(user "$bin/lrsctl" submit -- sh -c 'sleep infinity & sleep infinity') || fault "submit failed"
is_task "$name" || fault "$name is no task"
user systemctl --user stop "lrs-submit-$name.service"
eventually "$name is over" no_task "$name"
# As after a login: the manager runs, and nothing keeps it.
rm /var/lib/systemd/linger/lodger
user "$bin/lrsctl" submit --name lone -- true 2>"$dir/lone" || fault "submit failed: $(cat "$dir/lone")"
grep -q 'ends with your last login' "$dir/lone" || fault "no word of lingering: $(cat "$dir/lone")"
user env XDG_RUNTIME_DIR=/nowhere DBUS_SESSION_BUS_ADDRESS='' "$bin/lrsctl" submit -- true 2>"$dir/none"
[ $? = 125 ] || fault "without a user manager: $(cat "$dir/none")"
grep -q 'needs your user manager' "$dir/none" || fault "said: $(cat "$dir/none")"

! grep -q panicked "$dir/log" || fault "lrsd panicked"
exit "$((faults > 0))"
