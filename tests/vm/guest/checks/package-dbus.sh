#!/usr/bin/env bash
# org.lrs.Shaper1 on the system bus of a real node: each property, method and signal, the bus
# policy, polkit where it runs and where it does not, and a bus that goes away.
# Conditions are named functions, called through await.
# shellcheck disable=SC2317
set -u
# shellcheck source=tests/vm/guest/package.sh
. "$LRS_VM_PAYLOAD/guest/package.sh"
rules=/etc/polkit-1/rules.d/10-lrs-check.rules
tidy() {
    local status=$?
    rm -f "$rules"
    [ -z "${monitor:-}" ] || kill "$monitor" 2>/dev/null
    systemctl start dbus.socket dbus.service
    # As clean_up found it.
    return "$status"
}
trap 'tidy; clean_up' EXIT

install_and_start
bus=(busctl --no-pager --timeout=60)
at=(org.lrs.Shaper1 /org/lrs/Shaper1 org.lrs.Shaper1.Manager)
nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups)
member=(setpriv --reuid=65534 --regid=65534 --groups="$(getent group lrs | cut -d: -f3)")

call() { "${bus[@]}" call -- "${at[@]}" "$@"; }
# The error a call by somebody ends with: who..., then the call.
refused() { { "$@" >/dev/null; } 2>&1; }
named() { "${bus[@]}" status org.lrs.Shaper1; }
await named

step 'every property can be read'
mapfile -t properties < <("${bus[@]}" introspect "${at[0]}" "${at[1]}" "${at[2]}" |
    awk '$2 == "property" { sub(/^\./, "", $1); print $1 }')
[ "${#properties[@]}" -ge 20 ] || fault "only ${#properties[@]} properties: ${properties[*]}"
for property in "${properties[@]}"; do
    value=$("${nobody[@]}" "${bus[@]}" get-property "${at[@]}" "$property") ||
        fault "property $property cannot be read"
    printf '%-22s %s\n' "$property" "${value:0:90}"
done
! "${bus[@]}" set-property "${at[@]}" Version s x || fault "a property can be written"

step signals
heard=/run/lrs-check-signals
: >"$heard"
busctl --no-pager --json=short \
    --match "type='signal',sender='org.lrs.Shaper1'" monitor >"$heard" 2>/dev/null &
monitor=$!
# A monitor says so on the bus before it hears anything; what it does not hear is awaited below.
saw() { grep -q "\"member\":\"$1\"" "$heard"; }
ping() { call Drain && call Resume && saw PropertiesChanged; }
await ping

