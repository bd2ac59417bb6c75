#!/usr/bin/env bash
# What the kernel's means for disks spare an active task: the same writes with fdatasync(2) and the same direct
# reads alone, and beside two synchronous writers and a buffered one in a passive group, with each means alone.
# The disk is modelled: null_blk, one request of 4 ms at a time. lrsd takes no part. Figures, not a test:
#
#   tests/vm/run --test-timeout 1500 --timeout 2400 tests/vm/guest/bench/disk-means.sh
set -u
readonly rounds=${1:-${LRS_BENCH_ROUNDS:-3}} requests=120 service_ns=4000000
readonly root=/sys/fs/cgroup/lrs-bench disk=/sys/kernel/config/nullb/nullb0 mount=/mnt/lrs-bench

clean_up() {
    umount "$mount"
    rmdir "$root"/*/ "$root" "$mount" "$disk"
}
trap clean_up EXIT
modprobe null_blk nr_devices=0 && mkdir -p "$disk" || exit 1
for setting in size=768 memory_backed=1 queue_mode=2 irqmode=2 completion_nsec=$service_ns \
    submit_queues=1 hw_queue_depth=1 power=1; do
    echo "${setting#*=}" >"$disk/${setting%=*}" || exit 1
done
queue=/sys/block/nullb0/queue number=$(cat /sys/block/nullb0/dev)
modprobe bfq
mkfs.ext4 -q /dev/nullb0 && mkdir -p "$mount" && mount /dev/nullb0 "$mount" || exit 1
echo '+cpu +io +memory' >/sys/fs/cgroup/cgroup.subtree_control
mkdir -p "$root" && echo '+cpu +io +memory' >"$root/cgroup.subtree_control"
mkdir -p "$root/active" "$root/passive" || exit 1
echo 10000 >"$root/active/cpu.weight" && echo 1 >"$root/passive/cpu.idle"
dd if=/dev/urandom of="$mount/read" bs=1M count=4 conv=fsync status=none

# Runs in a group: the first word is its name.
in_group() { # shellcheck disable=SC2016 # the inner shell's
    bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$root/$1" "${@:2}"
}
# Writes 4 KiB and calls fdatasync(2) so many times; 0: for ever.
# shellcheck disable=SC2016 # perl's
writer='my ($path, $times) = @ARGV; open my $file, ">", $path or die; binmode $file;
    for (my $n = 0; !$times || $n < $times; $n++) {
        sysseek $file, 4096 * ($n % 1024), 0; syswrite $file, "x" x 4096; syscall 75, fileno $file }'
begin_passive() {
    for index in 1 2; do
        in_group passive "$@" perl -e "$writer" "$mount/sync-$index" 0 &
    done
    in_group passive "$@" bash -c "while :; do
        dd if=/dev/zero of=$mount/buffered bs=64k count=512 conv=notrunc status=none; done" &
}
end_passive() {
    echo 1 >"$root/passive/cgroup.kill"
    wait
    sync
}
written() { sed -n "s/^$number .*wbytes=\([0-9]*\).*/\1/p" "$root/passive/io.stat" | grep . || echo 0; }
seconds() { # of a command
    local began
    began=$(date +%s%N)
    "$@" || exit 1
    echo $((($(date +%s%N) - began) / 1000000))
}

means=(alone none bfq ioprio-idle io.latency io.max memory.high dirty_bytes io.cost)
apply() {
    echo mq-deadline >"$queue/scheduler"
    case $1 in
    bfq)
        echo bfq >"$queue/scheduler"
        echo 1000 >"$root/active/io.bfq.weight" && echo 10 >"$root/passive/io.bfq.weight"
        ;;
    io.latency) echo "$number target=$((2 * service_ns / 1000))" >"$root/active/io.latency" ;;
    io.max) echo "$number wiops=25 riops=25" >"$root/passive/io.max" ;;
    memory.high) echo 16M >"$root/passive/memory.high" ;;
    dirty_bytes)
        sysctl -qw vm.dirty_bytes=$((4 << 20)) vm.dirty_background_bytes=$((1 << 20))
        ;;
    io.cost)
        echo "$number ctrl=user model=linear rbps=1000000 rseqiops=250 rrandiops=250 wbps=1000000 wseqiops=250 wrandiops=250" \
            >/sys/fs/cgroup/io.cost.model &&
            echo "$number enable=1 ctrl=user rpct=95 rlat=12000 wpct=95 wlat=12000 min=50 max=100" \
                >/sys/fs/cgroup/io.cost.qos &&
            echo 10000 >"$root/active/io.weight" && echo 100 >"$root/passive/io.weight"
        ;;
    esac
}
undo() {
    case $1 in
    io.latency) echo "$number target=0" >"$root/active/io.latency" ;;
    io.max) echo "$number wiops=max riops=max" >"$root/passive/io.max" ;;
    memory.high) echo max >"$root/passive/memory.high" ;;
    dirty_bytes) sysctl -qw vm.dirty_ratio=20 vm.dirty_background_ratio=10 ;;
    io.cost) echo "$number enable=0" >/sys/fs/cgroup/io.cost.qos ;;
    esac
}

uname -r
for ((round = 0; round < rounds; round++)); do
    for ((step = 0; step < ${#means[@]}; step++)); do
        name=${means[(step + round) % ${#means[@]}]}
        if ! apply "$name" 2>/dev/null; then
            echo "$name: not in this kernel"
            continue
        fi
        class=()
        [ "$name" = ioprio-idle ] && class=(ionice -c 3)
        [ "$name" = alone ] || begin_passive "${class[@]}"
        sleep 2
        before=$(written) began=$(date +%s%N)
        writes=$(seconds in_group active perl -e "$writer" "$mount/active" "$requests")
        reads=$(seconds in_group active dd if="$mount/read" of=/dev/null iflag=direct bs=4k \
            count="$requests" status=none)
        took=$((($(date +%s%N) - began) / 1000000))
        printf '%-12s fdatasync %6d ms  reads %6d ms  passive %5d KiB/s\n' "$name" "$writes" "$reads" \
            $((($(written) - before) * 1000 / 1024 / took))
        [ "$name" = alone ] || end_passive
        undo "$name"
    done
done
