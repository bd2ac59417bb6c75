#!/usr/bin/env bash
# The package's life on a node with tasks: installed, enabled, started, restarted, stopped,
# killed, upgraded (which reloads systemd), removed, purged; systemd re-executed. Every daemon that
# starts knows the tasks that run. No step touches them but the removal, which gives them their
# weights back.
set -u
# shellcheck source=tests/vm/guest/package.sh
. "$LRS_VM_PAYLOAD/guest/package.sh"
trap clean_up EXIT

# All as at remember, but for the weights: they are those of any new group.
tasks_neutral() {
    local now wanted
    now=$(picture)
    wanted=$(sed -E 's/^(cpu.weight = ).*/\1100/; s/^(cpu.shares = ).*/\11024/
        s/^(cpu.idle = ).*/\10/; s/^(io[a-z.]* = (default )?).*/\1100/' <<<"$before")
    [ "$now" = "$wanted" ] ||
        fault "after $1 the weights are not neutral:"$'\n'"$(diff <(echo "$wanted") <(echo "$now"))"
}

# What systemd and the kernel have as weights of guest.service.
guest_weights() {
    local directory file
    directory=$(cpu_directory "$(systemctl show --property MainPID --value guest.service)")
    systemctl show --property CPUWeight,CPUShares,IOWeight guest.service
    for file in cpu.weight cpu.shares; do
        [ ! -e "$directory/$file" ] || printf '%s = %s\n' "$file" "$(cat "$directory/$file")"
    done
}

step install
install "$first"
getent group lrs || fault "no group lrs"
getent passwd lrs-yarn || fault "no user lrs-yarn"
state=$(systemctl is-enabled lrsd.service)
[ "$state" = disabled ] || fault "lrsd.service is $state, not disabled"
state=$(systemctl is-active lrsd.service)
[ "$state" = inactive ] || fault "lrsd.service is $state, not inactive"
state=$(systemctl is-enabled lrs-exporter.service)
[ "$state" = disabled ] || fault "lrs-exporter.service is $state, not disabled"
grep -qvE '^(#|\[|$)' /etc/lrs/lrs.toml && fault "the installed lrs.toml sets something"
lrsctl config check /etc/lrs/lrs.toml || fault "the installed lrs.toml does not pass its check"
[ -s /usr/share/man/man8/lrsd.8.gz ] || fault "no manual page"
for unit in lrsd lrs-yarn lrs-exporter; do
    systemd-analyze verify --man=no $unit.service || fault "systemd-analyze verify $unit.service: status $?"
done

step 'enable and start'
systemctl enable --now lrsd.service || give_up "systemctl enable --now lrsd: status $?"
[ "$(systemctl is-active lrsd.service)" = active ] || give_up "lrsd.service is not active"
lrsctl status || give_up "lrsctl status: status $?"
systemctl status --no-pager lrsd.service
[ "$(systemctl show --property NRestarts --value lrsd.service)" = 0 ] || fault "it was restarted"
# Without yarn.enabled it has nothing to do.
# shellcheck disable=SC2317 # called through await
yarn_ended() {
    [ "$(systemctl show --property ActiveState,NRestarts,Result lrs-yarn.service | sort)" = \
        $'ActiveState=inactive\nNRestarts=0\nResult=success' ]
}
await yarn_ended || systemctl status --no-pager lrs-yarn.service
systemctl show --property ExecMainExitTimestampMonotonic --value lrs-yarn.service | grep -q '[1-9]' ||
    fault "lrsd did not start lrs-yarn"

step 'the exporter'
# And no I/O lane: emulated, a sleeper may look like a task of short bursts, and be in it.
sed -i -e 's/^#listen = ""/listen = "127.0.0.1:9753"/' -e 's/^#lane_share = .*/lane_share = 0.0/' \
    /etc/lrs/lrs.toml
grep -qx 'lane_share = 0.0' /etc/lrs/lrs.toml || fault "the I/O lane is still on"
systemctl reload lrsd.service || fault "systemctl reload: status $?"
systemctl start lrs-exporter.service || fault "systemctl start lrs-exporter: status $?"
# shellcheck disable=SC2317 # called through eventually
scraped() {
    exec 3<>/dev/tcp/127.0.0.1/9753 || return 1
    printf 'GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n' >&3
    grep -qx 'lrs_up 1' <&3
}
eventually "lrs-exporter serves what lrsd says" scraped || systemctl status --no-pager lrs-exporter.service
[ "$(systemctl show --property NRestarts --value lrs-exporter.service)" = 0 ] || fault "lrs-exporter was restarted"
systemctl stop lrs-exporter.service

step 'three tasks'
start_tasks 3
lrsctl tasks
remember
printf '%s\n' "$before"

step restart
systemctl restart lrsd.service || fault "systemctl restart: status $?"
tasks_known restart

step 'stop and start'
systemctl stop lrsd.service || fault "systemctl stop: status $?"
tasks_untouched stop
[ -d /run/lrs/state ] || fault "the state went with the service"
systemctl start lrsd.service || give_up "systemctl start: status $?"
tasks_known start

step 'kill -9'
killed=$(main_pid)
kill -9 "$killed"
await_another_than "$killed"
tasks_known 'kill -9'

step daemon-reexec
systemctl daemon-reexec || fault "systemctl daemon-reexec: status $?"
tasks_known daemon-reexec

step upgrade
old=$(main_pid)
install "$second"
await_another_than "$old"
tasks_known upgrade
[ "$(systemctl is-enabled lrsd.service)" = enabled ] || fault "the upgrade disabled the service"

step 'a service as a task'
systemd-run --quiet --unit guest.service --property CPUWeight=250 sleep infinity
own_weights=$(guest_weights)
lrsctl admit --unit guest.service || fault "lrsctl admit --unit: status $?"
guest_weights
for _ in {1..100}; do
    [ "$(guest_weights)" = "$own_weights" ] || break
    sleep 0.1
done
[ "$(guest_weights)" != "$own_weights" ] || fault "guest.service is not shaped: $own_weights"
# The operator's, on a unit that the package removes.
systemctl set-property --runtime lrs.slice MemoryHigh=8G

step remove
dpkg --remove lrs || fault "dpkg --remove: status $?"
! pgrep -x 'lrsd|lrs-yarn|lrs-exporter' || fault "a daemon survived the removal"
tasks_neutral remove
systemctl daemon-reload
[ "$(guest_weights)" = "$own_weights" ] ||
    fault "guest.service had $own_weights and has $(guest_weights)"
systemctl stop guest.service
[ -e /etc/lrs/lrs.toml ] || fault "the removal took the configuration"

step 'installed again'
install "$second"
tasks_neutral 'the second installation'
systemctl start lrsd.service || give_up "systemctl start after the removal: status $?"
tasks_known 'removal and installation'
lrsctl events --since 1 --no-follow | grep -w released || fault "no event of guest.service"

step 'purge under tasks'
postrm=$(cat /var/lib/dpkg/info/lrs.postrm)
dpkg --purge lrs || fault "dpkg --purge: status $?"
! pgrep -x 'lrsd|lrs-yarn|lrs-exporter' || fault "a daemon survived the purge"
tasks_neutral purge
[ ! -e /etc/lrs ] || fault "the purge left $(find /etc/lrs)"
getent group lrs >/dev/null || fault "the purge took the group"
[ -d /run/lrs/state ] || fault "the purge took the state of running tasks"
dropins=/run/systemd/system.control/lrs.slice.d
[ "$(ls "$dropins")" = 50-MemoryHigh.conf ] || fault "drop-ins of the slice: $(ls "$dropins")"
rm -r "$dropins"

step 'purge without tasks'
kill "${tasks[@]}"
wait "${tasks[@]}" 2>/dev/null
tasks=()
# The purge once more: installing for it would take half a minute under emulation.
DPKG_MAINTSCRIPT_PACKAGE=lrs sh -c "$postrm" lrs.postrm purge ||
    fault "the script of the purge: status $?"
left=$(find /run/lrs /run/lrs-yarn 2>/dev/null)
[ -z "$left" ] || fault "the purge left $left"
[ ! -e /sys/fs/cgroup/freezer/lrs.slice ] ||
    fault "the purge left $(find /sys/fs/cgroup/freezer/lrs.slice -type d)"
# systemd hears of the end of the last process in the scope some time later.
for _ in {1..100}; do
    systemctl --quiet is-active lrs-tasks.scope || break
    sleep 0.1
done
systemctl daemon-reload
dropins=$(find /etc/systemd /run/systemd -path '*lrs*' ! -name '*lrs-vm*')
[ -z "$dropins" ] || fault "the purge left $dropins"
units=$(systemctl list-unit-files --no-legend --no-pager 'lrs*.service' 'lrs.slice' |
    grep -v '^lrs-vm')
[ -z "$units" ] || fault "units left: $units"

exit "$((faults > 0))"
