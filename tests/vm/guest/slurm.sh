#!/usr/bin/env bash
# Slurm's packages from the payload, none of its services, then tests/slurm/run.
set -euo pipefail
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
mkdir -p /run/lrs-slurm
DEBIAN_FRONTEND=noninteractive dpkg --install --skip-same-version --refuse-downgrade \
    "$LRS_VM_PAYLOAD"/extra/*.deb >/run/lrs-slurm/dpkg.log 2>&1 ||
    { tail -n 40 /run/lrs-slurm/dpkg.log && exit 1; }
# With loopback alone getaddrinfo(3) finds no address of any host (AI_ADDRCONFIG).
ip link add lrs0 type dummy
ip address add 192.0.2.1/24 dev lrs0
ip link set lrs0 up
LRS_BIN=$LRS_VM_PAYLOAD/bin exec bash "$LRS_VM_PAYLOAD/repo/tests/slurm/run" "$@"
