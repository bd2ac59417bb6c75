#!/usr/bin/env bash
# The package's life on a YARN node under running containers, with an offer that stands: upgraded,
# killed, stopped, started, removed. The offer is followed and given back by each, no container ends,
# and what was there before the first offer is known where the managers cannot be reached meanwhile.
#
# The managers are played (yarn/managers.pl), the NodeManager's process and its containers are
# shells and sleeps under the names and environments of the real ones.
# Conditions are named functions, called through await.
# shellcheck disable=SC2317
set -u
# shellcheck source=tests/vm/guest/package.sh
. "$LRS_VM_PAYLOAD/guest/package.sh"
work=/var/lib/lrs-check
tidy() {
    local status=$?
    systemctl stop check-nodemanager.service check-managers.service
    rm -rf "$work"
    return "$status"
}
trap 'tidy; clean_up' EXIT

readonly node=lrs-vm:45454 application=application_1795301748806_0001
# Three passive slots are in use, two more than the base: 64 MiB and a vcore each.
readonly configured='512 4' offered='640 6'

# A container as DefaultContainerExecutor starts it: the pid file, then a session of its own.
container() {
    local id=container_1795301748806_0001_01_00000$1 private
    private=$work/disk/nmPrivate/$application/$id
    mkdir -p "$private"
    sed "s/_01_000002/_01_00000$1/g" "$LRS_VM_PAYLOAD/repo/src/discover/yarn/recorded/map.script" \
        >"$private/launch_container.sh"
    printf 'export CONTAINER_ID=%s\nexec sleep 100000\n' "$id" >"$work/$1.launch"
    cat >"$work/$1.session" <<SESSION
echo \$\$ >$private/$id.pid.tmp
mv -f $private/$id.pid.tmp $private/$id.pid
exec setsid bash $work/$1.launch
SESSION
    printf 'bash %s </dev/null &\n' "$work/$1.session" >>"$work/node-manager"
}

shows() { [ "$(cat "$work/shown")" = "$1" ]; }
offer_stands() { shows "$offered"; }
offer_is_back() { shows "$configured"; }
reach_managers() { rm -f "$work/refuse"; }
# From now on they answer nothing of use, and what is offered can neither be changed nor read.
lose_managers() { touch "$work/refuse"; }
four_tasks() { [ "$(lrsctl tasks --json | grep -o '"id":' | wc -l)" = 4 ]; }
yarn_pid() { systemctl show --property MainPID --value lrs-yarn.service; }
yarn_runs() { [ "$(systemctl is-active lrs-yarn.service)" = active ]; }
yarn_is_gone() { ! pgrep -x lrs-yarn; }

# What the daemon that runs now makes of the offer: it follows the slots, and knows what was there
# before the first one.
follows() {
    reach_managers
    eventually "$1: the offer stands" offer_stands
    lrsctl drain || fault "$1: lrsctl drain"
    eventually "$1: a drained node has what was configured" offer_is_back
    lrsctl resume || fault "$1: lrsctl resume"
    eventually "$1: it is offered again" offer_stands
    containers_run "$1"
}

# Who they are, since when, and that each has a group of LRS's own.
containers() {
    local pid
    for pid in "${tasks[@]}"; do
        printf '%s %s\n' "$(cut -d' ' -f1-2,22 "/proc/$pid/stat" 2>&1)" \
            "$(grep -c lrs-tasks.scope/ "/proc/$pid/cgroup" 2>&1)"
    done
}
containers_run() {
    local now
    now=$(containers)
    [ "$now" = "$began" ] ||
        fault "after $1 the containers differ:"$'\n'"$(diff <(echo "$began") <(echo "$now"))"
}

