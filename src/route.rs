//! Which route a request takes: host, longest path prefix in whole segments, method. Pure.

/// `[[route]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// For the log and metrics: `route.name`, or its path.
    pub name: String,
    /// Lower case, without port. `None` for any.
    pub host: Option<String>,
    /// Empty for any.
    pub methods: Vec<http::Method>,
    /// Begins with `/`. With a trailing slash it stands for everything below it; without, also for itself.
    pub path: String,
    /// Index into the configured upstreams.
    pub upstream: usize,
    pub access: Access,
    /// CORS preflights (OPTIONS with Origin and Access-Control-Request-Method) pass without a token.
    pub preflight: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Access {
    /// Said outright: no token is asked for.
    Public,
    /// A valid token that carries every one of these scopes.
    Token { scopes: Vec<String> },
}
