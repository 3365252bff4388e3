//! `bearward explain`: the decision of the running gateway, step by step, without changing anything.

mod agreement;
mod output;
mod own_calls;

const ROUTES: &str = r#"
[[route]]
path = "/any/"
[[route]]
path = "/scoped/"
scopes = ["a"]
any_scope = ["x", "b"]
[[route]]
path = "/claim/"
[[route.claim]]
pointer = "/tenant"
equals = "acme"
[[route]]
path = "/own/"
issuers = ["https://gateway.example"]
[[route]]
path = "/cookie/"
token_from = ["cookie:session", "query:t"]
origins = ["https://friend.example"]
[[route]]
path = "/observed/"
scopes = ["admin"]
enforce = false
[[route]]
path = "/post/"
methods = ["POST"]
[[route]]
path = "/public/"
public = true
[[route]]
path = "/hosted/"
host = "a.example"
preflight = true
"#;
