# What Fedora's %systemd_postun_with_restart expands to.
if [ "$1" -eq 0 ]; then
    # The weight that lrsd had systemd give the slice; other drop-ins are the operator's.
    dropins=/run/systemd/system.control/lrs.slice.d
    rm -f "$dropins/50-CPUWeight.conf"
    [ ! -d "$dropins" ] || rmdir --ignore-fail-on-non-empty "$dropins"
    # systemd does not use this hierarchy of cgroup v1. Groups with processes stay.
    freezer=/sys/fs/cgroup/freezer/lrs.slice
    [ ! -d "$freezer" ] || find "$freezer" -depth -type d -exec rmdir {} + 2>/dev/null || :
    # What systemd-tmpfiles made; drop-ins and a changed lrs.toml are the operator's.
    for directory in /etc/lrs/lrs.toml.d /etc/lrs; do
        [ ! -d "$directory" ] || rmdir --ignore-fail-on-non-empty "$directory" || :
    done
    # Where an offer could not be given back, the ledger is what knows the node's own figure.
    [ -e /run/lrs-yarn/yarn.json ] || rm -rf /run/lrs-yarn
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload >/dev/null 2>&1 || :
    if [ "$1" -ge 1 ]; then
        systemctl try-restart lrsd.service lrs-exporter.service >/dev/null 2>&1 || :
    fi
fi
