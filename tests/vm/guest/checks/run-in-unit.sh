#!/usr/bin/env bash
# `lrsctl run` in a unit of systemd's leaves it only if nothing is lost: one case for each row of
# the table in lrsctl-run(1), on real units, sessions and user managers.
# Conditions are named functions, called through eventually.
# shellcheck disable=SC2317
set -u
root=lrs-keep-$$
slots='slots.active = 4
slots.passive = 8'
# shellcheck source=tests/vm/guest/private.sh
. "$LRS_VM_PAYLOAD/guest/private.sh"
cleanup() {
    systemctl stop 'keep-*' 2>/dev/null
    end_private
    systemctl stop "user@$uid.service" 2>/dev/null
    loginctl disable-linger lodger 2>/dev/null
    userdel --remove lodger 2>/dev/null
    # v1: somebody else removes the empty root there meanwhile (systemd trims, it seems), the next
    # task makes it anew without lrsd's mark, and so lrsd leaves it.
    [ "$LRS_VM_VARIANT" = v2 ] || rmdir "/sys/fs/cgroup/blkio/$root" 2>/dev/null
}
trap cleanup EXIT

field() { # of the task with this name, as its JSON has it
    lrsctl tasks --json | tr -d '\n' | sed 's/{ *"id"/\n&/g' | grep "\"name\": *\"$1\"" |
        sed -n "s/.*\"$2\": *\"\([^\"]*\)\".*/\1/p"
}
is_task() { [ -n "$(field "$1" tier)" ]; }
no_task() { ! is_task "$1"; }
path_of() { field "$1" cgroup; }
pid_of() { # no string in JSON
    lrsctl tasks --json | tr -d '\n ' | sed 's/{"id"/\n&/g' | grep "\"name\":\"$1\"" |
        sed -n 's/.*"pid":\([0-9]*\).*/\1/p'
}
tracked() { # the path of a process where systemd tracks it
    sed -n 's/^[0-9]*:name=systemd://p; s/^0:://p' "/proc/$1/cgroup" | head -n 1
}
memory_limit() { # in force on a process, the least of all on the way up; in bytes
    local group least=max value file
    if [ "$LRS_VM_VARIANT" = v2 ]; then
        group=/sys/fs/cgroup$(tracked "$1") file=memory.max
    else
        group=/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory://p' "/proc/$1/cgroup")
        file=memory.limit_in_bytes
    fi
    while [ "${group#/sys/fs/cgroup/}" != "$group" ] && [ "$group" != /sys/fs/cgroup/memory ]; do
        value=$(cat "$group/$file" 2>/dev/null)
        case $value in '' | max) ;; *) [ "$least" != max ] && [ "$value" -ge "$least" ] || least=$value ;; esac
        group=${group%/*}
    done
    printf '%s' "$least"
}
ended() { ! [ -e "/proc/$1" ]; }
unit() { # name, properties..., -- command
    local name=$1
    shift
    systemd-run --quiet --collect --unit="keep-$name" -E LRS_ENDPOINT="$LRS_ENDPOINT" "$@"
}
refused() { # words expected, words not expected (or -), what systemd-run is given
    local words=$1 without=$2 text
    shift 2
    text=$(systemd-run --quiet --collect --wait --pipe -E LRS_ENDPOINT="$LRS_ENDPOINT" "$@" 2>&1) &&
        fault "not refused: $* said: $text"
    printf 'refused: %s\n' "$text"
    case $text in *"$words"*) ;; *) fault "$*: $text (expected: $words)" ;; esac
    [ "$without" != - ] || return
    case $text in *"$without"*) fault "$*: $text (not expected: $without)" ;; esac
}
leaves() { # name: a task in the daemon's own group
    eventually "$1 is a task" is_task "$1" || return
    case $(path_of "$1") in
    "/$root/"*) ;;
    *) fault "$1 did not leave: $(path_of "$1")" ;;
    esac
}
stays() { # name, unit: in place, and its stop ends it
    local pid
    eventually "$1 is a task" is_task "$1" || return
    pid=$(pid_of "$1")
    [ "$(field "$1" attachment)" = in_place ] || fault "$1 is $(field "$1" attachment), not in place"
    case $(tracked "$pid") in
    */"$2") ;;
    *) fault "$1 is in $(tracked "$pid"), not in $2" ;;
    esac
}
stops() { # name, unit: systemctl stop ends all of the task
    local pid
    pid=$(pid_of "$1")
    [ -n "$pid" ] || { fault "$1 is no task"; return; }
    systemctl stop "$2"
    eventually "systemctl stop $2 ends process $pid" ended "$pid" || kill -KILL "$pid"
    eventually "$1 is over" no_task "$1"
}
gone() { # name: ends a task that left
    kill -KILL "$(pid_of "$1")" 2>/dev/null
    eventually "$1 is over" no_task "$1"
}

