//! The pages of the authorization endpoint: plain HTML without a script, which say who asks for what.

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};

use super::clients::KnownBy;
use super::html::{escaped, quoted, shown_name};
use crate::protocols::http::body::Body;
use crate::tokens::authorization::redirect_uri::{RedirectKind, RedirectUri};
use crate::tokens::family::Family;
use crate::types::clock::UnixTime;
use crate::types::ids::RequestId;
use crate::types::reject::Reject;
use crate::types::secret;

const STYLE: &str = include_str!("page.css");

/// No `form-action`: browsers apply it to the redirect to the client, too.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let hash = STANDARD.encode(secret::digest(&[STYLE.as_bytes()]));
    let policy = format!("default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; frame-ancestors 'none'");
    HeaderValue::from_str(&policy).unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'"))
});

const FIELDS: [(HeaderName, HeaderValue); 6] = [
    (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    // With `no-referrer`, browsers send `Origin: null` with the form. No other site learns the URL of the page.
    (header::REFERRER_POLICY, HeaderValue::from_static("same-origin")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
];

/// What the user decides about.
pub(super) struct Question<'q> {
    pub(super) client_id: &'q str,
    pub(super) known_by: &'q KnownBy,
    pub(super) redirect_uri: &'q RedirectUri,
    pub(super) resources: &'q [String],
    pub(super) scopes: Vec<ShownScope<'q>>,
    /// How the user is called.
    pub(super) user: &'q str,
    /// Since when the client may act for this user already.
    pub(super) granted_since: Option<UnixTime>,
    /// The user has as many sessions of the client as there can be.
    pub(super) ends_oldest: bool,
    /// How long the client may act.
    pub(super) lifetime: Duration,
    /// Where the form goes: a path.
    pub(super) action: &'q str,
    pub(super) other_user: OtherUser,
    /// The hidden fields.
    pub(super) request: &'q str,
    pub(super) session: String,
}

/// A scope that a client asks for.
pub(super) struct ShownScope<'q> {
    pub(super) text: &'q str,
    /// The name of the field by which the user grants it.
    pub(super) field: String,
    /// The user can leave it out.
    pub(super) is_optional: bool,
}

/// Where another user can sign in: a path and a query.
pub(super) enum OtherUser {
    /// It ends the session.
    SignOut(String),
    /// It begins another session.
    SignIn(String),
}

/// The page on which the user agrees or not.
pub(super) fn consent(question: &Question<'_>) -> Response<Body> {
    let name = client_name(question);
    let title = format!("Allow {name}?");
    let scopes: String = question.scopes.iter().map(scope).collect();
    let scopes = if scopes.is_empty() { String::new() } else { format!("<p>It asks to:</p><ul>{scopes}</ul>") };
    let granted = match question.granted_since {
        Some(since) if question.ends_oldest => format!("since {since}; its oldest session ends"),
        Some(since) => format!("since {since}"),
        None => "no".to_owned(),
    };
    let resources: String =
        question.resources.iter().map(|url| format!("<li><code>{}</code></li>", escaped(url))).collect();
    let content = format!(
        "<form method=\"post\" action=\"{action}\">\
         <p><strong>{name}</strong> wants to act for you at:</p><ul>{resources}</ul>{scopes}\
         <dl><dt>Application</dt><dd>{origin}</dd><dt>Goes back to</dt><dd>{target}</dd>\
         <dt>You are signed in as</dt><dd>{user}</dd><dt>It has access already</dt><dd>{granted}</dd>\
         <dt>For at most</dt><dd>{lifetime}</dd></dl>\
         {warning}\
         <input type=\"hidden\" name=\"request\" value=\"{request}\">\
         <input type=\"hidden\" name=\"session\" value=\"{session}\">\
         <button name=\"decision\" value=\"allow\">Allow</button> \
         <button name=\"decision\" value=\"deny\">Do not allow</button></form>\
         <p>Not you? {other_user}</p>",
        origin = origin_of_client(question.known_by),
        target = target(question.redirect_uri),
        user = escaped(question.user),
        lifetime = in_words(question.lifetime),
        warning = warning(question.redirect_uri),
        action = escaped(question.action),
        request = escaped(question.request),
        session = escaped(&question.session),
        other_user = other_user(&question.other_user),
    );
    page(StatusCode::OK, &title, &content)
}

