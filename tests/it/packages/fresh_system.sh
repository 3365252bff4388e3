#!/usr/bin/env bash
# Makes a small system of this Debian or Ubuntu, runs each script with its folder, and removes it:
# fresh_system.sh ARCHIVES SCRIPT…
#
# ARCHIVES: a folder that keeps the system of before as an archive, because the packages of a system take most of the
# time. An archive is used for a week, with the same mirrors and packages. Each run unpacks it anew.
set -euo pipefail
archives=$1
shift
. /etc/os-release
# The mirrors of this machine.
targets=$(apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' \
    'Created-By: Packages' "Origin: ${ID^}" "Codename: $VERSION_CODENAME" 'Architecture: '"$(dpkg --print-architecture)")
[[ $targets ]] || { echo "apt knows no mirror of $ID $VERSION_CODENAME: run apt-get update" >&2; exit 1; }
# What the package depends on, and nothing else.
packages=systemd-standalone-sysusers
digest=$(sha256sum <<<"$VERSION_CODENAME $packages $targets")
archive=$archives/${digest:0:16}.tar

if [[ ! $(find "$archives" -path "$archive" -mtime -7 2>/dev/null) ]]; then
    rm -rf "$archives"
    mkdir -p "$archives"
    # Only a complete archive has its name.
    mmdebstrap --quiet --variant=essential --format=tar --include="$packages" \
        "$VERSION_CODENAME" "$archive.new" "$targets"
    mv "$archive.new" "$archive"
fi

# mmdebstrap makes the files in dev itself.
hooks=(--setup-hook="tar --extract --exclude ./dev --file ${archive@Q} --directory \"\$1\"")
for script; do hooks+=(--customize-hook="$(realpath "$script") \"\$1\""); done
mmdebstrap --quiet --variant=custom --format=null --skip=update,cleanup "${hooks[@]}" \
    "$VERSION_CODENAME" /dev/null "$targets"