groupadd --force --system lrs
useradd --create-home --groups lrs lodger || fault "no user for the rights"
uid=$(id -u lodger)
cat >"$dir/script" <<SH
#!/bin/sh
# What a service's script does: run is not the service's only process.
"$bin/lrsctl" run "\$@"
status=\$?
exit \$status
SH
chmod 755 "$dir/script"
# lrsd.service does not have it, and what delegates a unit must be seen without it.
start_daemon setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin

step "a limit holds: systemd-run -p MemoryMax=60M lrsctl run"
unit limit -p MemoryMax=60M "$bin/lrsctl" run --name limit -- sleep infinity
stays limit keep-limit.service
[ "$(memory_limit "$(pid_of limit)")" = 62914560 ] ||
    fault "the limit in force is $(memory_limit "$(pid_of limit)")"
warned() {
    journalctl --boot --no-pager --output=cat --unit=keep-limit.service |
        grep 'warning: .*ranks only among the groups in /'
}
eventually "it is warned of its neighbours" warned
stops limit keep-limit.service

step "a stop ends the children: systemctl stop of a service"
unit stop "$bin/lrsctl" run --name stop -- sh -c 'sleep infinity & sleep infinity'
stays stop keep-stop.service
stops stop keep-stop.service

step "a timer's service"
unit timer --on-active=1 "$bin/lrsctl" run --name timer -- sleep infinity
stays timer keep-timer.service
stops timer keep-timer.service

step "a service whose script calls run"
refused '--leave-unit' - "$dir/script" -- true
unit leaver "$dir/script" --leave-unit --name leaver -- sleep infinity
leaves leaver
gone leaver
case $LRS_VM_VARIANT in v2) lost=memory.max ;; *) lost='systemctl stop' ;; esac
refused "$lost" - -p MemoryMax=200M "$dir/script" -- true

step "cron: KillMode=process"
unit cron -p KillMode=process "$dir/script" --name cron -- sleep infinity
leaves cron
gone cron

step "systemd-run --scope"
systemd-run --quiet --scope --unit=keep-scope "$bin/lrsctl" run --name scope -- sleep infinity &
leaves scope
gone scope
systemd-run --quiet --scope --unit=keep-capped -p MemoryMax=60M \
    "$bin/lrsctl" run --name capped -- sleep infinity 2>"$dir/capped" &
if [ "$LRS_VM_VARIANT" = v2 ]; then
    stays capped keep-capped.scope
    grep -q 'warning: task' "$dir/capped" || fault "no warning: $(cat "$dir/capped")"
    stops capped keep-capped.scope
else # memory is not left there, so nothing is lost
    leaves capped
    [ "$(memory_limit "$(pid_of capped)")" = 62914560 ] || fault "the limit of the scope is lost"
    gone capped
fi

step "a login's session"
# Its shell is not the session's only process, as of a login by ssh.
cat >"$dir/login" <<SH
#!/bin/sh
cat /proc/self/cgroup >"/tmp/keep-session.$$"
"$bin/lrsctl" run --name session -- sleep infinity
SH
chmod 755 "$dir/login"
unit login -p PAMName=login -p User=lodger "$dir/login"
leaves session
grep -q '/session-[^/]*\.scope' "/tmp/keep-session.$$" ||
    fault "the login was in no session: $(cat "/tmp/keep-session.$$")"
rm -f "/tmp/keep-session.$$"
gone session
systemctl stop keep-login.service 2>/dev/null