fn scope(scope: &ShownScope<'_>) -> String {
    let text = escaped(scope.text);
    let field = format!("name=\"{}\" value=\"yes\"", escaped(&scope.field));
    if scope.is_optional {
        format!("<li><label><input type=\"checkbox\" {field} checked> {text} (you can leave this out)</label></li>")
    } else {
        format!("<li>{text}<input type=\"hidden\" {field}></li>")
    }
}

fn other_user(place: &OtherUser) -> String {
    match place {
        OtherUser::SignOut(path) => {
            format!("<a href=\"{}\">Sign out</a>, and begin again in the application.", escaped(path))
        }
        OtherUser::SignIn(page) => format!("<a href=\"{}\">Sign in as another user</a>.", escaped(page)),
    }
}

/// The page on which the user chooses a provider. `links`: their names and paths.
pub(super) fn providers(links: &[(&str, String)]) -> Response<Body> {
    let links: String = links
        .iter()
        .map(|(name, path)| {
            format!("<li><a class=\"button\" href=\"{}\">Sign in with {}</a></li>", escaped(path), escaped(name))
        })
        .collect();
    page(
        StatusCode::OK,
        "Sign in",
        &format!("<p>An application asks for your permission. Sign in first.</p><ul class=\"choice\">{links}</ul>"),
    )
}

/// A client that may act for the user.
pub(super) struct ShownGrant {
    pub(super) session: Family,
    /// `None`: the operator has removed it.
    pub(super) known_by: Option<KnownBy>,
    /// Where its codes can go, if the gateway knows that.
    pub(super) redirect_uris: Vec<RedirectUri>,
}

/// The page of grants. `action`: where its forms go, a path.
pub(super) fn grants(grants: &[ShownGrant], action: &str) -> Response<Body> {
    let rows: String = grants.iter().map(|grant| row(grant, action)).collect();
    let content = if rows.is_empty() {
        "<p>No application may act for you.</p>".to_owned()
    } else {
        format!("<p>These applications may act for you until you end it.</p><ul class=\"grants\">{rows}</ul>")
    };
    page(StatusCode::OK, "Applications with access", &content)
}

fn row(shown: &ShownGrant, action: &str) -> String {
    let grant = &shown.session;
    let targets: BTreeSet<String> = shown.redirect_uris.iter().map(target).collect();
    let targets = targets.into_iter().collect::<Vec<_>>().join(", ");
    let targets = if targets.is_empty() { targets } else { format!("<dt>Goes back to</dt><dd>{targets}</dd>") };
    let address = grant.address.map(|address| format!("<dt>From</dt><dd>{address}</dd>")).unwrap_or_default();
    let name = escaped(if grant.label.is_empty() { &grant.client_id } else { &grant.label });
    let scopes = if grant.scope.is_empty() { "none".to_owned() } else { escaped(&grant.scope) };
    let resources = escaped(&grant.audience.join(", "));
    format!(
        "<li><h2>{name}</h2><dl><dt>Application</dt><dd>{origin}</dd>{targets}\
         <dt>Acts for you at</dt><dd>{resources}</dd><dt>Scopes</dt><dd>{scopes}</dd>\
         <dt>Since</dt><dd>{since}</dd><dt>Last used</dt><dd>{used}</dd>{address}</dl>\
         <form method=\"post\" action=\"{action}\"><input type=\"hidden\" name=\"grant\" value=\"{id}\">\
         <button>End the access of {name}</button></form></li>",
        origin = shown.known_by.as_ref().map_or("No longer known here".to_owned(), origin_of_client),
        since = grant.created_at,
        used = grant.last_used_at,
        action = escaped(action),
        id = grant.id,
    )
}

