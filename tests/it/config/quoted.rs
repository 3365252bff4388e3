//! Lines of the file that an error quotes. They reach logs, and have no secret.

use std::path::Path;

use bearward::config::{self, Probe};

use super::with_upstream;

const SECRET: &str = "S3CRETvalue77";

/// All that is printed about a text.
fn printed(text: &str) -> String {
    let errors = config::parse(text, Path::new("/"), Probe::None).map(|_| ()).expect_err(text);
    format!("{}{}{}", errors.render(false), errors.render(true), errors.json())
}

/// Each with an error somewhere, in one place or another.
const ERRONEOUS: [&str; 39] = [
    "[store]\npostgres = [\"postgres://b:SECRET@db-1/d\", \"postgres://b:SECRET@db-2/d\"]",
    "[store]\npostgres = { url = \"postgres://b:SECRET@h/d\" }",
    "[store]\npostgres = { env = 7, url = \"SECRET\" }",
    "[store]\npostgres = \"postgres://b:SECRET@h:99999/d\"",
    "[store]\npostgres = \"postgres://b:SECRET@h/d\"\nschema = \"A B\"",
    "[store]\npostgres = \"postgres//b:SECRET@h/d\"",
    "[store]\npostgres = \"host=h user=b password=SECRET dbname=d\"",
    "[store]\npostgres = \"Server=h;User Id=b;Password=SECRET;\"",
    "[store]\npostgres = \"postgres://b@h/d?passwort=SECRET\"",
    "[store]\npostgres = \"postgres://b@h/d?sslpassword=SECRET\"",
    "[store]\npostgres = \"SECRET\"",
    "[store]\npostgres = postgres://b:SECRET@h/d",
    "[store]\npostgres = host=h password=SECRET",
    "[store]\npostgres = \"postgres://b:SECRET@h/d",
    "[store]\npassword = \"SECRET\"\npassword = \"SECRET\"",
    "[store]\npassword = \"SECRET",
    "[store]\npassword = SECRET",
    "[store]\npool = \"x\"\npassword = '''\nSECRET\n",
    "[database]\npassword = \"SECRET\"\npassword = \"SECRET\"",
    "[admin]\ntoken = \"SECRET",
    "[admin]\ntoken = '''\nSECRET\n'''\naddres = 3",
    "[sign_in]\nexternal_urls = [\"https://u:SECRET@app.example\"]",
    "[sign_in]\nexternal_urls = \"https://u:SECRET@app.example\"",
    "[acme]\ndirectory = \"https://u:SECRET@acme.example/d\"",
    "[acme]\ndirectory = \"u:SECRET@acme.example/d\"",
    "[acme]\ndirectory = [\"https://SECRET@acme.example/d\"]",
    "[audit]\nwebhook = \"http://hooks.example/x?token=SECRET\"",
    "[audit]\nwebhook = \"hooks.example/x?token=SECRET\"",
    "[audit]\nwebhook = \"https://hooks.example/x?SECRET\"\nnope = 1",
    "[audit]\nwebhook = \"https://hooks.example/x#SECRET\"",
    "[trace]\nendpoint = [\"https://hooks.example/x?token=SECRET\"]",
    "[trace]\nendpoint = \"https://hooks.example/x?token=SECRET\"\nsample = \"x\"",
    "[[issuer]]\nissuer = \"https://u:SECRET@i.example\"\njwks_url = \"i.example/k?key=SECRET\"",
    "[[upstream]]\nname = \"a\"\nservers = [\"a?token=SECRET\"]",
    "[[provider]]\nname = \"m\"\nauthorization_parameters = [\"client_secret=SECRET\"]",
    "[[provider]]\nname = \"m\"\nclient = { secret = \"SECRET\", secret = \"SECRET\" }",
    "[[token_exchange]]\nname = \"t\"\nendpoint = { env = \"BEARWARD_NO_SUCH\", default = \"https://u:SECRET@h/\" }",
    "[[provider]]\nname = \"m\"\nclient_secret_file = [\"SECRET\"]",
    "[workers]\nx = \"SECRET\"\n[workers]\nx = \"SECRET\"",
];

#[test]
fn no_error_quotes_a_secret() {
    for erroneous in ERRONEOUS {
        let text = with_upstream(&erroneous.replace("SECRET", SECRET));
        let shown = printed(&text);
        assert!(!shown.contains(&SECRET[..8]), "{erroneous}\n{shown}");
    }
    for value in ["\"postgres://b:SECRET@h/d\"", "[\"postgres://b:SECRET@h/d\"]", "\"Password=SECRET;\"", "\"SECRET\""]
    {
        let shown = printed(&with_top(&format!("store = {}", value.replace("SECRET", SECRET))));
        assert!(!shown.contains(&SECRET[..8]), "{value}\n{shown}");
    }
}

fn with_top(key: &str) -> String {
    format!("{key}\n{}", with_upstream(""))
}

/// An operator has to see what is wrong.
#[test]
fn the_rest_of_the_line_is_quoted() {
    for (text, expected) in [
        ("[[upstream]]\nservers = [\"http://a\", \"https://u:SECRET@b\"]", "[\"http://a\", ***"),
        ("[store]\npostgres = \"postgres://b@h/d?sslmode=SECRET\"", "?sslmode=SECRET"),
        ("[audit]\nwebhook = \"http://hooks.example/x?token=SECRET\"", "\"http://hooks.example/x?token=****"),
        ("[store]\nsqlite = \"a.db\"\nsqlite = \"SECRET.db\"", "sqlite = \"S3CRETvalue77.db\""),
    ] {
        let shown = printed(&with_upstream(&text.replace("SECRET", SECRET)));
        assert!(shown.contains(&expected.replace("=SECRET", &format!("={SECRET}"))), "{shown}");
    }
}
