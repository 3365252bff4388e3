//! The configurations that tests start a gateway with.

use std::net::SocketAddr;
use std::sync::Arc;

use tempfile::TempDir;

use super::{AUDIENCE, Gateway};
use crate::support::clock::ManualClock;
use crate::support::tokens::{self, EXTERNAL_ISSUER, Mint};
use crate::support::upstream::Upstream;

/// The first listener is in cleartext, the second one uses TLS. The gateway knows the host of the test client. Tests
/// may refresh as often as they need to, unless they start with [`Gateway::with_throttle`].
const BASE: &str = r#"
workers = 2
[[listener]]
address = "127.0.0.1:0"
tls = "off"
[[listener]]
address = "127.0.0.1:0"
tls = "self-signed"
[admin]
address = "127.0.0.1:0"
[tokens]
issuer = "https://gateway.example"
audience = ["https://api.example"]
[https]
hosts = ["gateway.test"]
[throttle]
refreshes = 0
calls = 0
failures = 0
[access_log]
file = "access.log"
"#;

impl Gateway {
    /// Starts a gateway in front of one backend. Each request needs a token.
    pub fn start(upstream: &Upstream) -> Gateway {
        Self::with_config(upstream, "")
    }

    /// As [`Gateway::start`], with more sections: `[[route]]`, `[timeouts]`, `[[issuer]]` and so on.
    pub fn with_config(upstream: &Upstream, more: &str) -> Gateway {
        Self::from_text(Self::config_text(&upstream.address.to_string(), more))
    }

    /// Starts a gateway that requires no token. `more` starts inside `[[upstream]]`.
    pub fn public(upstream: SocketAddr, more: &str) -> Gateway {
        Self::from_text(Self::public_config(upstream, more))
    }

    /// As [`Gateway::public`], with one worker that all clients share.
    pub fn public_single_worker(upstream: SocketAddr, more: &str) -> Gateway {
        Self::from_text(Self::public_config(upstream, more).replace("workers = 2", "workers = 1"))
    }

    /// As [`Gateway::public`], with an access log in this format.
    pub fn public_with_log_format(upstream: SocketAddr, format: &str) -> Gateway {
        let file = "file = \"access.log\"";
        Self::from_text(Self::public_config(upstream, "").replace(file, &format!("{file}\nformat = \"{format}\"")))
    }

    /// As [`Gateway::with_config`]. It also accepts the tokens of another issuer.
    pub fn with_issuer(upstream: &Upstream, mint: &Mint, more: &str) -> Gateway {
        let folder = Arc::new(TempDir::new().expect("a temporary folder"));
        std::fs::write(folder.path().join("login.json"), mint.jwks()).expect("written");
        let algorithm = tokens::name(mint.algorithm);
        let issuer = format!(
            "[[issuer]]\nissuer = \"{EXTERNAL_ISSUER}\"\naudience = [\"{AUDIENCE}\"]\njwks_file = \"login.json\"\n\
             algorithms = [\"{algorithm}\"]\n"
        );
        let text = Self::config_text(&upstream.address.to_string(), &format!("{issuer}{more}"));
        Self::in_folder(text, folder, Arc::new(ManualClock::new()))
    }

    /// As [`Gateway::with_config`], with these keys of `[throttle]` and the defaults of the others.
    pub fn with_throttle(upstream: SocketAddr, keys: &str, more: &str) -> Gateway {
        let off = "[throttle]\nrefreshes = 0\ncalls = 0\nfailures = 0\n";
        let text = Self::config_text(&upstream.to_string(), more);
        assert!(text.contains(off), "{text}");
        Self::from_text(text.replace(off, &format!("[throttle]\n{keys}\n")))
    }

    /// Starts a gateway with this configuration.
    pub fn from_text(text: String) -> Gateway {
        Self::in_folder(text, Arc::new(TempDir::new().expect("a temporary folder")), Arc::new(ManualClock::new()))
    }

    /// The configuration of [`Gateway::with_config`].
    pub fn config_text(upstream: &str, more: &str) -> String {
        format!("{BASE}\n[[upstream]]\nname = \"backend\"\nservers = [\"http://{upstream}\"]\n{more}")
    }

    /// The configuration of [`Gateway::public`].
    pub fn public_config(upstream: SocketAddr, more: &str) -> String {
        let public = "[[route]]\npath = \"/\"\npublic = true\n";
        Self::config_text(&upstream.to_string(), &format!("{more}\n{public}"))
    }
}
