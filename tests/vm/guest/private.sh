#!/usr/bin/env bash
# For checks with a daemon of their own, which source it after the name of its cgroup root is in
# `root` and its slots in `slots` (lines of lrs.toml): a directory, its configuration, its start.

# shellcheck source=tests/vm/guest/check.sh
. "$LRS_VM_PAYLOAD/guest/check.sh"

bin=${LRS_CHECK_BIN:-$LRS_VM_PAYLOAD/bin} # another build, to see a check fail
dir=$(mktemp -d)
chmod 755 "$dir" # a member of group lrs comes by
# shellcheck disable=SC2154 # set by who sources this
cat >"$dir/lrs.toml" <<TOML
cgroup.root = "$root"
daemon.runtime_dir = "$dir/run"
daemon.log = "info,lrs=debug"
daemon.sample_period = "500ms"
$slots
slots.expand = false
grpc.listen = ["unix:$dir/lrsd.sock"]
dbus.bus = "off"
TOML
export LRS_ENDPOINT=unix:$dir/lrsd.sock
lrsctl() { "$bin/lrsctl" "$@"; }
serves() { lrsctl status >/dev/null 2>&1; }
start_daemon() { # through the command given, if any
    "$@" "$bin/lrsd" --config "$dir/lrs.toml" 2>>"$dir/log" &
    daemon=$!
    eventually "lrsd serves" serves
}
end_private() { # for a trap: the daemon and its directory go; its log is shown after a fault
    kill "$daemon" 2>/dev/null
    wait "$daemon" 2>/dev/null
    [ "$faults" = 0 ] || cat "$dir/log"
    rm -rf "$dir"
}
