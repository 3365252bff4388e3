#!/usr/bin/env bash
# Makes a small system of this Debian or Ubuntu, runs each script with its folder, and removes it: fresh_system.sh SCRIPT…
set -euo pipefail
. /etc/os-release
# The mirrors of this machine.
targets=$(apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' \
    'Created-By: Packages' "Origin: ${ID^}" "Codename: $VERSION_CODENAME" 'Architecture: '"$(dpkg --print-architecture)")
[[ $targets ]] || { echo "apt knows no mirror of $ID $VERSION_CODENAME: run apt-get update" >&2; exit 1; }
hooks=()
for script; do hooks+=(--customize-hook="$(realpath "$script") \"\$1\""); done
# What the package depends on, and nothing else.
mmdebstrap --quiet --variant=essential --format=null --include=systemd-standalone-sysusers \
    "${hooks[@]}" "$VERSION_CODENAME" /dev/null "$targets"
