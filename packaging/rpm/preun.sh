# Before lrsd, after which the ledger of lrs-yarn is not touched any more.
if [ -d /run/systemd/system ]; then
    systemctl stop lrs-yarn.service >/dev/null 2>&1 || :
fi
ledger=/run/lrs-yarn/yarn.json
# The directory says who lrs-yarn.service ran as. What is in there is that account's: root neither
# renames nor opens it, and lends it no terminal.
owner=$(stat -c %U /run/lrs-yarn 2>/dev/null) || owner=root
as_owner() { setsid -w runuser -u "$owner" -- "$@" </dev/null; }
if [ "$1" -ge 1 ] && [ "$owner" != root ] && [ -e "$ledger" ] && [ -d /run/lrs/state ]; then
    # The package that came may be one whose lrsd talks to YARN itself, and this is where that looks.
    # A lrs-yarn that starts takes it over again.
    new=/run/lrs/state/yarn.json.new
    if (umask 077 && as_owner timeout 5 head -c 1048576 "$ledger" >"$new"); then
        mv -fT "$new" /run/lrs/state/yarn.json || :
        as_owner rm -f "$ledger" || :
    else
        rm -f "$new"
    fi
fi
# What Fedora's %systemd_preun expands to. Tasks are not in lrsd.service, so they go on.
if [ "$1" -eq 0 ]; then
    if [ -d /run/systemd/system ]; then
        systemctl --no-reload disable --now lrsd.service >/dev/null 2>&1 || :
    fi
    if [ "$owner" != root ]; then
        as_owner /usr/sbin/lrs-yarn --give-back || :
    fi
    # No other daemon will promote a task that was left behind all others. Where this fails it
    # names the task; LRS can be removed all the same.
    /usr/sbin/lrsd --give-back || :
fi
