//! The keys of `[oauth]` that concern the authorization endpoint.

use std::time::Duration;

use bearward::tokens::family::ReuseRule;
use bearward::tokens::family::refresh_token::Roots;
use bearward::types::secret::Secret;

use super::{parse, with_upstream};

const PROVIDER: &str =
    "[[provider]]\nname = \"main\"\nissuer = \"https://login.example\"\nclient_id = \"a\"\nclient_auth = \"none\"\n";

/// `oauth`: keys of `[oauth]`, and tables.
fn text(oauth: &str) -> String {
    with_upstream(&format!(
        "[tokens]\nissuer = \"https://app.example\"\n{PROVIDER}[oauth]\nsign_in = \"main\"\n\
         resource = \"https://app.example/mcp\"\n{oauth}\n"
    ))
}

#[track_caller]
fn assert_error(text: &str, key: &str, message: &str) {
    let errors = parse(text).expect_err(text);
    let json = errors.json();
    assert!(json.contains(&format!("\"{key}\"")) && json.contains(message), "{key}: {message}\n{errors}{json}");
}

#[test]
fn the_shortest_configuration_is_valid() {
    let config = parse(&text("")).unwrap_or_else(|errors| panic!("{errors}"));
    let settings = config.oauth.authorization.expect("it is on");
    assert_eq!(settings.resources[0].url, "https://app.example/mcp");
    assert_eq!(config.oauth.token_endpoint.as_deref(), Some("/oauth/token"));
    assert_eq!(config.tokens.audience, ["https://app.example"], "own logins get no tokens for it");
    assert!(config.tokens.accepted_audience().contains(&"https://app.example/mcp".to_owned()), "clients do");
    let urls = config.sign_in.expect("browsers sign in").external_urls;
    assert_eq!(urls[0].origin, "https://app.example", "the pages are at the issuer");
}

/// Users sign in at a page that they see without a session, and that leaves one.
#[test]
fn a_login_page_needs_a_public_route_and_a_login() {
    const LOGIN: &str = "[[route]]\npath = \"/login\"\npublic = true\nlogin = \"cookie\"\n";
    let with = |routes: &str| text("").replace("sign_in = \"main\"", "login_page = \"/login\"") + routes;
    let config = parse(&with(LOGIN)).unwrap_or_else(|errors| panic!("{errors}"));
    assert!(config.oauth.authorization.is_some() && config.sign_in.is_none(), "no path is taken from backends");
    for (routes, message) in [
        ("", "no login leaves a session"),
        ("[[route]]\npath = \"/\"\n", "no login leaves a session"),
        (
            "[[route]]\npath = \"/api\"\npublic = true\nlogin = \"cookie\"\n[[route]]\npath = \"/\"\n",
            "without a session",
        ),
    ] {
        let errors = parse(&with(routes)).err().unwrap_or_else(|| panic!("{routes} is accepted")).to_string();
        assert!(errors.contains("oauth.login_page") && errors.contains(message), "{routes}: {errors}");
    }
}

