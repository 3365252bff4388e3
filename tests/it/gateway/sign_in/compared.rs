//! The gateway beside Debian's mod_auth_openidc: the same provider, the same browser, and the same faults. What comes
//! out is in `deploy/sign-in.md`.

use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::refresh::{KEYS, refreshes};
use super::{APP, CALLBACK, CLIENT, SECRET, everything, gateway, provider};
use crate::support::front_proxy::{FrontProxy, apache};
use crate::support::ports::free_address;
use crate::support::visitor::{Visitor, parameter};
use crate::support::{Gateway, OidcProvider, Upstream};

/// How long access tokens of the provider live. mod_auth_openidc has the clock of the system.
const LIFETIME: Duration = Duration::from_secs(3);

/// One of the two, with the provider that it uses.
struct Party {
    provider: OidcProvider,
    /// Where browsers reach it.
    url: String,
    callback: String,
    browser: Visitor,
    runs: Runs,
}

/// What ends with the story.
#[allow(dead_code)]
enum Runs {
    Bearward(Box<Gateway>, Upstream),
    Apache(FrontProxy, TempDir),
}

/// Its refresh tokens rotate, and a second use of one ends all. `more`: further settings.
fn of_provider(more: Value) -> OidcProvider {
    let mut settings = json!({
        "configuration": { "rotateRefreshToken": true }, "pkce_required": false,
        "ttl": { "AccessToken": LIFETIME.as_secs(), "IdToken": 36_000 },
    });
    for (name, value) in more.as_object().expect("an object") {
        settings[name] = value.clone();
    }
    provider::start(settings)
}

async fn bearward() -> Party {
    let (provider, upstream) = (of_provider(json!({})), Upstream::start());
    let gateway = gateway(&upstream, &everything(&provider.issuer, KEYS)).await;
    let browser = Visitor::of(&gateway);
    let (url, callback) = (APP.to_owned(), CALLBACK.to_owned());
    Party { provider, url, callback, browser, runs: Runs::Bearward(Box::new(gateway), upstream) }
}

/// `more`: further lines of its configuration.
fn mod_auth_openidc(more: &str) -> Party {
    let (folder, address) = (TempDir::new().expect("a folder"), free_address());
    let (url, callback) = (format!("http://{address}"), format!("http://{address}/callback"));
    let client = json!({
        "client_id": CLIENT, "client_secret": SECRET, "redirect_uris": [callback],
        "grant_types": ["authorization_code", "refresh_token"], "scope": "openid email offline_access",
        "backchannel_logout_uri": format!("{callback}?logout=backchannel"),
        "backchannel_logout_session_required": true,
    });
    let provider = of_provider(json!({ "clients": [client] }));
    let text = apache_text(&folder, &address.to_string(), &provider.issuer, more);
    std::fs::write(folder.path().join("apache.conf"), text).expect("written");
    let configuration = folder.path().join("apache.conf").display().to_string();
    // In one process, so that all requests share one cache.
    let proxy = FrontProxy::start(&apache(), &["-X", "-f", &configuration], folder.path(), address);
    Party { provider, url, callback, browser: Visitor::at(address), runs: Runs::Apache(proxy, folder) }
}

/// A request with a session gets 204.
fn apache_text(folder: &TempDir, address: &str, issuer: &str, more: &str) -> String {
    let modules = ["mpm_event", "authn_core", "authz_core", "authz_user", "rewrite", "auth_openidc"];
    let modules = modules.map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"));
    let (modules, folder) = (modules.concat(), folder.path().display());
    format!(
        "{modules}ServerRoot {folder}\nDefaultRuntimeDir {folder}\nPidFile apache.pid\nErrorLog /dev/stderr\n\
         User daemon\nGroup daemon\nServerName localhost\nListen {address}\nStartServers 1\nServerLimit 1\n\
         ThreadLimit 64\nThreadsPerChild 64\nMaxRequestWorkers 64\n\
         OIDCProviderMetadataURL {issuer}/.well-known/openid-configuration\nOIDCClientID {CLIENT}\n\
         OIDCClientSecret \"{SECRET}\"\nOIDCRedirectURI http://{address}/callback\n\
         OIDCCryptoPassphrase of-a-test\nOIDCScope \"openid email offline_access\"\n\
         OIDCAuthRequestParams prompt=consent\nOIDCRefreshAccessTokenBeforeExpiry 1\n{more}\n\
         <Location />\nAuthType openid-connect\nRequire valid-user\nRewriteEngine on\nRewriteRule ^ - [R=204]\n\
         </Location>\n"
    )
}

