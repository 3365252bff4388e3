//! The authorization endpoint: clients ask users, who sign in at a provider and agree.

mod clients;
mod codes;
mod consent;
mod denied_clients;
mod document_keys;
mod documents;
mod ended_clients;
mod explained;
mod floods;
mod flow;
mod freshness;
mod grants;
mod hosted;
mod login_page;
mod narrowed;
mod operators;
mod pages;
mod pushed;
mod recorded;
mod registration;
mod replicas;
mod requests;
mod reuse;
mod single_page;

use std::collections::BTreeMap;
use std::sync::Arc;

use bearward::protocols::http::parameters;
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::gateway::oauth::post;
use crate::gateway::sign_in::liar::Liar;
use crate::support::clock::ManualClock;
use crate::support::visitor::{APP, Visitor, parameter, shown_scopes};
use crate::support::wait::eventually_within;
use crate::support::wire::TIMEOUT;
use crate::support::{Gateway, TestResponse, Upstream, secrets};

const MCP: &str = "https://app.example/mcp";
const NOTES: &str = "https://app.example/notes";
const CALLBACK: &str = "https://client.example/callback";

/// RFC 7636 appendix B.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

/// `[oauth]` with the provider `main`, two resources and three clients.
const OAUTH: &str = r#"
[oauth]
sign_in = "main"
[[oauth.scope]]
name = "notes:read"
text = "Read your notes"
[[oauth.scope]]
name = "notes:write"
text = "Change your notes"
claim = { pointer = "/groups", contains = "staff" }
[[oauth.client]]
client_id = "spa"
client_auth = "none"
redirect_uris = ["https://client.example/callback"]
[[oauth.client]]
client_id = "cli"
client_auth = "none"
redirect_uris = ["http://127.0.0.1/callback"]
scopes = ["notes:read"]
[[oauth.client]]
client_id = "trusted"
client_auth = "none"
redirect_uris = ["https://client.example/callback"]
consent = "never"
[[route]]
path = "/orders"
sign_in = "main"
[[route]]
path = "/mcp"
resource = true
default_resource = true
[[route]]
path = "/notes"
resource = true
scopes = ["notes:read"]
any_scope = ["notes:write", "notes:read"]
"#;

/// A gateway at `https://app.example`, with a provider and a browser.
struct Front {
    gateway: Gateway,
    liar: Liar,
    #[allow(dead_code)]
    upstream: Upstream,
    alice: Visitor,
}

impl Front {
    async fn start() -> Front {
        Front::with(OAUTH).await
    }

    /// `more`: the configuration after the provider.
    async fn with(more: &str) -> Front {
        Front::with_calls(more, 0).await
    }

    /// `calls`: `throttle.calls`; 0: no limit.
    async fn with_calls(more: &str, calls: u32) -> Front {
        let liar = Liar::start(&json!({}));
        let upstream = Upstream::start();
        let provider = format!(
            "[[provider]]\nname = \"main\"\nissuer = \"{}\"\nclient_id = \"gateway\"\n\
             client_secret_file = \"client.secret\"\nclaims = [\"email\", \"groups\"]\n",
            liar.issuer
        );
        let text = Gateway::config_text(&upstream.address.to_string(), &format!("{provider}{more}"));
        let text = text.replace("https://gateway.example", APP).replace("calls = 0", &format!("calls = {calls}"));
        // With one worker, what one client costs another one shows.
        let text = text.replace("workers = 2", "workers = 1");
        let folder = Arc::new(TempDir::new().expect("a folder"));
        let secret = folder.path().join("client.secret");
        bearward::types::secret::write_private(&secret, b"of the gateway").expect("written");
        let gateway = Gateway::in_folder(text, folder, Arc::new(ManualClock::new()));
        let front = Front { alice: Visitor::of(&gateway), gateway, liar, upstream };
        eventually_within(TIMEOUT, "the metadata of the provider are known", async || {
            let mut visitor = Visitor::of(&front.gateway);
            match visitor.load(&format!("{APP}/oauth2/sign_in/main")).await.status.as_u16() {
                302 => Ok(()),
                status => Err(status.to_string()),
            }
        })
        .await;
        front
    }

    /// Follows the request of a client to the consent page, with a sign-in on the way.
    async fn consent_page(&mut self, url: &str) -> Page {
        let out = self.alice.navigate_until(url, &self.liar.issuer).await;
        let back = self.liar.agree(&out);
        let response = self.alice.navigate(&back).await;
        Page::of(&response)
    }

    /// Sends the form of the consent page. Returns where the browser is sent.
    async fn decide(&mut self, page: &Page, decision: &str) -> String {
        let response = self.submit(page, decision).await;
        assert_eq!(response.status, 303, "{}", response.text());
        response.header("location").expect("a redirect").to_owned()
    }

    async fn submit(&mut self, page: &Page, decision: &str) -> TestResponse {
        self.alice.submit(&format!("{APP}/oauth/consent"), &page.form(decision)).await
    }