#[test]
fn a_mistake_is_found_at_its_key() {
    let client = |keys: &str| format!("[[oauth.client]]\nclient_id = \"app\"\nclient_auth = \"none\"\n{keys}");
    let good = "redirect_uris = [\"https://a.example/cb\"]";
    for (oauth, key, message) in [
        ("code_lifetime = \"2m\"".to_owned(), "oauth.code_lifetime", "too large"),
        ("login_page = \"/login\"".into(), "oauth.login_page", "one place"),
        ("grant_lifetime = \"31d\"".into(), "oauth.grant_lifetime", "longer than tokens.refresh_absolute"),
        ("reuse = \"grace\"".into(), "oauth.reuse", "unknown value"),
        ("reuse_window = \"59s\"".into(), "oauth.reuse_window", "too small"),
        ("reuse_window = \"25h\"".into(), "oauth.reuse_window", "too large"),
        ("registration = [\"any\"]".into(), "oauth.registration[0]", "unknown value"),
        ("registration = [\"javascript://\"]".into(), "oauth.registration[0]", "of this kind"),
        ("registration = [\"http://a.example\"]".into(), "oauth.registration[0]", "of this kind"),
        ("registration = [\"https://\"]".into(), "oauth.registration[0]", "of this kind"),
        ("registration = [\"https://a.example/\"]".into(), "oauth.registration[0]", "of this kind"),
        ("registration = [\"https://*.example\"]".into(), "oauth.registration[0]", "of this kind"),
        ("registration = [\"Cursor://\"]".into(), "oauth.registration[0]", "of this kind"),
        ("registration = [\"cursor://a\"]".into(), "oauth.registration[0]", "of this kind"),
        ("client_documents = [\"https://a.example\"]".into(), "oauth.client_documents[0]", "not a host"),
        ("client_documents = \"all\"".into(), "oauth.client_documents", "unknown value"),
        ("token_endpoint = \"\"".into(), "oauth.token_endpoint", "no effect without"),
        ("authorization_endpoint = \"/oauth/token\"".into(), "oauth.authorization_endpoint", "has the path"),
        ("consent_page = \"/oauth2/callback/main\"".into(), "oauth.consent_page", "has the path"),
        ("[[oauth.scope]]\ntext = \"a\"".into(), "oauth.scope[0].name", "is missing"),
        ("[[oauth.scope]]\nname = \"a\"\n[[oauth.scope]]\nname = \"a\"".into(), "oauth.scope[1].name", "same name"),
        (client(""), "oauth.client[0].redirect_uris", "is missing"),
        (client("redirect_uris = [\"http://a.example/cb\"]"), "oauth.client[0].redirect_uris[0]", "no redirect URI"),
        (client("redirect_uris = [\"https://a.example/#x\"]"), "oauth.client[0].redirect_uris[0]", "no redirect URI"),
        (
            client("redirect_uris = [\"http://127.0.0.1/cb\"]\nconsent = \"never\""),
            "oauth.client[0].consent",
            "any program",
        ),
        (client(&format!("{good}\nclient_credentials = true")), "oauth.client[0].client_credentials", "everyone"),
        (client(&format!("{good}\njwks_file = \"a.json\"")), "oauth.client[0].jwks_file", "no effect"),
        ("[[route]]\npath = \"/oauth/authorize\"".into(), "oauth.authorization_endpoint", "a route has the same path"),
        (
            client(&format!("{good}\ncertificate_bound = true")),
            "oauth.client[0].certificate_bound",
            "certificate_bound",
        ),
        ("[[route]]\npath = \"/mcp\"\nresource = true".into(), "oauth.resource", "a route has the same resource"),
        ("[[route]]\npath = \"/oauth/grants\"".into(), "oauth.grants_page", "a route has the same path"),
    ] {
        assert_error(&text(&oauth), key, message);
    }
    let named = client(good).replace("\"app\"", "\"bwd1_app\"");
    assert_error(&text(&named), "oauth.client[0].client_id", "register themselves");
    assert_error(
        &text("").replace("\"main\"\nresource", "\"other\"\nresource"),
        "oauth.sign_in",
        "no provider `other`",
    );
    assert_error(&text("").replace("resource = \"https://app.example/mcp\"\n", ""), "oauth.sign_in", "no protected");
    assert_error(
        &text("").replace("issuer = \"https://app.example\"", "issuer = \"http://localhost\""),
        "oauth.sign_in",
        "https://",
    );
    let off = text(&client(good)).replace("sign_in = \"main\"\n", "token_endpoint = \"/t\"\n");
    assert_error(&off, "oauth.sign_in", "there is no authorization endpoint");
}

/// Behind a proxy that is not trusted, all clients have its address, and a thief is at the address of its victim.
#[test]
fn a_rule_about_addresses_needs_addresses() {
    let cleartext = "[[listener]]\naddress = \"127.0.0.1:8080\"\ntls = \"off\"\n";
    let with_tls = "[[listener]]\naddress = \"127.0.0.1:8443\"\n";
    let trusted = "[forwarding]\ntrusted = [\"10.0.0.0/24\"]\n";
    let rule = "reuse = \"same_address\"";
    for listeners in ["", with_tls, &format!("{cleartext}{with_tls}"), &format!("{cleartext}{trusted}")] {
        let config = parse(&text(&format!("{rule}\n{listeners}"))).unwrap_or_else(|errors| panic!("{errors}"));
        let settings = config.oauth.authorization.expect("it is on");
        assert_eq!(settings.reuse, ReuseRule::SameAddress(Duration::from_hours(1)));
    }
    assert_error(&text(&format!("{rule}\n{cleartext}")), "oauth.reuse", "the address of a client is not known");
    let config = parse(&text(cleartext)).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(config.oauth.authorization.expect("it is on").reuse, ReuseRule::End, "the default");
}

#[test]
fn denied_clients_are_ids_and_hosts() {
    let list = "denied_clients = [\"spa\", \"app.example\", \"https://tool.example/client.json\"]";
    let config = parse(&text(list)).unwrap_or_else(|errors| panic!("{errors}"));
    let roots = Roots::new((1, Secret::new(vec![7; 32])), vec![]);
    for (client_id, is_denied) in [("spa", true), ("https://app.example/client", true), ("https://b.example/c", false)]
    {
        assert_eq!(config.oauth.denied.check(client_id, &roots).is_err(), is_denied, "{client_id}");
    }
    for wrong in ["[\"\"]", "[\"spä\"]", "[\"a\\u0000\"]"] {
        assert_error(&text(&format!("denied_clients = {wrong}")), "oauth.denied_clients[0]", "this is no client id");
    }
    assert_error(&text("denied_clients = [\"a\", \"a\"]"), "oauth.denied_clients[1]", "this is in the list twice");
    assert_error(&text("denied_clients = \"a\""), "oauth.denied_clients", "a list");
}
