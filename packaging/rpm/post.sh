# What Fedora's %sysusers_create, %tmpfiles_create and %systemd_post expand to.
systemd-sysusers lrsd.conf || :
systemd-tmpfiles --create lrsd.conf || :
if [ "$1" -eq 1 ]; then
    # First installation: 90-lrs.preset says disabled.
    systemctl --no-reload preset lrsd.service lrs-exporter.service >/dev/null 2>&1 || :
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload >/dev/null 2>&1 || :
fi
