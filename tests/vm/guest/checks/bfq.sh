#!/usr/bin/env bash
# The scratch disk runs BFQ, and groups have its weight file: what the disk tiers are tried on.
set -u
# shellcheck source=tests/vm/guest/check.sh
. "$LRS_VM_PAYLOAD/guest/check.sh"

scheduler=/sys/block/${LRS_TEST_DISK##*/}/queue/scheduler
grep -q '\[bfq\]' "$scheduler" || fault "$scheduler is $(cat "$scheduler")"
mountpoint -q "$LRS_TEST_DISK_MOUNT" || fault "$LRS_TEST_DISK_MOUNT is not mounted"

case $LRS_VM_VARIANT in
v2)
    parent=/sys/fs/cgroup weight=io.bfq.weight
    echo +io >/sys/fs/cgroup/cgroup.subtree_control || fault "cannot enable io below the root"
    ;;
*) parent=/sys/fs/cgroup/blkio weight=blkio.bfq.weight ;;
esac
group=$parent/lrs-bfq-$$
mkdir "$group"
trap 'rmdir "$group"' EXIT
for value in 1000 10; do
    echo "$value" >"$group/$weight" || fault "$weight refuses $value"
    case $(cat "$group/$weight") in
    "$value" | "default $value") ;;
    *) fault "$weight reads $(cat "$group/$weight") after $value" ;;
    esac
done

# Bytes written straight to the disk are counted for the group.
(echo "$BASHPID" >"$group/cgroup.procs" &&
    exec dd if=/dev/zero of="$LRS_TEST_DISK_MOUNT/bfq-check" bs=64k count=16 \
        oflag=direct,dsync conv=fsync status=none) || fault "dd failed"
rm -f "$LRS_TEST_DISK_MOUNT/bfq-check"
case $LRS_VM_VARIANT in
v2) counter=$group/io.stat ;;
*) counter=$group/blkio.bfq.io_service_bytes ;;
esac
device=$(cat "/sys/block/${LRS_TEST_DISK##*/}/dev")
cat "$counter"
grep -qE "^$device .*[1-9]" "$counter" || fault "$counter counts nothing for $device"
exit "$((faults > 0))"
