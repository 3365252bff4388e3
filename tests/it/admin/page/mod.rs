//! The operators' page in headless Chromium, with a real gateway behind it.

mod api_keys;
mod files;
mod logins;
mod looks;
mod parts;
mod sign_in;

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::clock::ManualClock;
use crate::support::wait::eventually_ok;
use crate::support::{Browser, Gateway, Upstream};

/// An operator with the role view.
const VIEWER: &str = "a-token-of-vera-who-reads-1234567890";

const PARTS: [&str; 8] = ["now", "why", "logins", "apikeys", "keys", "certificates", "upstreams", "configuration"];

/// `folder`: files that the configuration names. `more`: further tables.
fn gateway_in(folder: TempDir, upstream: &str, more: &str) -> Gateway {
    bearward::types::secret::write_private(&folder.path().join("vera.token"), VIEWER.as_bytes()).expect("written");
    let operator = "[[admin.operator]]\nname = \"vera\"\ntoken_file = \"vera.token\"\n";
    let text = Gateway::config_text(upstream, &format!("{operator}{more}"));
    Gateway::in_folder(text, Arc::new(folder), Arc::new(ManualClock::new()))
}

fn gateway(upstream: &Upstream, more: &str) -> Gateway {
    gateway_in(TempDir::new().expect("a folder"), &upstream.address.to_string(), more)
}

fn admin_token(gateway: &Gateway) -> String {
    gateway.file("admin.token").trim().to_owned()
}

/// An open page. What it shows is waited for.
struct Page {
    browser: Browser,
    address: String,
}

impl Page {
    /// Opens the page and waits for the form to sign in.
    async fn open(gateway: &Gateway) -> Page {
        Self::open_at(gateway.admin_address()).await
    }

    async fn open_at(admin: SocketAddr) -> Page {
        let browser = Browser::open_cleartext(&[("attacker.example", admin)]).await;
        let page = Page { browser, address: format!("http://{admin}/") };
        page.browser.go(&page.address).await;
        page.until("the form to sign in", "return !document.querySelector('#sign-in').hidden", &Value::Null).await;
        page
    }

    /// As [`Page::open`], and signs in.
    async fn signed_in(gateway: &Gateway, token: &str) -> Page {
        let page = Self::open(gateway).await;
        page.sign_in(token).await;
        let known = "return document.querySelector('#state').className !== ''";
        page.until("the state is known", known, &Value::Null).await;
        page
    }

    async fn sign_in(&self, token: &str) {
        self.enter("#token", token).await;
        self.click("#sign-in-form .main").await;
    }

    /// Waits until `script` returns something else than false, null and "". Returns it.
    async fn until(&self, what: &str, script: &str, input: &Value) -> Value {
        eventually_ok(what, async || {
            let value = self.browser.run(script, input).await;
            if value == json!(false) || value.is_null() || value == json!("") {
                Err(self.text("body").await)
            } else {
                Ok(value)
            }
        })
        .await
    }

    /// The text of an element. Of a hidden one it is the whole text.
    async fn text(&self, selector: &str) -> String {
        let text = self.browser.run("return document.querySelector(input)?.innerText ?? ''", &json!(selector)).await;
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until an element shows this text.
    async fn shows(&self, selector: &str, text: &str) {
        let script = "const found = document.querySelector(input[0]); \
                      return found?.checkVisibility() && found.innerText.includes(input[1])";
        self.until(&format!("{selector} shows {text:?}"), script, &json!([selector, text])).await;
    }

    async fn click(&self, selector: &str) {
        let script = "const found = document.querySelector(input); found?.click(); return found !== null";
        self.until(&format!("{selector} is there"), script, &json!(selector)).await;
    }

    async fn enter(&self, selector: &str, text: &str) {
        let script = "const field = document.querySelector(input[0]); field.value = input[1]; \
                      field.dispatchEvent(new Event('input', { bubbles: true }));";
        self.browser.run(script, &json!([selector, text])).await;
    }

    /// Goes to a part by its address, and waits until it has its content.
    async fn go(&self, part: &str) {
        self.browser.run("location.hash = input", &json!(part)).await;
        let name = part.split(['/', '?']).next().unwrap_or_default();
        let script = "const part = document.querySelector(`[data-part=${input}]`); \
                      return !part.hidden && part.querySelector('table, .empty, .tile') !== null";
        self.until(&format!("the part {part}"), script, &json!(name)).await;
    }

    /// As [`Page::shows`]. The page asks the gateway at once, as if its tab had been hidden.
    async fn shows_now(&self, selector: &str, text: &str) {
        let script = "document.dispatchEvent(new Event('visibilitychange')); \
                      const found = document.querySelector(input[0]); \
                      return found !== null && found.innerText.includes(input[1])";
        self.until(&format!("{selector} shows {text:?}"), script, &json!([selector, text])).await;
    }

    /// `prefers-color-scheme`
    async fn scheme(&self, scheme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.browser.devtools("Emulation.setEmulatedMedia", &features).await;
    }
}

/// Reads a library of tests/it/browser.
fn library(path: &str) -> String {
    let path = crate::support::source::root().join("target/browser/node_modules").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}; tests/run installs it", path.display()))
}