/// The user goes on by a link of this page: another site has led the browser here. `target`: where the sign-in begins.
pub(super) fn sign_in_again(target: &str) -> Response<Body> {
    let content = format!(
        "<p>An application asks you to sign in again. That ends your session in this browser.</p>\
         <p><a class=\"button\" href=\"{}\">Sign in again</a></p>",
        escaped(target)
    );
    page(StatusCode::OK, "Sign in again", &content)
}

/// Why the request of a client fails. `help`: what the user can do. `again`: a link that begins the request again.
/// `request_id`: the operator finds the request by it.
pub(super) fn failed(reject: &Reject, help: &str, again: Option<&str>, request_id: RequestId) -> Response<Body> {
    let message = reject.reason.message();
    let (first, rest) = message.split_at_checked(1).unwrap_or((message, ""));
    let first = first.to_ascii_uppercase();
    let help = escaped(help);
    let again = again.map(|link| format!("<p><a class=\"button\" href=\"{}\">Begin again</a></p>", escaped(link)));
    let again = again.unwrap_or_default();
    let content =
        format!("<p>{first}{rest}.</p><p>{help}</p>{again}<p>The number of this request is {request_id}.</p>");
    let mut response = page(reject.reason.status(), "This does not work", &content);
    if let Some(after) = reject.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
    }
    response
}

/// The largest unit of which it has at least two, such as "30 days".
fn in_words(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let units = [(86_400, "days"), (3_600, "hours"), (60, "minutes")];
    let unit = units.into_iter().find(|(length, _)| seconds >= 2 * length);
    unit.map_or_else(|| format!("{seconds} seconds"), |(length, name)| format!("{} {name}", seconds / length))
}

/// Escaped.
fn client_name(question: &Question<'_>) -> String {
    match question.known_by {
        KnownBy::Operator => escaped(question.client_id),
        KnownBy::Itself { name } | KnownBy::Document { name, .. } => match name.as_deref().and_then(shown_name) {
            Some(name) => quoted(&name),
            None => "an application without a name".to_owned(),
        },
    }
}

/// Escaped.
fn origin_of_client(known_by: &KnownBy) -> String {
    match known_by {
        KnownBy::Operator => "Known to the operator of this service".to_owned(),
        KnownBy::Itself { .. } => "It registered itself: its name was not checked".to_owned(),
        KnownBy::Document { host, .. } => {
            format!("Described by <strong>{}</strong>: its name was not checked", escaped(host))
        }
    }
}

/// Where the code goes, escaped.
fn target(uri: &RedirectUri) -> String {
    match uri.kind() {
        RedirectKind::Https => format!("<strong>{}</strong>", escaped(uri.host().unwrap_or_default())),
        RedirectKind::Loopback => "a program on this device".to_owned(),
        RedirectKind::PrivateScheme { .. } => {
            let scheme = uri.private_scheme().unwrap_or_default();
            format!("the program on this device that opens <code>{}:</code> links", escaped(scheme))
        }
    }
}

fn warning(uri: &RedirectUri) -> &'static str {
    match uri.kind() {
        RedirectKind::Https => "",
        RedirectKind::Loopback | RedirectKind::PrivateScheme { .. } => {
            "<p class=\"warning\">Any program on this device can ask like this. \
             Go on only if you have just started it.</p>"
        }
    }
}

/// `title` is escaped.
fn page(status: StatusCode, title: &str, content: &str) -> Response<Body> {
    let text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{title}</title>\
         <style>{STYLE}</style></head><body><main><h1>{title}</h1>{content}</main></body></html>\n"
    );
    let mut response = Response::new(Body::full(text));
    *response.status_mut() = status;
    response.headers_mut().extend(FIELDS);
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, POLICY.clone());
    response
}