step "systemd-run --user"
# Else logind stops the manager of a user ten seconds after the last session.
loginctl enable-linger lodger || fault "no linger for the user manager"
systemctl start "user@$uid.service" || fault "no user manager"
user() {
    runuser -u lodger -- env XDG_RUNTIME_DIR="/run/user/$uid" systemd-run --user --quiet --collect \
        -E LRS_ENDPOINT="$LRS_ENDPOINT" "$@"
}
# Without a bus of the user's own systemd-run cannot wait for a service.
user -p StandardError="file:/tmp/keep-user.$$" "$bin/lrsctl" run --name user-service -- sleep infinity
user_is_told() { grep 'no CPU weight.*--leave-unit' "/tmp/keep-user.$$"; }
eventually "a user's service is refused, and told why" user_is_told
cat "/tmp/keep-user.$$"
rm -f "/tmp/keep-user.$$"
no_task user-service || fault "a user's service left its unit"
user --scope "$bin/lrsctl" run --name user-scope -- sleep infinity &
leaves user-scope
gone user-scope
user "$bin/lrsctl" run --leave-unit --name user-leaver -- sleep infinity
leaves user-leaver
gone user-leaver
if [ "$LRS_VM_VARIANT" = v2 ]; then
    user --unit=keep-user -p CPUWeight=100 "$bin/lrsctl" run --name user -- sleep infinity
    stays user keep-user.service
    pid=$(pid_of user)
    runuser -u lodger -- env XDG_RUNTIME_DIR="/run/user/$uid" systemctl --user stop keep-user.service
    eventually "systemctl --user stop ends the task" ended "$pid"
    eventually "user is over" no_task user
fi

step "a user's scope that was booked in observe mode is attached"
again() { # the daemon, in this mode
    kill "$daemon"
    wait "$daemon" || fault "lrsd did not stop cleanly"
    sed -i '/^daemon.mode/d' "$dir/lrs.toml"
    echo "daemon.mode = \"$1\"" >>"$dir/lrs.toml"
    start_daemon
}
again observe
user --scope "$bin/lrsctl" run --name booked -- sleep infinity &
eventually "booked is a task" is_task booked
[ "$(field booked attachment)" = none ] || fault "booked is $(field booked attachment)"
again enforce
left() { [ "$(field booked attachment)" = own ]; }
eventually "booked left its scope" left
gone booked

step "a member in a service of the system"
refused '--leave-unit' - -p User=lodger "$dir/script" -- true
refused 'takes an administrator' - -p User=lodger "$bin/lrsctl" run -- true
unit member -p User=lodger "$dir/script" --leave-unit --name member -- sleep infinity
leaves member
gone member
if [ "$LRS_VM_VARIANT" = v2 ]; then
    refused 'ask an administrator' --leave-unit -p User=lodger -p MemoryMax=200M "$dir/script" -- true
    refused 'memory.max' - -p User=lodger -p MemoryMax=200M "$dir/script" --leave-unit -- true
fi

step "a delegated unit"
# A file, because systemd has its own idea of $ in a command line. As a manager of groups does:
# its own processes in one group, what it starts beside it.
cat >"$dir/delegated" <<SH
#!/bin/sh
group=/sys/fs/cgroup\$(sed -n 's/^0:://p' /proc/self/cgroup)
mkdir "\$group/main" && echo \$\$ >"\$group/main/cgroup.procs" &&
    echo '+cpu +memory' >"\$group/cgroup.subtree_control"
"$bin/lrsctl" run --name delegated -- sh -c 'sleep infinity & sleep infinity'
SH
chmod 755 "$dir/delegated"
# Nothing is taken out of a delegated unit, and no group is made in it.
is_said() { journalctl --boot --no-pager --output=cat --unit="keep-$1.service" | grep "is keep-$1.service's"; }
if [ "$LRS_VM_VARIANT" = v2 ]; then
    unit delegated -p Delegate=yes "$dir/delegated"
    eventually "a script in a delegated unit is refused" is_said delegated
    no_task delegated || fault "it is in $(path_of delegated)"
    systemctl stop keep-delegated.service 2>/dev/null
fi
refused "keep-shared.service's" - --unit=keep-shared -p Delegate=yes "$dir/script" -- true
# The only process of one is managed in place, also without a limit.
unit single -p Delegate=yes -p CPUWeight=100 "$bin/lrsctl" run --name single -- sleep infinity
stays single keep-single.service
stops single keep-single.service
# An administrator may take it out.
unit taken -p Delegate=yes "$dir/script" --leave-unit --name taken -- sleep infinity
leaves taken
gone taken
refused 'only an administrator' - -p User=lodger -p Delegate=yes "$dir/script" --leave-unit -- true