impl Party {
    async fn sign_in(&mut self) {
        let page = self.browser.navigate(&format!("{}/orders", self.url)).await;
        assert!(page.status.is_success(), "{:#?} {page:?}", self.browser.way);
    }

    /// The tokens of the session end.
    async fn tokens_end(&self) {
        match &self.runs {
            Runs::Bearward(gateway, _) => gateway.advance(LIFETIME),
            Runs::Apache(..) => tokio::time::sleep(LIFETIME).await,
        }
    }

    /// The provider works on each request for tokens after a second.
    async fn slow_down(&self) {
        self.provider.control("/faults", &json!([{ "path": "/token", "delay_ms": 1_000 }])).await;
    }

    /// How many of this many requests at once of one page succeed.
    async fn succeed(&self, number: usize) -> usize {
        let one = |mut browser: Visitor, url: String| async move { browser.fetch(&url).await.status.is_success() };
        let url = format!("{}/api", self.url);
        let all: Vec<_> = (0..number).map(|_| tokio::spawn(one(self.browser.clone(), url.clone()))).collect();
        let mut good = 0;
        for response in all {
            good += usize::from(response.await.expect("no panic"));
        }
        good
    }
}

#[tokio::test]
async fn many_requests_when_the_tokens_end() {
    // With a busy processor, some requests come when the first refresh is over.
    for (mut party, asks, ends_grant) in [(bearward().await, 1..=1, false), (mod_auth_openidc(""), 2..=50, true)] {
        party.sign_in().await;
        party.tokens_end().await;
        party.slow_down().await;
        assert_eq!(party.succeed(50).await, 50, "{}", party.url);
        let refreshes = refreshes(&party.provider).await;
        assert!(asks.contains(&refreshes.len()), "{}: {}", party.url, refreshes.len());
        assert_eq!(refreshes.iter().filter(|call| call["status"] == 200).count(), 1, "{}", party.url);
        assert_eq!(!party.provider.log("grant.revoked").await.is_empty(), ends_grant, "{}", party.url);
    }
}

/// As from a user who clicks twice.
#[tokio::test]
async fn one_callback_twice_at_once() {
    for (mut party, codes) in [(bearward().await, 1), (mod_auth_openidc(""), 2)] {
        let back = party.browser.navigate_until(&format!("{}/orders", party.url), &party.callback).await;
        party.slow_down().await;
        let (mut one, mut other) = (party.browser.clone(), party.browser.clone());
        tokio::join!(one.load(&back), other.load(&back));
        assert_eq!(party.provider.log("token").await.len(), codes, "{}", party.url);
    }
}

#[tokio::test]
async fn a_browser_without_a_session() {
    let parties =
        [(bearward().await, Some("S256"), [302, 302, 302, 429], 3), (mod_auth_openidc(""), None, [302; 4], 4)];
    for (mut party, pkce, pages, cookies) in parties {
        assert_eq!(party.browser.fetch(&format!("{}/api", party.url)).await.status, 401, "{}", party.url);
        let (mut statuses, mut started) = (Vec::new(), String::new());
        for number in 0..4 {
            let page = party.browser.load(&format!("{}/{number}", party.url)).await;
            statuses.push(page.status.as_u16());
            started = page.header("location").unwrap_or(&started).to_owned();
        }
        assert_eq!(statuses, pages, "{}", party.url);
        assert_eq!(parameter(&started, "code_challenge_method").as_deref(), pkce, "{started}");
        let names = party.browser.names_of(&party.url);
        let attempts = names.iter().filter(|name| name.contains("-try-") || name.contains("_state_"));
        assert_eq!(attempts.count(), cookies, "{names:?}");
    }
}

#[tokio::test]
async fn a_session_that_the_provider_ends() {
    let in_cookie = mod_auth_openidc("OIDCSessionType client-cookie");
    for (mut party, ends) in [(bearward().await, true), (mod_auth_openidc(""), true), (in_cookie, false)] {
        if let Runs::Bearward(gateway, _) = &party.runs {
            let client = json!({
                "client_id": CLIENT, "client_secret": SECRET, "redirect_uris": [CALLBACK],
                "grant_types": ["authorization_code", "refresh_token"], "scope": "openid email offline_access",
                "backchannel_logout_uri": format!("http://{}/oauth2/backchannel_logout/main", gateway.address()),
                "backchannel_logout_session_required": true,
            });
            party.provider.control("/clients", &client).await;
        }
        party.sign_in().await;
        party.provider.control("/end", &json!({ "account": "alice" })).await;
        assert_eq!(party.provider.log("backchannel").await.len(), 1, "{}", party.url);
        assert_eq!(party.succeed(1).await == 0, ends, "{}", party.url);
    }
}
