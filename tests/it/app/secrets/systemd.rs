//! Every secret as an encrypted credential, from a real systemd that boots in namespaces of its own.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tempfile::TempDir;

use super::*;
use crate::support::program::Program;
use crate::support::{Gateway, Upstream};

const SCRIPT: &str = include_str!("systemd.sh");
/// `daemon` on every system: the gateway is not root there.
const USER: u32 = 1;
const ORDERS: &str = "0123456789abcdef0123456789abcdef";
const ADMIN: &str = "fedcba9876543210fedcba9876543210";

const CONFIG: &str = "[store]\nsqlite = \"state/bearward.db\"\nsecret_file = { credential = \"root\" }\n\
    [oauth]\nintrospection_endpoint = \"/introspect\"\n[[oauth.resource_server]]\nclient_id = \"orders\"\n\
    secret_file = { credential = \"orders\" }\n";

const UNIT: &str = "[Unit]\nDefaultDependencies=no\n[Service]\nUser=daemon\nGroup=daemon\n\
    LoadCredentialEncrypted=root:FOLDER/encrypted/root\nLoadCredentialEncrypted=signing:FOLDER/encrypted/signing\n\
    LoadCredentialEncrypted=orders:FOLDER/encrypted/orders\nLoadCredentialEncrypted=admin:FOLDER/encrypted/admin\n\
    WorkingDirectory=FOLDER/state\nUMask=0077\nStandardError=append:FOLDER/log\n\
    ExecStart=FOLDER/bearward serve --config FOLDER/gateway.toml\n";

/// systemd with the gateway as its only service. Dropping it ends both.
struct Booted {
    unshare: Program,
    folder: TempDir,
}

impl Booted {
    fn start(upstream: &Upstream, root: &str, signing: &str) -> Booted {
        let folder = TempDir::new().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("set");
        for name in ["plain", "state"] {
            fs::create_dir(path(name)).expect("created");
        }
        chown(path("state"), Some(USER), Some(USER)).expect("this test runs as root");
        // The service cannot reach the folder of the build on every machine.
        fs::copy(env!("CARGO_BIN_EXE_bearward"), path("bearward")).expect("copied");
        let text = Gateway::config_text(&upstream.address.to_string(), CONFIG)
            .replace("[tokens]\n", "[tokens]\nsigning_key_file = { credential = \"signing\" }\n")
            .replace("[admin]\n", "[admin]\ntoken_file = { credential = \"admin\" }\n")
            .replace("tls = \"self-signed\"", "tls = \"off\"")
            .replace("file = \"access.log\"", "file = \"state/access.log\"");
        fs::write(path("gateway.toml"), text).expect("written");
        let unit = UNIT.replace("FOLDER", folder.path().to_str().expect("UTF-8"));
        fs::write(path("gateway.service"), unit).expect("written");
        for (name, secret) in [("root", root), ("signing", signing), ("orders", ORDERS), ("admin", ADMIN)] {
            fs::write(path("plain").join(name), format!("{secret}\n")).expect("written");
        }
        fs::write(path("boot.sh"), SCRIPT).expect("written");
        let line = "exec unshare --mount --pid --fork --ipc --uts --cgroup --mount-proc --kill-child=KILL \
            bash boot.sh \"$PWD\"";
        Booted { unshare: Program::start_with_shell(folder.path(), line), folder }
    }

    /// Waits for the `number`th start of the service. Returns its listener and its admin listener.
    async fn addresses(&self, number: usize) -> [SocketAddr; 2] {
        eventually_within(TIMEOUT, "the service runs", async || {
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            let after = |message: &str| {
                let found = log.lines().filter_map(|line| line.split_once(message)).map(|(_, address)| address.trim());
                found.map(|address| address.parse().expect("an address")).collect::<Vec<SocketAddr>>()
            };
            // Two listeners for each start.
            let (listeners, admin) = (after(": listening address="), after(": admin listening address="));
            match (listeners.get(2 * number), admin.get(number)) {
                (Some(listener), Some(admin)) => Ok([*listener, *admin]),
                _ => Err(format!("{log}\n{}", self.unshare.stderr_so_far())),
            }
        })
        .await
    }

    /// Runs a command beside that systemd.
    fn run(&self, line: &str) {
        let children = format!("/proc/{0}/task/{0}/children", self.unshare.id());
        let children = fs::read_to_string(children).expect("it runs");
        let target = children.split_whitespace().next().expect("systemd").to_owned();
        let arguments = ["--target", &target, "--mount", "--pid", "--ipc", "--uts", "--cgroup", "bash", "-ec", line];
        let output = Command::new("nsenter").args(arguments).current_dir(self.folder.path()).output();
        let output = output.expect("nsenter runs");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Replaces an encrypted credential.
    fn encrypt(&self, name: &str, secret: &str) {
        let folder = self.folder.path().display();
        fs::write(self.folder.path().join("plain").join(name), format!("{secret}\n")).expect("written");
        self.run(&format!(
            "cd {folder} && systemd-creds encrypt --quiet --with-key=host --name={name} plain/{name} encrypted/{name}"
        ));
    }
}

#[tokio::test]
async fn encrypted_credentials_are_secrets_and_a_restart_rotates_them() {
    let upstream = Upstream::start();
    let [(first, first_kid), (second, second_kid)] = [new_key(), new_key()];
    let root = format!("1 {}", "0".repeat(43));
    let booted = Booted::start(&upstream, &root, &first);
    let clients = |[listener, admin]: [SocketAddr; 2]| {
        (Client::http1(listener), Client::http1(admin).host("localhost").bearer(ADMIN))
    };
    let (client, admin) = clients(booted.addresses(0).await);
    let pair = issue(&admin).await;
    assert_eq!(kid_of(&pair.access), first_kid);
    assert_eq!(status(&client, &pair.access).await, 200);
    let basic = format!("Basic {}", STANDARD.encode(format!("orders:{ORDERS}")));
    let introspected = client.clone().header("authorization", &basic);
    let introspected = introspected.header("content-type", "application/x-www-form-urlencoded");
    let body = format!("token={}", pair.access);
    let response = introspected.send(http::Method::POST, "/introspect", body.into()).await;
    assert_eq!(response.json()["active"], true, "{response:?}");

    // The unit gets the new credentials at its next start. Both root secrets are there, so no session ends.
    booted.encrypt("signing", &second);
    booted.encrypt("root", &format!("{root}\n2 1{}", "0".repeat(42)));
    booted.run("systemctl restart gateway.service");
    let (client, admin) = clients(booted.addresses(1).await);
    assert_eq!(status(&client, &pair.access).await, 200);
    let next = refresh(&client, &pair).await;
    assert_eq!(kid_of(&next.access), second_kid);
    assert_eq!(published(&client).await, [second_kid, first_kid]);
    let keys = admin.get("/admin/v1/keys").await.json();
    assert!(keys["keys"].as_array().expect("a list").iter().all(|key| key["root"] == 2), "{keys}");
}