step "all that is in a unit, admitted by pid, is the unit; a part leaves with a warning"
unit whole -p CPUWeight=300 sleep infinity
main_of() { systemctl show --value --property=MainPID "keep-$1.service"; }
has_main() { [ "$(main_of "$1")" != 0 ]; }
eventually "keep-whole.service runs" has_main whole
lrsctl admit --name whole "$(main_of whole)" || fault "not admitted"
stays whole keep-whole.service
lrsctl release "$(field whole id)" || fault "not released"
[ "$(systemctl show --value --property=CPUWeight keep-whole.service)" = 300 ] || fault "its weight is lost"
systemctl stop keep-whole.service
unit lossy sh -c 'sleep 27182 & sleep infinity'
eventually "keep-lossy.service runs" pgrep -x -f 'sleep 27182'
lrsctl admit --name lossy "$(pgrep -x -f 'sleep 27182')" 2>"$dir/lossy" ||
    fault "not admitted: $(cat "$dir/lossy")"
grep -q 'systemctl stop keep-lossy.service' "$dir/lossy" || fault "no warning: $(cat "$dir/lossy")"
leaves lossy
gone lossy
systemctl stop keep-lossy.service

step "a scope that a task asks for is left alone"
unit scoped -p KillMode=process "$dir/script" --name scoped -- \
    systemd-run --quiet --scope --unit=keep-inner -p MemoryMax=50M sleep 27183
in_scope() { # who is in the scope that the task asked for
    # systemd-run names the program by its path.
    pgrep -f 'sleep 27183$' | while read -r one; do
        case $(tracked "$one") in */keep-inner.scope) echo "$one" ;; esac
    done | grep .
}
eventually "it is in its scope" in_scope
sampled() { lrsctl status --json | tr -d '\n ' | sed 's/.*"sampled_at":"\([^"]*\)".*/\1/'; }
before=
next_cycle() { [ "$(sampled)" != "$before" ]; }
for _ in 1 2 3; do
    before=$(sampled)
    eventually "a cycle" next_cycle
done
pid=$(in_scope | head -n 1)
[ -n "$pid" ] || fault "it was taken out of its scope"
[ -z "$pid" ] || [ "$(memory_limit "$pid")" = 52428800 ] ||
    fault "the limit of the scope is lost: $(memory_limit "$pid")"
systemctl stop keep-inner.scope
eventually "scoped is over" no_task scoped

step "a run inside a task uses the outer slot"
unit outer "$bin/lrsctl" run --name outer -- "$dir/script" --name inner -- sleep 31415
stays outer keep-outer.service
no_task inner || fault "a second task in the same unit"
eventually "the inner command runs" pgrep -x -f 'sleep 31415'
stops outer keep-outer.service

step "the slot comes late"
for _ in {1..12}; do
    systemd-run --quiet --scope --collect "$bin/lrsctl" run --name filler -- sleep infinity &
done
full() { [ "$(pid_of filler | wc -l)" = 12 ]; }
eventually "all slots are taken" full
unit late -p MemoryMax=60M "$bin/lrsctl" run --wait --name late -- sleep infinity
waits() { lrsctl status --json | tr -d '\n ' | grep -q '"waiting":1'; }
eventually "late waits" waits
kill -KILL "$(pid_of filler | head -n 1)"
stays late keep-late.service
stops late keep-late.service
for pid in $(pid_of filler); do kill -KILL "$pid"; done
eventually "no filler is left" no_task filler
# A group that the kernel still holds busy is tried again each cycle, and not after a stop.
tidy() { [ -z "$(find /sys/fs/cgroup -type d -path "*/$root/t*" -print -quit)" ]; }
eventually "no group is left" tidy

step "a systemd that hangs is waited for once, and what was assumed is said"
kill "$daemon"
wait "$daemon" || fault "lrsd did not stop cleanly"
systemd-socket-activate --listen="$dir/hangs" sleep infinity 2>/dev/null &
hangs=$!
eventually "a bus that hangs" test -S "$dir/hangs"
# shellcheck disable=SC2016 # for the inner shell
start_daemon env DBUS_SYSTEM_BUS_ADDRESS="unix:path=$dir/hangs" unshare --mount \
    sh -c 'mount --bind /dev/null /run/systemd/private && exec "$@"' sh
refused 'is assumed, because systemd' - -p KillMode=process "$dir/script" -- true
systemd-run --quiet --scope --unit=keep-deaf "$bin/lrsctl" run --name deaf -- sleep infinity &
leaves deaf
gone deaf
kill "$hangs"
forgotten() { ! ls "$dir"/run/state/task-*.json >/dev/null 2>&1; }
eventually "no record is left at the end" forgotten
eventually "no group is left at the end" tidy
! grep -q panicked "$dir/log" || fault "lrsd panicked"
exit "$((faults > 0))"
