#!/usr/bin/env bash
# Installs what the SLURM tests need, from Debian; where that is not possible, the tests skip and say why.
set -euo pipefail
command -v slurmctld >/dev/null && command -v slurmd >/dev/null && command -v slurmdbd >/dev/null \
    && command -v sbatch >/dev/null && command -v munged >/dev/null && command -v mariadbd >/dev/null && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "SLURM's packages are missing, and only root can install them, with apt-get: its tests are skipped"
    exit 0
fi
# Packages start their daemons where an init system lets them: the tests start their own.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' > $policy
    chmod +x $policy
    trap 'rm -f $policy' EXIT
fi
{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
    slurmctld slurmd slurm-client slurmdbd munge mariadb-server; } > /dev/null \
    || echo "apt-get could not install SLURM's packages: its tests are skipped"
