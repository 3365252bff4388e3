use super::*;
use crate::gateway::route::Access;

fn route(path: &str, host: Option<&str>, methods: &[Method]) -> Route {
    Route {
        name: format!("{} {path}", host.unwrap_or("*")).into(),
        host: host.map(str::to_owned),
        methods: methods.to_vec(),
        path: path.into(),
        access: Access::Public,
        ..Route::everything()
    }
}

fn name_of(call: &OwnCall) -> String {
    match call {
        OwnCall::Refresh => "refresh".into(),
        OwnCall::Revoke { token_id } => format!("revoke {token_id}"),
        OwnCall::Keys => "keys".into(),
        OwnCall::Endpoint(endpoint) => format!("{endpoint:?}"),
        OwnCall::Metadata => "metadata".into(),
        OwnCall::SignIn(call) => format!("{call:?}"),
        OwnCall::Preflight(_) | OwnCall::RedirectToHttps(_) => "found by no path".into(),
    }
}

fn found(table: &RouteTable, host: &str, method: Method, path: &str) -> String {
    let path = CanonicalPath::parse(path).expect("a canonical path");
    match table.find(host, &method, &path) {
        Ok(Action::Forward(route)) => route.name.to_string(),
        Ok(Action::Own(call)) => name_of(&call),
        Ok(Action::OtherMethod { route, .. }) => format!("another method of {}", route.name),
        Err(reject) => reject.reason.code().into(),
    }
}

#[test]
fn hosts_without_routes_of_their_own_have_the_same_routes() {
    let table = RouteTable::new(&[route("/", None, &[]), route("/", Some("x.example"), &[])], 1);
    for (one, other, expected) in [
        ("a.example", "b.example", true),
        ("x.example", "X.example", true),
        ("a.example", "x.example", false),
        ("x.example", "a.example", false),
        ("a.example", "X.EXAMPLE", false),
    ] {
        assert_eq!(table.have_same_routes(one, other), expected, "{one} {other}");
    }
    assert!(RouteTable::new(&[route("/", None, &[])], 1).have_same_routes("a.example", "b.example"));
}

#[test]
fn the_longest_path_in_whole_segments_wins() {
    let table = RouteTable::new(
        &[
            route("/a", None, &[]),
            route("/a/b/", None, &[]),
            route("/a/b/c", None, &[Method::GET]),
            route("/a", Some("x.example"), &[]),
        ],
        1,
    );
    for (host, path, name) in [
        ("", "/a", "* /a"),
        ("", "/a/", "* /a"),
        ("", "/%61/x", "* /a"),
        ("", "/ab", "no_route"),
        ("", "/", "no_route"),
        ("", "/a/b", "* /a"),
        ("", "/a/b/", "* /a/b/"),
        ("", "/a/b/c/d", "* /a/b/c"),
        ("", "/a/b/cd", "* /a/b/"),
        ("X.example:8443", "/a/b/c", "x.example /a"),
        ("x.example", "/z", "no_route"),
        ("y.example", "/a", "* /a"),
    ] {
        assert_eq!(found(&table, host, Method::GET, path), name, "{host} {path}");
    }
    assert_eq!(found(&table, "", Method::POST, "/a/b/c"), "method_not_allowed", "no shorter route may match");
}

#[test]
fn own_paths_come_before_routes() {
    let table = RouteTable::new(&[route("/", None, &[])], 1);
    for (method, path, name) in [
        (Method::POST, "/user/refresh", "refresh"),
        (Method::GET, "/user/refresh", "method_not_allowed"),
        (Method::POST, "/user/refresh/", "* /"),
        (Method::DELETE, "/token/abc", "revoke abc"),
        (Method::GET, "/token/abc", "method_not_allowed"),
        (Method::DELETE, "/token/", "revoke "),
        (Method::POST, "/token/", "* /"),
        (Method::DELETE, "/token/a/b", "* /"),
        (Method::GET, "/.well-known/jwks.json", "keys"),
        (Method::POST, "/.well-known/jwks.json", "method_not_allowed"),
        (Method::HEAD, "/.well-known/oauth-authorization-server", "metadata"),
        (Method::POST, "/.well-known/oauth-authorization-server", "method_not_allowed"),
        (Method::GET, "/.well-known/oauth-authorization-server/other", "* /"),
        (Method::GET, "/.well-known/openid-configuration", "metadata"),
        (Method::PUT, "/.well-known/openid-configuration", "method_not_allowed"),
        (Method::GET, "/.well-known/openid-configuration/other", "* /"),
    ] {
        assert_eq!(found(&table, "", method, path), name, "{path}");
    }
}

#[test]
fn no_route_is_below_the_path_of_sign_ins() {
    let paths = SignInPaths { path: "/oauth2".into(), providers: vec!["main".into()] };
    let table = RouteTable::new(&[route("/", None, &[])], 1).with_sign_in(Some(paths));
    for (path, name) in [
        ("/oauth2/sign_out", "SignOutPage"),
        ("/oauth2/sign_%6Fut", "SignOutPage"),
        ("/oauth2/x", "no_route"),
        ("/oauth2", "no_route"),
        ("/oauth22", "* /"),
    ] {
        assert_eq!(found(&table, "", Method::GET, path), name, "{path}");
        assert_eq!(table.is_own_path(path), name != "* /", "{path}");
    }
}

