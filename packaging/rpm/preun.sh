# What Fedora's %systemd_preun expands to. Tasks are not in lrsd.service, so they go on.
if [ "$1" -eq 0 ]; then
    if [ -d /run/systemd/system ]; then
        systemctl --no-reload disable --now lrsd.service >/dev/null 2>&1 || :
    fi
    # No other daemon will promote a task that was left behind all others. Where this fails it
    # names the task; LRS can be removed all the same.
    /usr/sbin/lrsd --give-back || :
fi
