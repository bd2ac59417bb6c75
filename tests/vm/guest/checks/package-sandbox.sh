#!/usr/bin/env bash
# The daemon is fenced in as far as its work allows, and no task is: a task of `lrsctl run` is
# what it would be without LRS, beside its cgroup.
set -u
# shellcheck source=tests/vm/guest/package.sh
. "$LRS_VM_PAYLOAD/guest/package.sh"
trap clean_up EXIT

install_and_start

step 'what the daemon may'
table=$(systemd-analyze security --no-pager lrsd.service)
grep '✗' <<<"$table" | sed 's/  *$//'
tail -n 1 <<<"$table"
score=$(sed -n 's/^.*Overall exposure level for lrsd.service: \([0-9.]*\).*/\1/p' <<<"$table")
awk -v score="$score" 'BEGIN { exit !(score != "" && score <= 3.0) }' ||
    fault "the exposure is ${score:-unknown}, not at most 3.0"
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

exit "$((faults > 0))"
