//! `[sign_in]`, and the keys of `[[provider]]` and `[[route]]` that concern sign-ins.

use super::{assert_only_error, parse, with_upstream};

/// Lines 1 to 5, and the table of a provider goes on.
const PROVIDER: &str =
    "[[provider]]\nname = \"main\"\nissuer = \"https://login.example\"\nclient_id = \"a\"\nclient_auth = \"none\"\n";

const ROUTE: &str = "[[route]]\npath = \"/\"\nsign_in = \"main\"\n";

fn provider(keys: &str) -> String {
    format!("{PROVIDER}{keys}\n")
}

#[test]
fn the_keys_of_a_provider_are_checked() {
    for (keys, key, column, message) in [
        ("scopes = [\"email\"]", "scopes", 10, "`openid` is missing"),
        ("scopes = [\"openid\", \"a b\"]", "scopes[1]", 21, ""),
        ("authorization_parameters = [\"prompt\"]", "authorization_parameters[0]", 29, "has no name or no value"),
        ("authorization_parameters = [\"state=x\"]", "authorization_parameters[0]", 29, "only the gateway sets state"),
        ("authorization_parameters = [\"redirect_uri=x\"]", "authorization_parameters[0]", 29, "only the gateway sets"),
        ("authorization_parameters = [\"a=1\", \"a=2\"]", "authorization_parameters[1]", 36, "in the list twice"),
        ("claims = [\"sub\"]", "claims[0]", 11, "only the gateway sets the claim sub"),
        ("claims = [\"\"]", "claims[0]", 11, "this is empty"),
        ("groups_claim = \"iss\"", "groups_claim", 16, "only the gateway sets the claim iss"),
        ("groups = [\"\"]", "groups[0]", 11, "this is empty"),
        ("email_domains = [\"a@b.example\"]", "email_domains[0]", 18, ""),
        ("max_staleness = \"25h\"", "max_staleness", 17, ""),
        ("consecutive_timeouts = 1001", "consecutive_timeouts", 24, "out of range"),
    ] {
        let result = parse(&with_upstream(&provider(keys)));
        assert_only_error(result, &format!("provider[0].{key}"), (6, column), message);
    }
    for keys in [
        "scopes = [\"openid\"]\nauthorization_parameters = [\"prompt=login\", \"a=\"]\nclaims = []\nmax_staleness = \"0s\"\n\
         consecutive_timeouts = 0",
        "groups = [\"staff\"]\ngroups_claim = \"roles\"\nemail_domains = [\"example.com\"]",
    ] {
        assert!(parse(&with_upstream(&provider(keys))).is_ok(), "{keys}");
    }
}

#[test]
fn a_sign_in_needs_a_provider_and_an_origin() {
    let sign_in = |keys: &str| format!("[sign_in]\n{keys}\n{PROVIDER}{ROUTE}");
    for (text, key, place, message) in [
        (format!("{PROVIDER}{ROUTE}"), "sign_in.external_urls", None, "`external_urls` is missing"),
        (sign_in("external_urls = []"), "sign_in.external_urls", Some((2, 17)), "the list is empty"),
        (sign_in("external_urls = [\"http://a.example\"]"), "sign_in.external_urls[0]", Some((2, 18)), "http:// site"),
        (sign_in("external_urls = [\"https://a.example/x\"]"), "sign_in.external_urls[0]", Some((2, 18)), ""),
        (sign_in("path = \"oauth2\"\nexternal_urls = [\"https://a.example\"]"), "sign_in.path", Some((2, 8)), ""),
        (
            sign_in("absolute_lifetime = \"31d\"\nexternal_urls = [\"https://a.example\"]"),
            "sign_in.absolute_lifetime",
            Some((2, 21)),
            "longer than tokens.refresh_absolute",
        ),
        (
            sign_in("idle_lifetime = \"8d\"\nexternal_urls = [\"https://a.example\"]"),
            "sign_in.idle_lifetime",
            Some((2, 17)),
            "longer than tokens.refresh_idle",
        ),
        (
            sign_in("idle_lifetime = \"10m\"\nexternal_urls = [\"https://a.example\"]"),
            "sign_in.idle_lifetime",
            Some((2, 17)),
            "shorter than tokens.access_lifetime",
        ),
        (
            sign_in("path = \"/user\"\nexternal_urls = [\"https://a.example\"]"),
            "sign_in.path",
            Some((2, 8)),
            "a path of the gateway itself",
        ),
        (
            format!("{}[[route]]\npath = \"/oauth2/x\"\n", sign_in("external_urls = [\"https://a.example\"]")),
            "sign_in.path",
            None,
            "a route has the path /oauth2/x",
        ),
        (
            "[[route]]\npath = \"/\"\nsign_in = \"x\"\n".to_owned(),
            "route[0].sign_in",
            Some((3, 11)),
            "there is no provider `x`",
        ),
        (
            format!("{}public = true\n", sign_in("external_urls = [\"https://a.example\"]")),
            "route[0].sign_in",
            Some((10, 11)),
            "no effect on a public route",
        ),
        (
            format!("{}enforce = false\n", sign_in("external_urls = [\"https://a.example\"]")),
            "route[0].enforce",
            Some((11, 11)),
            "`sign_in` needs a session",
        ),
    ] {
        match place {
            Some(place) => assert_only_error(parse(&with_upstream(&text)), key, place, message),
            None => {
                let errors = parse(&with_upstream(&text)).err().unwrap_or_else(|| panic!("valid: {text}"));
                let found = errors.all().iter().find(|error| error.place.key == key);
                assert!(found.is_some_and(|error| format!("{error:?}").contains(message)), "{text}: {errors}");
            }
        }
    }
    let keys =
        "external_urls = [\"https://a.example\", \"http://localhost:8080\"]\npath = \"/auth\"\nidle_lifetime = \"15m\"";
    assert!(parse(&with_upstream(&sign_in(keys))).is_ok());
    // Without a route that signs in, the paths stay with the backends.
    assert!(parse(&with_upstream("[[route]]\npath = \"/oauth2/x\"\n")).is_ok());
}
