# Before lrsd, after which the ledger of lrs-yarn is not touched any more.
if [ -d /run/systemd/system ]; then
    systemctl stop lrs-yarn.service >/dev/null 2>&1 || :
fi
ledger=/run/lrs-yarn/yarn.json
if [ "$1" -ge 1 ] && [ -f "$ledger" ] && [ ! -L "$ledger" ] && [ -d /run/lrs/state ]; then
    # The package that came may be one whose lrsd talks to YARN itself, and this is where that looks.
    # A lrs-yarn that starts takes it over again.
    { chown 0:0 "$ledger" && mv -fT "$ledger" /run/lrs/state/yarn.json; } || :
fi
# What Fedora's %systemd_preun expands to. Tasks are not in lrsd.service, so they go on.
if [ "$1" -eq 0 ]; then
    if [ -d /run/systemd/system ]; then
        systemctl --no-reload disable --now lrsd.service >/dev/null 2>&1 || :
    fi
    # The directory says who lrs-yarn.service ran as. Not as root: what is in there is not root's word.
    owner=$(stat -c %U /run/lrs-yarn 2>/dev/null) || owner=root
    if [ "$owner" != root ]; then
        runuser -u "$owner" -- /usr/sbin/lrs-yarn --give-back || :
    fi
    # No other daemon will promote a task that was left behind all others. Where this fails it
    # names the task; LRS can be removed all the same.
    /usr/sbin/lrsd --give-back || :
fi
