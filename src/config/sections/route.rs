//! `[[route]]`: which requests go where, and what they need.

use http::Method;

use crate::config::document::error::Fault;
use crate::config::document::suggest;
use crate::config::document::table::Table;
use crate::config::sections::{Placed, host, rate, rules, token};
use crate::gateway::route::{Access, Capture, Route};
use crate::gateway::route_table::{KEYS_PATH, REFRESH_PATH, REVOKE_PREFIX, metadata_path};
use crate::upstream;

type Upstreams = [Placed<upstream::Settings>];

const EXPECTED_PATH: &str = "expected a path, as \"/orders/\"";

/// What the gateway answers itself, on every host.
const OWN_PATHS: [&str; 3] = [REFRESH_PATH, REVOKE_PREFIX, KEYS_PATH];

/// `issuers` are all whose tokens are accepted, the gateway's own first; `own_audience` is that of its own.
pub(super) fn routes(
    root: &mut Table<'_>,
    upstreams: &Upstreams,
    issuers: &[String],
    own_audience: &[String],
) -> Vec<Route> {
    let routes = root.tables("route", |table| route(table, upstreams, issuers, own_audience));
    if !routes.is_empty() {
        let routes: Vec<_> = routes.into_iter().flatten().collect();
        report_collisions(root, &routes);
        report_hidden(root, &routes, issuers);
        return routes.into_iter().map(|route| route.value).collect();
    }
    if upstreams.len() > 1 {
        let fault = Fault::new("there are several upstreams and no route", "expected [[route]] with path and upstream");
        root.wrong("route", fault.help("say which requests go to which upstream").of_absence());
    }
    vec![Route::everything()]
}

/// `None` if the path is missing or wrong: the rest was checked, but nothing can be compared with it.
fn route(
    table: &mut Table<'_>,
    upstreams: &Upstreams,
    issuers: &[String],
    own_audience: &[String],
) -> Option<Placed<Route>> {
    let path = table.required("path", "\"/orders/\"").and_then(|value| value.parse(path));
    let host = table.take("host").and_then(|value| value.parse(host_of_route));
    let methods = table.take("methods").and_then(|value| value.list_of("[\"GET\", \"HEAD\"]", method));
    let name = table.take("name").and_then(|value| value.parse(name));
    let upstream = upstream_index(table, upstreams);
    let mut access = access(table, issuers);
    let preflight = table.flag("preflight", false);
    let places = token::places(table, access == Access::Public);
    let origins = token::origins(table, &places);
    let token_forwarding = token::token_forwarding(table, own_audience);
    let enforce = table.flag("enforce", true);
    if !enforce && access == Access::Public {
        let fault = Fault::new("a public route refuses nothing", "expected no `enforce`, as no token is asked for");
        table.wrong("enforce", fault.related(&table.place("public"), "public is said here"));
    }
    let rates = rate::rates(table);
    let capture = capture(table, &mut access, enforce, issuers);
    let path = path?;
    let route = Route {
        name: name.unwrap_or_else(|| path.clone()).into(),
        host,
        methods: methods.unwrap_or_default(),
        path,
        upstream: upstream.unwrap_or(0),
        access,
        preflight,
        places,
        origins,
        token_forwarding,
        enforce,
        rates,
        capture,
    };
    Some(Placed { value: route, place: table.place("path") })
}

fn upstream_index(table: &mut Table<'_>, upstreams: &Upstreams) -> Option<usize> {
    let named = table.take("upstream");
    let names = || upstreams.iter().map(|upstream| upstream.value.name.as_str());
    let Some(value) = named else {
        if upstreams.len() > 1 {
            let list: Vec<&str> = names().collect();
            let fault = Fault::new("`upstream` is missing", format!("expected one of {}", list.join(", ")));
            table.wrong("upstream", fault.help("it can be left out where there is only one").of_absence());
        }
        return None;
    };
    let text = value.text()?;
    let found = names().position(|name| name == text);
    if found.is_none() {
        let list: Vec<&str> = names().collect();
        let fault =
            Fault::new(format!("there is no upstream `{text}`"), format!("expected one of {}", list.join(", ")));
        value.wrong(match suggest::nearest(text, names()) {
            Some(near) => fault.help(format!("did you mean `{near}`?")).of_absence(),
            None => fault.help(format!("add [[upstream]] with name = \"{text}\"")).of_absence(),
        });
    }
    found
}

