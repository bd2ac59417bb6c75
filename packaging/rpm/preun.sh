# Before lrsd: lrs-yarn takes its offer back while the node is shaped.
if [ -d /run/systemd/system ]; then
    systemctl stop lrs-yarn.service >/dev/null 2>&1 || :
fi
# What Fedora's %systemd_preun expands to. Tasks are not in lrsd.service, so they go on.
if [ "$1" -eq 0 ]; then
    if [ -d /run/systemd/system ]; then
        systemctl --no-reload disable --now lrsd.service lrs-exporter.service >/dev/null 2>&1 || :
    fi
    # The directory says who lrs-yarn.service ran as. What is in there is that account's: root does not
    # open it, and lends that account no terminal.
    owner=$(stat -c %U /run/lrs-yarn 2>/dev/null) || owner=root
    if [ "$owner" != root ]; then
        setsid -w runuser -u "$owner" -- /usr/sbin/lrs-yarn --give-back </dev/null || :
    fi
    # No other daemon will promote a task that was left behind all others. Where this fails it
    # names the task; LRS can be removed all the same.
    /usr/sbin/lrsd --give-back || :
fi