#[test]
fn a_backend_may_be_an_openid_provider() {
    for host in [None, Some("login.example")] {
        let table = RouteTable::new(&[route("/", None, &[]), route("/.well-known/openid-configuration", host, &[])], 1);
        let name = format!("{} /.well-known/openid-configuration", host.unwrap_or("*"));
        assert_eq!(found(&table, "login.example", Method::GET, "/.well-known/openid-configuration"), name);
        assert!(!table.is_own_path("/.well-known/openid-configuration"));
    }
    let table = RouteTable::new(&[route("/", None, &[])], 1).with_issuer("https://gateway.example/a/");
    assert!(table.is_own_path("/a/.well-known/openid-configuration"));
    assert_eq!(found(&table, "", Method::GET, "/a/.well-known/openid-configuration"), "metadata");
    assert_eq!(found(&table, "", Method::GET, "/.well-known/openid-configuration"), "* /");
}

/// The reserve for token calls must not be used up by slow backends.
#[test]
fn token_calls_never_go_to_a_backend() {
    let table = RouteTable::new(&[route("/", None, &[])], 1);
    let calls = ["/user/refresh", "/token/abc", "/token/%61bc"].map(|path| (path, true));
    let others = ["/user/refresh/", "/token", "/token/a/", "/token/a/b"].map(|path| (path, false));
    for (path, is_token_call) in calls.into_iter().chain(others) {
        assert_eq!(table.is_token_call(path), is_token_call, "{path}");
        for method in [Method::GET, Method::POST, Method::DELETE] {
            assert_eq!(found(&table, "", method, path) != "* /", is_token_call, "{path}");
        }
    }
}

#[test]
fn trace_needs_a_route_that_names_it() {
    let track = || Method::from_bytes(b"TRACK").expect("a method");
    let table = RouteTable::new(&[route("/", None, &[]), route("/named", None, &[Method::TRACE, track()])], 1);
    let lower = Method::from_bytes(b"trace").expect("a method");
    for (method, path, name) in [
        (Method::TRACE, "/", "method_not_allowed"),
        (track(), "/a", "method_not_allowed"),
        (lower.clone(), "/", "method_not_allowed"),
        (Method::TRACE, "/named", "* /named"),
        (track(), "/named/a", "* /named"),
        (lower, "/named", "method_not_allowed"),
        (Method::OPTIONS, "/", "* /"),
        (Method::from_bytes(b"PROPFIND").expect("a method"), "/", "* /"),
    ] {
        assert_eq!(found(&table, "", method.clone(), path), name, "{method} {path}");
    }
}

#[test]
fn allow_lists_each_method_once() {
    let preflight = Route { preflight: true, ..route("/p", None, &[Method::GET]) };
    let both = [Method::OPTIONS, Method::POST];
    let with_options = Route { preflight: true, ..route("/o", None, &both) };
    let routes = [preflight, with_options, route("/q", None, &[Method::GET]), route("/q", None, &[Method::PUT])];
    let table = RouteTable::new(&[&routes[..], &[route("/", None, &[])]].concat(), 1);
    for (path, allow) in [
        ("/p", "GET, OPTIONS"),
        ("/o", "OPTIONS, POST"),
        ("/q", "GET, PUT"),
        ("/", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
    ] {
        let path = CanonicalPath::parse(path).expect("a canonical path");
        let Err(reject) = table.find("", &Method::TRACE, &path) else { panic!("a route allows TRACE") };
        assert_eq!(reject.allow().expect("Allow"), allow);
    }
}

#[test]
fn metadata_follows_the_path_of_the_issuer() {
    for (issuer, path) in [
        ("https://gateway.example", "/.well-known/oauth-authorization-server"),
        ("https://gateway.example/", "/.well-known/oauth-authorization-server"),
        ("https://gateway.example:8443/a/b", "/.well-known/oauth-authorization-server/a/b"),
    ] {
        let table = RouteTable::new(&[route("/", None, &[])], 1).with_issuer(issuer);
        assert_eq!(found(&table, "", Method::GET, path), "metadata", "{issuer}");
        assert_eq!(found(&table, "", Method::GET, &format!("{path}/c")), "* /", "{issuer}");
    }
}

/// Without a token, a client does not learn which methods a path has.
#[test]
fn another_method_is_judged_by_a_route_that_needs_a_token() {
    let needs =
        |path: &str, methods: &[Method]| Route { access: Route::everything().access, ..route(path, None, methods) };
    let observed = Route { enforce: false, ..needs("/observed", &[Method::POST]) };
    let get = &[Method::GET];
    let put = &[Method::PUT];
    let post = &[Method::POST];
    let routes =
        [needs("/both", put), needs("/both", post), needs("/mixed", put), route("/mixed", None, get), observed];
    let table = RouteTable::new(&routes, 1);
    for (method, path, expected) in [
        (Method::DELETE, "/both", "another method of * /both"),
        (Method::POST, "/both", "* /both"),
        (Method::DELETE, "/mixed", "method_not_allowed"),
        (Method::DELETE, "/observed", "method_not_allowed"),
        (Method::DELETE, "/none", "no_route"),
    ] {
        assert_eq!(found(&table, "", method.clone(), path), expected, "{method} {path}");
    }
}