fn access(table: &mut Table<'_>, issuers: &[String]) -> Access {
    let rules = rules::rules(table, issuers);
    let public = table.flag("public", false);
    if !public {
        return Access::Token(rules);
    }
    let said = [
        ("issuers", !rules.issuers.is_empty()),
        ("scopes", !rules.scopes.is_empty()),
        ("any_scope", !rules.any_scope.is_empty()),
        ("claim", !rules.claims.is_empty()),
    ];
    for (key, _) in said.into_iter().filter(|(_, said)| *said) {
        let fault = Fault::new(
            format!("a public route asks for {key}"),
            format!("expected no {key}, as no token is asked for"),
        );
        let fault = fault.related(&table.place("public"), "public is said here");
        table.wrong(key, fault.help(format!("remove `{key}` if everybody may pass, or `public` if not")));
    }
    Access::Public
}

/// `issuers`: the gateway's own first. Only its tokens belong to a family, so a logout asks for one of them.
fn capture(table: &mut Table<'_>, access: &mut Access, enforce: bool, issuers: &[String]) -> Option<Capture> {
    let (login, logout) = (table.flag("login", false), table.flag("logout", false));
    let own = issuers.first().cloned().unwrap_or_default();
    match access {
        _ if login && logout => {
            let fault = Fault::new("a route cannot be both login and logout", "expected one of them");
            table.wrong("logout", fault.related(&table.place("login"), "login is said here"));
        }
        Access::Token(_) if login => {
            let fault = Fault::new("whoever logs in has no token yet", "expected `public = true` on this route");
            table.wrong("login", fault);
        }
        Access::Public if logout => {
            let fault = Fault::new("a logout is of the login that its token belongs to", "expected no `public`");
            table.wrong("logout", fault.related(&table.place("public"), "public is said here"));
        }
        Access::Token(_) if logout && !enforce => {
            let fault = Fault::new("a logout is of the login that its token belongs to", "expected no `enforce`");
            table.wrong("enforce", fault.related(&table.place("logout"), "logout is said here"));
        }
        Access::Token(rules) if logout && rules.issuers.iter().any(|issuer| *issuer != own) => {
            let fault = Fault::new(
                "a logout ends logins of this gateway alone",
                format!("expected [\"{own}\"] or no `issuers`"),
            );
            table.wrong("issuers", fault.related(&table.place("logout"), "logout is said here"));
        }
        Access::Token(rules) if logout => rules.issuers = vec![own],
        _ => {}
    }
    match (login, logout) {
        (true, _) => Some(Capture::Login),
        (_, true) => Some(Capture::Logout),
        _ => None,
    }
}

