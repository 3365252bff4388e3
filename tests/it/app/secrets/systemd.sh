# Boots systemd in namespaces of its own, with one unit. $1: a folder with gateway.service, and with the secrets to
# encrypt in plain/. The host key of systemd-creds is made for this boot.
set -eu
# Only in these namespaces. A credential is a mount that systemd passes on to the service.
mount --make-rshared /
mount -t tmpfs tmpfs /run
mount --make-rshared /run
mkdir -p "$1/host" "$1/encrypted" /run/systemd/system
mount --bind "$1/host" /var/lib/systemd
cd "$1/plain"
for name in *; do systemd-creds encrypt --quiet --with-key=host --name="$name" "$name" "$1/encrypted/$name"; done
cp "$1/gateway.service" /run/systemd/system/
export container=test
exec /usr/lib/systemd/systemd --system --unit=gateway.service --show-status=no --log-target=console --log-level=warning
