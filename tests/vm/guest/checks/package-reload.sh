#!/usr/bin/env bash
# `systemctl reload lrsd` returns with the new settings in force, or fails, says every fault
# and keeps the old ones.
set -u
# shellcheck source=tests/vm/guest/package.sh
. "$LRS_VM_PAYLOAD/guest/package.sh"
trap clean_up EXIT

install_and_start
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
