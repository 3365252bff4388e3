//! A browser without a window: it keeps cookies for each host, and follows redirects.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use http::Method;

use super::{Client, Gateway, TestResponse, secrets};

/// The gateway of the stories about sign-in, by the name that browsers use.
pub const APP: &str = "https://app.example";

#[derive(Clone)]
pub struct Visitor {
    gateway: SocketAddr,
    /// By host.
    jars: BTreeMap<String, BTreeMap<String, String>>,
    /// The URLs of the last page load, with the redirects that led to it.
    pub way: Vec<String>,
}

impl Visitor {
    /// `https://app.example` is the gateway, as behind a proxy that ends TLS. Every other host is an address.
    pub fn of(gateway: &Gateway) -> Visitor {
        Visitor::at(gateway.address())
    }

    pub fn at(gateway: SocketAddr) -> Visitor {
        Visitor { gateway, jars: BTreeMap::new(), way: Vec::new() }
    }

    /// The gateway has another address now.
    pub fn move_to(&mut self, gateway: &Gateway) {
        self.gateway = gateway.address();
    }

    /// Loads a page, and follows redirects.
    pub async fn navigate(&mut self, url: &str) -> TestResponse {
        self.way.clear();
        let mut url = url.to_owned();
        loop {
            let response = self.load(&url).await;
            self.way.push(url.clone());
            assert!(self.way.len() < 20, "a circle: {:#?}", self.way);
            match response.header("location") {
                Some(location) if response.status.is_redirection() => url = absolute(&url, location),
                _ => return response,
            }
        }
    }

    /// Follows redirects until one leads to a URL that begins so, and does not load that.
    pub async fn navigate_until(&mut self, url: &str, end: &str) -> String {
        let mut url = url.to_owned();
        for _ in 0..20 {
            let response = self.load(&url).await;
            let location =
                response.header("location").unwrap_or_else(|| panic!("no redirect from {url}: {response:?}"));
            url = absolute(&url, location);
            if url.starts_with(end) {
                return url;
            }
        }
        panic!("no redirect to {end}");
    }

    /// Loads a page, and follows nothing.
    pub async fn load(&mut self, url: &str) -> TestResponse {
        let fields = [
            ("accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        self.send(Method::GET, url, &fields, "").await
    }

    /// As a script of the page does.
    pub async fn fetch(&mut self, url: &str) -> TestResponse {
        let fields = [("accept", "*/*"), ("sec-fetch-mode", "cors"), ("sec-fetch-dest", "empty")];
        self.send(Method::GET, url, &fields, "").await
    }

    /// Submits a form of this host.
    pub async fn submit(&mut self, url: &str, body: &str) -> TestResponse {
        let fields = [
            ("origin", APP),
            ("content-type", "application/x-www-form-urlencoded"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        self.send(Method::POST, url, &fields, body).await
    }

    pub async fn send(&mut self, method: Method, url: &str, fields: &[(&str, &str)], body: &str) -> TestResponse {
        let (host, target) = split(url);
        let address = if host == "app.example" { self.gateway } else { host.parse().expect("an address") };
        let mut client = Client::http1(address).host(&host);
        for (name, value) in fields {
            client = client.header(name, value);
        }
        if let Some(cookies) = self.cookies(&host) {
            client = client.header("cookie", &cookies);
        }
        let response = client.send(method, &target, Bytes::from(body.to_owned())).await;
        self.keep(&host, &response);
        response
    }

    fn cookies(&self, host: &str) -> Option<String> {
        let jar = self.jars.get(host).filter(|jar| !jar.is_empty())?;
        Some(jar.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; "))
    }

    fn keep(&mut self, host: &str, response: &TestResponse) {
        let jar = self.jars.entry(host.to_owned()).or_default();
        for field in response.headers.get_all("set-cookie") {
            let field = field.to_str().expect("text");
            let (pair, attributes) = field.split_once(';').expect("attributes");
            let (name, value) = pair.split_once('=').expect("a name");
            let is_gone = attributes.contains("Max-Age=0") || attributes.contains("1970") || value.is_empty();
            if is_gone {
                drop(jar.remove(name))
            } else {
                drop(jar.insert(name.to_owned(), value.to_owned()))
            }
            if name == "__Host-bearward" && !is_gone {
                secrets::remember(value);
            }
        }
    }

    /// A cookie of another site.
    pub fn cookie(&self, url: &str, name: &str) -> Option<&str> {
        self.jars.get(&split(url).0)?.get(name).map(String::as_str)
    }

    /// The cookie of the gateway.
    pub fn session(&self) -> Option<&str> {
        self.jar().and_then(|jar| jar.get("__Host-bearward")).map(String::as_str)
    }

    pub fn set(&mut self, name: &str, value: &str) {
        self.jars.entry("app.example".into()).or_default().insert(name.to_owned(), value.to_owned());
    }

    /// The names of the gateway's cookies.
    pub fn names(&self) -> Vec<&str> {
        self.names_of(APP)
    }

    /// The names of the cookies of a site.
    pub fn names_of(&self, url: &str) -> Vec<&str> {
        self.jars.get(&split(url).0).map(|jar| jar.keys().map(String::as_str).collect()).unwrap_or_default()
    }

    /// The attempts that run.
    pub fn attempts(&self) -> Vec<(String, String)> {
        let all = self.jar().into_iter().flatten();
        let attempts = all.filter(|(name, _)| name.starts_with("__Host-bw-try-"));
        attempts.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    fn jar(&self) -> Option<&BTreeMap<String, String>> {
        self.jars.get("app.example")
    }
}

/// Host with port, and path with query.
fn split(url: &str) -> (String, String) {
    let rest = url.split_once("://").expect("a URL").1;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let target = if rest[end..].starts_with('/') { rest[end..].to_owned() } else { format!("/{}", &rest[end..]) };
    (rest[..end].to_owned(), target)
}

fn absolute(base: &str, location: &str) -> String {
    if location.contains("://") {
        return location.to_owned();
    }
    let (host, _) = split(base);
    let scheme = base.split_once("://").expect("a URL").0;
    format!("{scheme}://{host}{location}")
}

/// The value of a parameter in the query of a URL.
pub fn parameter(url: &str, name: &str) -> Option<String> {
    let query = url.split_once('?')?.1;
    let parameters = bearward::protocols::http::parameters::read(query).expect("a query");
    parameters.get(name).cloned()
}

/// The fields of the scopes on a consent page that the user cannot leave out.
pub fn shown_scopes(html: &str) -> impl Iterator<Item = (&str, &str)> {
    let inputs = html.split("<input type=\"hidden\" name=\"").skip(1);
    let names = inputs.map(|rest| rest.split('"').next().expect("a name"));
    names.filter(|name| name.starts_with("scope:")).map(|name| (name, "yes"))
}
