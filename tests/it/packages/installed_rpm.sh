#!/usr/bin/env bash
# Installs the package for RPM below a folder, and removes it: installed_rpm.sh ROOT
set -euo pipefail
root=$1
trap 'echo "failed in line $LINENO: $BASH_COMMAND"' ERR
step() { printf '==> %s\n' "$*"; }
inside() { chroot "$root" "$@"; }
# The system is no RPM system, so its packages are not in the database.
rpm_in() { rpm --root "$root" --dbpath /var/lib/rpm "$@"; }

step "installs"
sed -i '/^bearward:/d' "$root"/etc/{passwd,group,shadow,gshadow}
cp "$RPM" "$root/tmp/bearward.rpm"
rpm_in --install --nodeps "$root/tmp/bearward.rpm"
[[ $(inside id --user --name bearward) == bearward ]]
[[ $(inside stat -c '%U:%G %a' /etc/bearward /etc/bearward/tls) == $'root:bearward 750\nroot:bearward 750' ]]
rpm_in --verify --nodeps bearward
inside runuser -u bearward -- bearward check --config /etc/bearward/gateway.toml

step "keeps a changed configuration when it is removed"
cp "$CONFIGURATION" "$root/etc/bearward/gateway.toml"
rpm_in --erase bearward
cmp "$CONFIGURATION" "$root/etc/bearward/gateway.toml.rpmsave"
[[ ! -e $root/usr/bin/bearward ]]
echo "installed_rpm.sh: all steps passed"