/// What is matched is what is forwarded, byte for byte: a route's path has to be what a canonical request path can be.
pub(super) fn path(text: &str) -> Result<String, Fault> {
    let refuse = |message: &str, help: &str| Err(Fault::new(message, EXPECTED_PATH).help(help));
    if !text.starts_with('/') {
        return refuse("the path does not begin with `/`", &format!("write \"/{}\"", text.trim_start_matches("./")));
    }
    if text.contains("//") {
        return refuse("the path has an empty segment", "write one `/` where there are several");
    }
    if text.split('/').any(|segment| matches!(segment, "." | "..")) {
        return refuse("the path has a dot segment", "no request gets through with `.` or `..` in its path");
    }
    if text.contains('%') {
        return refuse("the path is percent-encoded", "a route is matched by the characters themselves");
    }
    if text.contains('*') {
        return refuse("the path has a wildcard", "a route stands for everything below its path: leave out the `*`");
    }
    let stray = text.chars().find(|character| !is_path_character(*character));
    if let Some(character) = stray {
        let message = format!("`{}` cannot stand in a route's path", character.escape_debug());
        return refuse(&message, "letters, digits and -._~!$&'()+,=:@/ can");
    }
    let bare = |path: &'static str| path.trim_end_matches('/');
    let own = OWN_PATHS.into_iter().map(bare).find(|own| text.trim_end_matches('/') == *own);
    let below_token = text.starts_with(REVOKE_PREFIX).then_some(bare(REVOKE_PREFIX));
    if let Some(own) = own.or(below_token) {
        return Err(answered_here(own));
    }
    Ok(text.to_owned())
}

fn answered_here(path: &str) -> Fault {
    Fault::new(format!("the gateway answers {path} itself"), EXPECTED_PATH)
        .help("requests for it never reach an upstream")
}

/// `pchar` of RFC 3986 and the slash, without `%`, `;` and `*`.
fn is_path_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-._~!$&'()+,=:@/".contains(character)
}

fn host_of_route(text: &str) -> Result<String, Fault> {
    if text.contains('*') {
        return Err(Fault::new("the host has a wildcard", "expected the name of one host")
            .help("write a route for each host, or leave `host` out for any"));
    }
    let has_port = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) && !text.ends_with(']');
    if has_port {
        return Err(Fault::new("the host has a port", "expected the name alone")
            .help("requests are matched whatever port their Host names"));
    }
    host::parse(text)
}

fn method(text: &str) -> Result<Method, Fault> {
    let fault =
        Fault::new(format!("\"{text}\" is not a method that can be routed"), "expected methods of HTTP, as \"GET\"");
    let upper = text.to_ascii_uppercase();
    if text != upper {
        return Err(fault.help(format!("methods are upper case: \"{upper}\"")));
    }
    match Method::from_bytes(text.as_bytes()) {
        Ok(Method::CONNECT) => Err(fault.help("the gateway opens no tunnels; WebSockets begin with GET")),
        Ok(method) => Ok(method),
        Err(_) => Err(fault),
    }
}

fn name(text: &str) -> Result<String, Fault> {
    match !text.is_empty() && text.len() <= 64 && !text.chars().any(char::is_control) {
        true => Ok(text.to_owned()),
        false => Err(Fault::new("this name is not usable in logs and metrics", "expected 1 to 64 characters")),
    }
}

fn report_collisions(root: &Table<'_>, routes: &[Placed<Route>]) {
    for (index, route) in routes.iter().enumerate() {
        let Some(first) = routes[..index].iter().find(|first| collide(&first.value, &route.value)) else { continue };
        let methods = match (&first.value.methods, &route.value.methods) {
            (some, _) | (_, some) if !some.is_empty() => "give the two different `methods` or a different `host`",
            _ => "remove one, or give them different `methods` or a different `host`",
        };
        let fault = Fault::new("two routes take the same requests", "expected another path, host or methods")
            .help(methods)
            .related(&first.place, "the first one is here");
        root.reading().record(fault.at(&route.place));
    }
}

/// Its own path for what it has on offer depends on what its issuer is called.
fn report_hidden(root: &Table<'_>, routes: &[Placed<Route>], issuers: &[String]) {
    let Some(metadata) = issuers.first().map(|own| metadata_path(own)) else { return };
    for route in routes.iter().filter(|route| route.value.path.trim_end_matches('/') == metadata) {
        root.reading().record(answered_here(&metadata).at(&route.place));
    }
}

fn collide(a: &Route, b: &Route) -> bool {
    let any = a.methods.is_empty() || b.methods.is_empty();
    a.path == b.path && a.host == b.host && (any || a.methods.iter().any(|method| b.methods.contains(method)))
}