    /// The code that the client gets when the user signs in and agrees.
    async fn code(&mut self, url: &str) -> String {
        let page = self.consent_page(url).await;
        let answer = self.decide(&page, "allow").await;
        parameter(&answer, "code").unwrap_or_else(|| panic!("no code in {answer}"))
    }

    /// Redeems a code of the client `spa`. `changed`: parameters that differ from those of a good request.
    async fn redeem(&self, code: &str, changed: &[(&str, &str)]) -> TestResponse {
        let mut form = BTreeMap::from([
            ("grant_type", "authorization_code"),
            ("code", code),
            ("client_id", "spa"),
            ("redirect_uri", CALLBACK),
            ("code_verifier", VERIFIER),
        ]);
        form.extend(changed.iter().copied());
        let form: Vec<_> = form.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        let client = self.gateway.client().host("app.example");
        let response = post(client, "/oauth/token", &form).await;
        for token in ["access_token", "refresh_token"] {
            if response.status == 200 {
                secrets::remember(response.json()[token].as_str().expect("a token"));
            }
        }
        response
    }

    /// Refreshes the tokens of this client.
    async fn refresh(&self, tokens: &Value, client_id: &str) -> TestResponse {
        self.refresh_for(tokens, &[("client_id", client_id)]).await
    }

    /// `more`: the other parameters.
    async fn refresh_for(&self, tokens: &Value, more: &[(&str, &str)]) -> TestResponse {
        let refresh = tokens["refresh_token"].as_str().expect("a token");
        let form = [&[("grant_type", "refresh_token"), ("refresh_token", refresh)], more].concat();
        post(self.gateway.client().host("app.example"), "/oauth/token", &form).await
    }

    /// The status of a request with this token.
    async fn status(&self, path: &str, token: &Value) -> u16 {
        let client = self.gateway.client().host("app.example").bearer(token.as_str().expect("a token"));
        client.get(path).await.status.as_u16()
    }
}

/// The consent page.
struct Page {
    html: String,
    request: String,
    session: String,
}

impl Page {
    fn of(response: &TestResponse) -> Page {
        let html = response.text();
        assert_eq!(response.status, 200, "{html}");
        let field = |name: &str| {
            let begin = format!("name=\"{name}\" value=\"");
            let rest = html.split_once(&begin).unwrap_or_else(|| panic!("no field {name} in {html}")).1;
            rest.split('"').next().expect("a value").to_owned()
        };
        Page { request: field("request"), session: field("session"), html: html.clone() }
    }

    /// As a browser sends it, with the scopes of the page that cannot be left out.
    fn form(&self, decision: &str) -> String {
        let own = [("request", &*self.request), ("session", &*self.session), ("decision", decision)];
        parameters::write(own.into_iter().chain(shown_scopes(&self.html)))
    }
}

/// The URL of a good request of the client `spa`, with these parameters changed. An empty value takes one away.
fn authorize(changed: &[(&str, &str)]) -> String {
    let mut query = BTreeMap::from([
        ("response_type", "code"),
        ("client_id", "spa"),
        ("redirect_uri", CALLBACK),
        ("code_challenge", CHALLENGE),
        ("code_challenge_method", "S256"),
        ("state", "of the client"),
    ]);
    query.extend(changed.iter().copied());
    let query = parameters::write(query.into_iter().filter(|(_, value)| !value.is_empty()));
    format!("{APP}/oauth/authorize?{query}")
}

/// A request that no browser sends.
async fn fetched(front: &Front, url: &str) -> TestResponse {
    let path = url.strip_prefix(APP).expect("a URL of the gateway");
    front.gateway.client().host("app.example").send(Method::GET, path, "".into()).await
}

/// The line of a request at the authorization endpoint.
pub async fn logged_request() -> String {
    let front = Front::start().await;
    fetched(&front, &authorize(&[])).await;
    let line = front.gateway.log_line(|line| line["oauth_client"] == "spa").await;
    format!("{line}\n")
}

/// The counters of this metric that are not zero, by the values of their labels.
async fn counted(front: &Front, metric: &str) -> BTreeMap<String, u64> {
    let page = front.gateway.admin_client().get("/metrics").await.text();
    let prefix = format!("bearward_{metric}_total{{");
    let of_line = |line: &str| {
        let (labels, value) = line.strip_prefix(&prefix)?.split_once("} ")?;
        let labels: Vec<&str> = labels.split('"').skip(1).step_by(2).collect();
        let value: f64 = value.parse().expect("a number");
        (value > 0.0).then(|| (labels.join(" "), value as u64))
    };
    page.lines().filter_map(of_line).collect()
}

fn counts<const N: usize>(expected: [(&str, u64); N]) -> BTreeMap<String, u64> {
    expected.into_iter().map(|(labels, count)| (labels.to_owned(), count)).collect()
}
