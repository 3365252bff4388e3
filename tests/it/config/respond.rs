//! `[route.respond]` and `[maintenance]`: values that a response cannot have.

use super::check;

#[test]
fn a_fixed_response_is_checked() {
    let route = |keys: &str, of_route: &str| {
        format!("[[route]]\npath = \"/\"\n{of_route}\n[route.respond]\nstatus = 410\n{keys}")
    };
    for (text, key, place, says) in [
        (route("body = 1", ""), "route[0].respond.body", (6, 8), "a string"),
        (route("content_type = \"html\"", ""), "route[0].respond.content_type", (6, 16), "media type"),
        (route("content_type = \"a/b\\r\\nX: 1\"", ""), "route[0].respond.content_type", (6, 16), "media type"),
        (route("content_type = \"a/b \"", ""), "route[0].respond.content_type", (6, 16), "media type"),
        (route("retry_after = \"0s\"", ""), "route[0].respond.retry_after", (6, 15), "1s to 30d"),
        (route("", "upstream = \"backend\""), "route[0].upstream", (3, 12), "no effect without a backend"),
        (route("", "preflight = true"), "route[0].preflight", (3, 13), "no effect without a backend"),
        (route("", "token = \"drop\""), "route[0].token", (3, 9), "no effect without a backend"),
    ] {
        check(&[(text.leak(), key, place, says)]);
    }
    check(&[
        ("[[route]]\npath = \"/\"\n[route.respond]", "route[0].respond.status", (3, 1), "`status` is missing"),
        ("[[route]]\npath = \"/\"\n[route.respond]\nstatus = 101", "route[0].respond.status", (4, 10), "200 to 599"),
        ("[[route]]\npath = \"/\"\n[route.respond]\nstatus = 600", "route[0].respond.status", (4, 10), "200 to 599"),
        (
            "[[route]]\npath = \"/\"\n[route.respond]\nstatus = 204\nbody = \"a\"",
            "route[0].respond.body",
            (5, 8),
            "has no body",
        ),
    ]);
}

#[test]
fn a_fixed_response_needs_no_upstream_among_several() {
    let upstreams = "[[upstream]]\nname = \"a\"\nservers = [\"http://127.0.0.1:1\"]\n\
                     [[upstream]]\nname = \"b\"\nservers = [\"http://127.0.0.1:2\"]";
    let route = "[[route]]\npath = \"/a\"\nupstream = \"a\"\n[[route]]\npath = \"/b\"\n[route.respond]\nstatus = 404\n";
    assert!(super::parse(&format!("{route}{upstreams}")).is_ok());
}

#[test]
fn maintenance_is_checked() {
    check(&[
        ("[maintenance]\nenabled = 1", "maintenance.enabled", (2, 11), "true or false"),
        ("[maintenance]\nretry_after = \"31d\"", "maintenance.retry_after", (2, 15), "1s to 30d"),
        ("[maintenance]\nretry_after = 30", "maintenance.retry_after", (2, 15), "unit"),
        ("[[route]]\npath = \"/\"\nmaintenance = \"on\"", "route[0].maintenance", (3, 15), "true or false"),
    ]);
}
