#!/usr/bin/env bash
# The guest is what was asked for: without this, a v1 run that booted v2 would pass.
set -u
# shellcheck source=tests/vm/guest/check.sh
. "$LRS_VM_PAYLOAD/guest/check.sh"
kind() { stat -f -c %T "$1" 2>/dev/null; }
has_word() { case " $(cat "$1" 2>/dev/null) " in *" $2 "*) ;; *) return 1 ;; esac }

printf 'variant %s, kernel %s, %s\n' "$LRS_VM_VARIANT" "$(uname -r)" "$(systemctl --version | head -n 1)"
grep cgroup /proc/self/mountinfo | cut -d' ' -f5- || true

top=$(kind /sys/fs/cgroup)
case $LRS_VM_VARIANT in
v2)
    [ "$top" = cgroup2fs ] || fault "/sys/fs/cgroup is $top, not cgroup2fs"
    for controller in cpu io memory pids; do
        has_word /sys/fs/cgroup/cgroup.controllers "$controller" ||
            fault "cgroup.controllers lacks $controller"
    done
    ! grep -q ' - cgroup ' /proc/self/mountinfo || fault "a v1 hierarchy is mounted"
    ;;
v1 | hybrid)
    [ "$top" = tmpfs ] || fault "/sys/fs/cgroup is $top, not tmpfs"
    for controller in cpu cpuacct blkio freezer; do
        [ "$(kind "/sys/fs/cgroup/$controller/")" = cgroupfs ] ||
            fault "no v1 hierarchy at /sys/fs/cgroup/$controller"
    done
    [ -e /sys/fs/cgroup/cpu/cpu.shares ] || [ -e /sys/fs/cgroup/cpu/system.slice/cpu.shares ] ||
        fault "the v1 cpu hierarchy has no cpu.shares"
    if [ "$LRS_VM_VARIANT" = hybrid ]; then
        [ "$(kind /sys/fs/cgroup/unified)" = cgroup2fs ] ||
            fault "no cgroup2 mount at /sys/fs/cgroup/unified"
    else
        ! grep -q ' - cgroup2 ' /proc/self/mountinfo || fault "a cgroup2 hierarchy is mounted"
    fi
    ;;
*) fault "unknown variant" ;;
esac

for pressure in cpu io memory; do
    grep -q '^some' "/proc/pressure/$pressure" || fault "no /proc/pressure/$pressure (psi=1)"
done
busctl --system call org.freedesktop.DBus / org.freedesktop.DBus GetId >/dev/null ||
    fault "no system bus"
[ "$(cat /proc/1/comm)" = systemd ] || fault "pid 1 is $(cat /proc/1/comm)"
[ "$(id -u)" = 0 ] || fault "not root"
exit "$((faults > 0))"