step 'methods'
sleep 100000 &
one=$!
sleep 100000 &
two=$!
sleep 100000 &
three=$!
tasks+=("$one" "$two" "$three")
reply=$(call Admit 'ia{sv}' "$one" 3 name s first job s j kind s map) || fault "Admit"
printf '%s\n' "$reply"
id=$(cut -d'"' -f2 <<<"$reply")
path=$(cut -d'"' -f4 <<<"$reply")
second=$(call Admit 'ia{sv}' "$two" 1 priority i -3 | cut -d'"' -f2)
third=$(call Admit 'ia{sv}' "$three" 1 priority i 9 | cut -d'"' -f2)
[ "$(call Admit 'ia{sv}' "$one" 0 | cut -d'"' -f2)" = "$id" ] || fault "asked again: another answer"
"${bus[@]}" tree org.lrs.Shaper1
"${bus[@]}" introspect org.lrs.Shaper1 "$path" || fault "the task is no object"
[ "$("${bus[@]}" get-property org.lrs.Shaper1 "$path" org.lrs.Shaper1.Task Name)" = 's "first"' ] ||
    fault "Name of the task"
"${bus[@]}" call org.lrs.Shaper1 /org/lrs/Shaper1 org.freedesktop.DBus.ObjectManager \
    GetManagedObjects | grep -qF "$path" || fault "ObjectManager does not list the task"
for reading in GetStatus ListTasks ListJobs GetConfig GetYarn; do
    "${nobody[@]}" "${bus[@]}" call "${at[@]}" "$reading" >/dev/null || fault "$reading"
done
call GetTask s "$id" >/dev/null || fault "GetTask"
call Explain s "$id" | grep -q admitted || fault "Explain"
call Events tu 0 10 >/dev/null || fault "Events"
call EvaluateJob 'a{sv}' 1 computing_rate d 0.5 || fault "EvaluateJob"
call SetPriority si "$second" 20 || fault "SetPriority"
reservation=$(call Reserve 'a{sv}' 1 job s j | cut -d'"' -f2)
call CancelReservation s "$reservation" || fault "CancelReservation"
call Reload || fault "Reload"
"${bus[@]}" call org.lrs.Shaper1 "$path" org.lrs.Shaper1.Task Release || fault "Task.Release"
kill "$three"
for signal in TaskAdmitted TaskPromoted TaskDemoted TaskCompleted SlotsChanged InterfacesAdded \
    InterfacesRemoved PropertiesChanged; do
    await saw "$signal" || fault "no signal $signal"
done
! saw NothingOfThatName || fault "the monitor sees what is not there"
printf 'third was %s\n' "$third"

step 'errors have names'
error() { refused call "$@"; }
error GetTask s t0000000-1 | grep -qi 'no task t0000000-1' || fault "unknown task: $(error GetTask s t0000000-1)"
error Admit 'ia{sv}' "$one" 1 colour s red | grep -q colour || fault "unknown option"
error Admit 'ia{sv}' 0 1 unit s no-such.service | grep -q no-such || fault "unknown unit"

step 'rights: the table, then polkit'
text=$(refused "${nobody[@]}" "${bus[@]}" --allow-interactive-authorization=no call "${at[@]}" Drain)
printf '%s\n' "$text"
[ -n "$text" ] || fault "nobody may drain"
"${member[@]}" "${bus[@]}" call "${at[@]}" Reserve 'a{sv}' 0 | cut -d'"' -f2 >/run/lrs-check-rid ||
    fault "a member of group lrs may not reserve"
"${member[@]}" "${bus[@]}" call "${at[@]}" CancelReservation s "$(cat /run/lrs-check-rid)" ||
    fault "a member may not cancel its own"
[ -n "$(refused "${member[@]}" "${bus[@]}" --allow-interactive-authorization=no call "${at[@]}" Drain)" ] ||
    fault "a member may drain"
mkdir -p "${rules%/*}"
cat >"$rules" <<'RULE'
polkit.addRule(function (action, subject) {
    if (action.id == "org.lrs.Shaper1.operate" && subject.user == "nobody")
        return polkit.Result.YES;
});
RULE
chmod 644 "$rules"
granted() { "${nobody[@]}" "${bus[@]}" --allow-interactive-authorization=no call "${at[@]}" Drain; }
await granted || journalctl --no-pager -u polkit -n 10
call Resume
systemctl stop polkit
systemctl mask --runtime --quiet polkit
[ -n "$(refused "${nobody[@]}" "${bus[@]}" --allow-interactive-authorization=no call "${at[@]}" Drain)" ] ||
    fault "without polkit nobody may drain"
{ call Drain && call Resume; } || fault "root without polkit"
systemctl unmask --runtime --quiet polkit

step 'the bus policy refuses others the name'
! "${nobody[@]}" busctl call org.freedesktop.DBus / org.freedesktop.DBus RequestName su \
    org.lrs.Shaper1 4 || fault "nobody may own the name"

step 'the bus goes and comes back'
systemctl stop dbus.socket dbus.service
lrsctl run -- true || fault "no slot without a bus"
systemctl start dbus.socket dbus.service
await named
call GetStatus >/dev/null || fault "GetStatus on the new bus"
[ "$(systemctl show --property NRestarts --value lrsd.service)" = 0 ] || fault "lrsd was restarted"
journalctl --no-pager --boot --unit lrsd.service --lines 20 -o cat

exit "$((faults > 0))"
