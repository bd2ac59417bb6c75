#!/usr/bin/env bash
# The installed service, as a node has it: systemd's own tools show tasks in lrs-tasks.scope, in
# lrs.slice, under readable names; the daemon is fenced in as far as its work allows, and no task
# is (a task of `lrsctl run` is what it would be without LRS, beside its cgroup); `systemctl reload
# lrsd` returns with the new settings in force, or fails, says every fault and keeps the old ones.
set -u
# shellcheck source=tests/vm/guest/package.sh
. "$LRS_VM_PAYLOAD/guest/package.sh"
trap clean_up EXIT

install_and_start
start_tasks 3
remember
mapfile -t task_ids < <(cut -d'"' -f4 <<<"$ids_before")

step 'systemctl status lrs-tasks.scope'
shown=$(systemctl status --no-pager --full lrs-tasks.scope) || fault "status $?"
printf '%s\n' "$shown"
for pid in "${tasks[@]}"; do
    grep -q "─$pid sleep" <<<"$shown" || fault "systemctl status does not show process $pid"
done
[ "$(systemctl show --property Slice --value lrs-tasks.scope)" = lrs.slice ] ||
    fault "the scope is not in lrs.slice"
[ "$(systemctl show --property Delegate --value lrs-tasks.scope)" = yes ] ||
    fault "the scope is not delegated"
[ "$(systemctl show --property TasksMax --value lrs-tasks.scope)" = infinity ] ||
    fault "TasksMax= of the scope is $(systemctl show --property TasksMax --value lrs-tasks.scope)"

step systemd-cgls
shown=$(systemd-cgls --no-pager --unit lrs.slice)
printf '%s\n' "$shown"
for pid in "${tasks[@]}"; do
    grep -q "─ *$pid sleep" <<<"$shown" || fault "systemd-cgls does not show process $pid"
done
for id in "${task_ids[@]}"; do
    grep -qF -- "$id" <<<"$shown" || fault "systemd-cgls does not show the id $id"
done

step systemd-cgtop
shown=$(systemd-cgtop --batch --iterations 1 --depth 5 --raw)
grep -F lrs <<<"$shown"
for id in "${task_ids[@]}"; do
    grep -qF -- "$id" <<<"$shown" || fault "systemd-cgtop does not show the id $id"
done

if [ "$LRS_VM_VARIANT" = v2 ]; then
    step 'the memory floor'
    for group in lrsd.slice lrsd.slice/lrsd.service; do
        floor=$(cat "/sys/fs/cgroup/$group/memory.min")
        [ "$floor" = $((64 * 1024 * 1024)) ] || fault "memory.min of $group is $floor"
    done
fi
kill "${tasks[@]}"
wait
tasks=()

step 'what the daemon may'
table=$(systemd-analyze security --no-pager lrsd.service)
grep '✗' <<<"$table" | sed 's/  *$//'
tail -n 1 <<<"$table"
score=$(sed -n 's/^.*Overall exposure level for lrsd.service: \([0-9.]*\).*/\1/p' <<<"$table")
awk -v score="$score" 'BEGIN { exit !(score != "" && score <= 2.5) }' ||
    fault "the exposure is ${score:-unknown}, not at most 2.5"
grep -E '^(Seccomp|NoNewPrivs|Cap(Eff|Bnd)):' "/proc/$(main_pid)/status"
threads=$(ps -L -o cls=,comm= -p "$(main_pid)")
printf '%s\n' "$threads"
grep -qE '^ *FF +lrs-loop$' <<<"$threads" || fault "the control loop has no real-time priority"
cat "/proc/$(main_pid)/oom_score_adj"
denied=$(journalctl --no-pager --boot --output cat --unit lrsd.service |
    grep -iE 'denied|not permitted|read-only')
[ -z "$denied" ] || fault "the daemon was kept from its work: $denied"