step 'a YARN node'
mkdir -p "$work/disk/nmPrivate" "$work/conf"
chmod 700 "$work/disk/nmPrivate"
for number in 2 3 4 5; do container "$number"; done
echo wait >>"$work/node-manager"
# The node is measured: only the ledger knows what was there before an offer.
cat >"$work/conf/yarn-site.xml" <<SITE
<configuration>
<property><name>yarn.nodemanager.local-dirs</name><value>$work/disk</value></property>
<property><name>yarn.nodemanager.resource.detect-hardware-capabilities</name><value>true</value></property>
<property><name>yarn.resourcemanager.webapp.address</name><value>127.0.0.1:8088</value></property>
<property><name>yarn.nodemanager.webapp.address</name><value>127.0.0.1:8088</value></property>
</configuration>
SITE
echo '<configuration/>' >"$work/conf/core-site.xml"
systemd-run --quiet --unit check-managers perl "$LRS_VM_PAYLOAD/guest/yarn/managers.pl" \
    8088 "$work" "$node" "${configured% *}" "${configured#* }" || give_up "the managers do not start"
systemd-run --quiet --unit check-nodemanager bash -c "exec -a /usr/lib/jvm/java/bin/java bash -s \
org.apache.hadoop.yarn.server.nodemanager.NodeManager <$work/node-manager"
install "$first"
slots() {
    printf '[slots]\nactive = 1\npassive = %s\npassive_max = 3\n[yarn]\nenabled = true\n' "$1"
    printf 'conf_dir = "%s/conf"\noffer = true\nslot_memory = "64MiB"\npoll = "1s"\n' "$work"
}
slots 3 >/etc/lrs/lrs.toml
systemctl enable --now lrsd.service || give_up "lrsd does not start"
await four_tasks || give_up "$(lrsctl yarn status)"
mapfile -t tasks < <(cat "$work"/disk/nmPrivate/*/*/*.pid)
began=$(containers)
printf '%s\n' "$began"
[ "$(grep -c '(sleep) .* [1-9]' <<<"$began")" = 4 ] || fault "these are no four containers in groups of LRS's"
# Slots are opened only while CPUs have spare time; those in use stay open when they leave the base.
slots 1 >/etc/lrs/lrs.toml
systemctl reload lrsd.service || fault "reload"
follows 'the first package'
ledger_is_kept() {
    [ "$(stat -c %U /run/lrs-yarn/yarn.json)" = lrs-yarn ] || fault "$1: $(ls -ln /run/lrs-yarn)"
}
ledger_is_kept 'the first package'
lrsctl yarn status
grep -E '^(Uid|Cap(Eff|Bnd)|NoNewPrivs|Seccomp):' "/proc/$(yarn_pid)/status"
[ "$(stat -c %U "/proc/$(yarn_pid)")" = lrs-yarn ] || fault "lrs-yarn is $(stat -c %U "/proc/$(yarn_pid)")"

step 'upgrade, and lrs-yarn cannot take its offer back'
lose_managers
before_upgrade=$(main_pid)
install "$second"
await_another_than "$before_upgrade"
await yarn_runs
ledger_is_kept upgrade
follows upgrade
await four_tasks

step 'kill -9 of lrs-yarn, then of lrsd'
: >"$work/updates"
kill -9 "$(yarn_pid)"
came_back() { grep -qx "$configured" "$work/updates" && offer_stands; }
eventually 'what stood went back, and is offered again' came_back
before_kill=$(main_pid)
kill -9 "$before_kill"
await_another_than "$before_kill"
await yarn_runs
follows 'kill -9'

step 'stop and start'
systemctl stop lrsd.service || fault "systemctl stop: status $?"
offer_is_back || fault "after the stop the managers show $(cat "$work/shown")"
containers_run stop
systemctl start lrsd.service || give_up "systemctl start: status $?"
follows start

step 'removal, of an offer that a stop left behind'
lose_managers
kill -9 "$(yarn_pid)"
systemctl stop lrsd.service || fault "systemctl stop: status $?"
yarn_is_gone || fault "lrs-yarn survived the stop"
reach_managers
offer_stands || fault "the managers show $(cat "$work/shown"): nothing is left to give back"
dpkg --remove lrs || fault "dpkg --remove: status $?"
offer_is_back || fault "after the removal the managers show $(cat "$work/shown")"
containers_run removal

kill "${tasks[@]}"
dpkg --purge lrs || fault "dpkg --purge: status $?"
[ ! -e /run/lrs-yarn ] || fault "the purge left /run/lrs-yarn: $(ls -l /run/lrs-yarn)"
journalctl --no-pager --boot --unit lrs-yarn.service --unit lrsd.service -o short-monotonic | tail -n 80

exit "$((faults > 0))"
