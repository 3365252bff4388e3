#!/usr/bin/env bash
# Installs the package for Debian below a folder, and takes all steps that an operator takes: installed_deb.sh ROOT
set -euo pipefail
root=$1
trap 'echo "failed in line $LINENO: $BASH_COMMAND"' ERR
step() { printf '==> %s\n' "$*"; }
inside() { chroot "$root" env --ignore-environment PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
has_no_line() { ! grep "$@"; }
as_bearward() { inside setpriv --reuid bearward --regid bearward --init-groups "$@"; }
config=/etc/bearward/gateway.toml

step "installs"
cp "$DEB" "$root/tmp/bearward.deb"
cp "$NEWER" "$root/tmp/newer.deb"
inside dpkg --install /tmp/bearward.deb
[[ $(inside id --user --name bearward) == bearward ]]
[[ $(inside stat -c '%U:%G %a' /etc/bearward /etc/bearward/tls) == $'root:bearward 750\nroot:bearward 750' ]]
grep --quiet 'ExecStart=/usr/bin/bearward serve' "$root/usr/lib/systemd/system/bearward.service"
has_no_line /usr/local "$root/usr/lib/systemd/system/bearward.service"
inside bash -n /usr/share/bash-completion/completions/bearward
[[ $(inside stat -c '%U:%G %a' /var/lib/bearward /var/log/bearward) == $'bearward:bearward 700\nbearward:bearward 750' ]]

step "has a configuration that the gateway accepts"
as_bearward bearward check --config "$config"

step "starts and answers"
cp "$CONFIGURATION" "$root$config"
touch "$root/tmp/journal"
as_bearward bearward serve --config "$config" >"$root/tmp/journal" 2>&1 &
gateway=$!
until grep --quiet 'admin listening' "$root/tmp/journal"; do
    kill -0 $gateway || { cat "$root/tmp/journal"; exit 1; }
    sleep 0.05
done
status() { curl --silent --output /dev/null --write-out '%{http_code}' "$@" "http://$ADDRESS/"; }
token=$(as_bearward bearward token issue --config "$config" --subject alice --json | sed -n 's/.*"accessToken": *"\([^"]*\)".*/\1/p')
[[ $(status) == 401 ]]
[[ $(status --header "Authorization: Bearer $token") == 200 ]]
pkill --parent $gateway --signal TERM
wait $gateway

step "restarts the running service after an upgrade, and keeps the configuration"
# What stands for systemd notes its calls.
mkdir -p "$root/run/systemd/system" "$root/usr/local/bin"
for name in systemctl deb-systemd-invoke; do
    printf '#!/bin/sh\necho "%s $*" >>/tmp/calls\n[ "$1" != show ] || cat /tmp/pid\n' "$name" >"$root/usr/local/bin/$name"
    chmod 755 "$root/usr/local/bin/$name"
done
# A value of the configuration is only in the environment of the service.
sed -i 's#^issuer = .*#issuer = { env = "GATEWAY_ISSUER" }#' "$root$config"
env --ignore-environment GATEWAY_ISSUER=http://127.0.0.1:8080 "PATH=$PATH" sleep infinity &
service=$!
trap 'kill $service' EXIT
echo $service >"$root/tmp/pid"
cp "$root$config" "$root/tmp/before.toml"
# What `systemctl enable` does.
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
wanted=$root/etc/systemd/system/multi-user.target.wants/bearward.service
ln -s /usr/lib/systemd/system/bearward.service "$wanted"
inside dpkg --install /tmp/newer.deb
grep --quiet 'deb-systemd-invoke restart bearward.service' "$root/tmp/calls"
grep --quiet 'daemon-reload' "$root/tmp/calls"
cmp "$root/tmp/before.toml" "$root$config"
[[ -e $root/var/lib/bearward/bearward.db ]]
inside DPKG_MAINTSCRIPT_PACKAGE=bearward DPKG_MAINTSCRIPT_NAME=postinst /var/lib/dpkg/info/bearward.postinst configure 0.1.0-2

step "keeps the old process if the new program rejects the configuration"
: >"$root/tmp/calls"
echo 'nonsense = 1' >>"$root$config"
inside dpkg --install /tmp/newer.deb 2>"$root/tmp/messages"
grep --quiet 'this version rejects the configuration' "$root/tmp/messages"
has_no_line restart "$root/tmp/calls"

step "stops when it is removed, and keeps configuration and state"
: >"$root/tmp/calls"
touch "$root/etc/bearward/tls/key.pem"
inside dpkg --remove bearward
grep --quiet 'deb-systemd-invoke stop bearward.socket bearward.service' "$root/tmp/calls"
[[ -e $root$config && -e $root/var/lib/bearward/bearward.db && ! -e $root/usr/bin/bearward ]]

step "gives a folder that is made again to the group"
inside dpkg --install /tmp/newer.deb
inside rm /etc/bearward/tls/key.pem
inside dpkg --remove bearward
inside dpkg --install /tmp/newer.deb
[[ $(inside stat -c '%U:%G %a' /etc/bearward /etc/bearward/tls) == $'root:bearward 750\nroot:bearward 750' ]]
touch "$root/etc/bearward/tls/key.pem"

step "removes configuration, state and logs when it is purged, and no key of the operator"
inside dpkg --purge bearward
[[ ! -e $root$config && ! -e $root/var/lib/bearward && ! -e $root/var/log/bearward && ! -L $wanted ]]
[[ -e $root/etc/bearward/tls/key.pem ]]

rm -r "$root"/{etc/bearward,run/systemd,usr/local/bin/systemctl,usr/local/bin/deb-systemd-invoke}
echo "installed_deb.sh: all steps passed"
