# What Fedora's %sysusers_create, %tmpfiles_create and %systemd_post expand to.
systemd-sysusers lrsd.conf || :
systemd-tmpfiles --create lrsd.conf || :
if [ "$1" -eq 1 ]; then
    # First installation: 90-lrs.preset says disabled.
    systemctl --no-reload preset lrsd.service >/dev/null 2>&1 || :
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload >/dev/null 2>&1 || :
fi
if [ "$1" -ge 2 ]; then
    # Settings that hold and should be changed: keys of removed features, a command that cannot work.
    said=$(/usr/bin/lrsctl config check /etc/lrs/lrs.toml 2>&1) || :
    case $said in
    *warning:*) printf '%s\n' "$said" >&2 ;;
    esac
fi