# What the kernel restricts processes by, as this shell sees itself.
# shellcheck disable=SC2016 # for the shell that runs it
restrictions='grep -E "^(Seccomp|Seccomp_filters|NoNewPrivs|Cap[A-Za-z]*|Uid|Gid|Groups|SigIgn|SigBlk):" /proc/self/status
for space in mnt net pid ipc uts user cgroup; do readlink /proc/self/ns/$space; done
cat /proc/self/oom_score_adj; cat /proc/self/limits; umask; pwd; env | grep -v "^_=" | sort'

step 'what a task may'
plain=$(bash -c "$restrictions")
tasked=$(lrsctl run -- bash -c "$restrictions") || fault "lrsctl run: status $?"
[ "$plain" = "$tasked" ] ||
    fault "a task is not what a plain process is:"$'\n'"$(diff <(echo "$plain") <(echo "$tasked"))"

# Each line a thing that a sandbox would take away.
lrsctl run -- bash <<'TASK' || fault "see above"
faults=0
try() { "$@" || { echo "fault: a task cannot: $*" && faults=1; }; }
try dd if=/dev/null of=/dev/null status=none
try dd if=/dev/zero of=/dev/null bs=1 count=1 status=none
try dd if="/dev/$(ls /sys/block | grep '^vd' | head -n 1)" of=/dev/null bs=4096 count=1 status=none
kmsg() { echo 'lrs check: a task writes here' >/dev/kmsg; }
try kmsg
udp() { exec 3<>/dev/udp/127.0.0.1/9 && echo >&3 && exec 3>&-; }
try udp
try ip -brief address
try unshare --mount --net --uts true
try touch /usr/lrs-check /etc/lrs-check /home/lrs-check /tmp/lrs-check ~root/lrs-check
rm -f /usr/lrs-check /etc/lrs-check /home/lrs-check /tmp/lrs-check ~root/lrs-check
forks() {
    local number
    for number in {1..100}; do sleep 0 & done || return
    wait
    for number in {1..100}; do (exit 0) || return; done
}
try forks
exit "$faults"
TASK

readonly config=/etc/lrs/lrs.toml

in_force() { lrsctl config show | grep -x "$1 = .*"; }

# Reloads and checks that it failed, that the journal has each of the words, and that nothing
# changed.
refused() {
    local before word said since
    before=$(lrsctl config show)
    since=$(journalctl --no-pager --lines 1 --show-cursor | sed -n 's/^-- cursor: //p')
    ! systemctl reload lrsd.service || fault "a reload with $(cat "$config") passed"
    # Journald has written what came before it when this returns.
    journalctl --sync
    said=$(journalctl --no-pager --output cat --after-cursor "$since" --unit lrsd.service)
    printf '%s\n' "$said"
    for word in "$@"; do
        grep -qF -- "$word" <<<"$said" || fault "the journal does not say $word"
    done
    [ "$(lrsctl config show)" = "$before" ] || fault "a refused reload changed settings"
    [ "$(systemctl is-active lrsd.service)" = active ] || fault "a refused reload ended lrsd"
}

step 'a good change'
printf '[slots]\npassive_max = 7\n' >"$config"
systemctl reload lrsd.service || fault "systemctl reload: status $?"
[ "$(in_force passive_max)" = 'passive_max = 7' ] || fault "in force: $(in_force passive_max)"

step 'two faults'
printf '[slots]\npassive_max = "many"\nactiv = 3\n' >"$config"
refused slots.passive_max slots.activ

step 'a key that needs a restart'
printf '[slots]\npassive_max = 9\n[daemon]\nruntime_dir = "/run/elsewhere"\n' >"$config"
refused daemon.runtime_dir restart

step 'started with a bad configuration'
printf 'nonsense\n' >"$config"
! systemctl restart lrsd.service || fault "lrsd started with a bad configuration"
state=$(systemctl show --property ActiveState,Result,ExecMainStatus,NRestarts lrsd.service)
printf '%s\n' "$state"
grep -qx ExecMainStatus=78 <<<"$state" || fault "the exit status is not 78"
[ "$(systemctl is-failed lrsd.service)" = failed ] || fault "a bad configuration is tried again"

exit "$((faults > 0))"
