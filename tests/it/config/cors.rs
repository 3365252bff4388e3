//! `[cors]` and `[route.cors]`: wrong origins and fields, and what a route takes from `[cors]`.

use bearward::config::{self, Probe};

use super::check;

#[test]
fn origins_and_fields_are_checked() {
    check(&[
        ("[cors]\norigins = [\"app.example\"]", "cors.origins[0]", (2, 12), "not an origin"),
        ("[cors]\norigins = [\"https://a/b\"]", "cors.origins[0]", (2, 12), "except scheme, host and port"),
        ("[cors]\norigins = [\"https://*.a\"]", "cors.origins[0]", (2, 12), "not a host name"),
        ("[cors]\norigins = [\"null\"]", "cors.origins[0]", (2, 12), "host of its own"),
        ("[cors]\norigins = [\"https://a\", \"https://A:443/\"]", "cors.origins[1]", (2, 25), "twice"),
        ("[cors]\norigins = [\"*\", \"https://a\"]", "cors.origins", (2, 11), "beside other origins"),
        ("[cors]\norigins = [\"*\"]\ncredentials = true", "cors.credentials", (3, 15), "every website"),
        (
            "[cors]\ncredentials = true\norigins = [\"https://a\", \"http://a.example\"]",
            "cors.origins",
            (3, 11),
            "network path",
        ),
        ("[cors]\nheaders = [\"a b\"]", "cors.headers[0]", (2, 12), "not a field name"),
        ("[cors]\nexpose = [\"*\"]", "cors.expose[0]", (2, 11), "list each field"),
        ("[cors]\nmax_age = \"25h\"", "cors.max_age", (2, 11), "too large"),
        (
            "[cors]\ncredentials = true\n[[route]]\npath = \"/\"\n[route.cors]\norigins = [\"*\"]",
            "route[0].cors.origins",
            (6, 11),
            "every website",
        ),
        (
            "[[route]]\npath = \"/\"\npreflight = true\n[route.cors]\norigins = [\"https://a\"]",
            "route[0].preflight",
            (3, 13),
            "not both",
        ),
    ]);
}

#[test]
fn a_route_takes_the_keys_that_it_omits_from_cors() {
    let folder = tempfile::tempdir().expect("a folder");
    let routes = |cors: &str, route: &str| {
        let text =
            format!("[[upstream]]\nservers = [\"http://127.0.0.1:1\"]\n{cors}\n[[route]]\npath = \"/\"\n{route}");
        config::parse(&text, folder.path(), Probe::None).expect("a valid configuration").routes
    };
    let all =
        "origins = [\"https://a\"]\ncredentials = true\nheaders = [\"X-A\"]\nexpose = [\"X-B\"]\nmax_age = \"1m\"\n";
    let inherited = routes(&format!("[cors]\n{all}"), "");
    assert!(inherited[0].cors.is_some());
    assert_eq!(inherited, routes("", &format!("[route.cors]\n{all}")), "all keys");
    let changed = all.replace("1m", "2m");
    assert_eq!(
        routes(&format!("[cors]\n{all}"), "[route.cors]\nmax_age = \"2m\""),
        routes(&format!("[cors]\n{changed}"), "")
    );
    assert_eq!(routes(&format!("[cors]\n{all}"), "[route.cors]\norigins = []"), routes("", ""));
}
