//! The clients of the authorization endpoint: those of `[[oauth.client]]`, those that have registered themselves, and
//! those that a document at their URL describes.

use std::borrow::Cow;

use super::html::shown_name;
use super::settings::{AuthorizationSettings, RegistrationSettings};
use crate::auth::client_documents::DocumentSettings;
use crate::auth::registered_clients::{ClientAuthorization, RegisteredClient};
use crate::tokens::authorization::client_document::{self, ClientDocument};
use crate::tokens::authorization::client_name;
use crate::tokens::authorization::client_registration::{ClientRegistration, PREFIX};
use crate::tokens::authorization::redirect_uri::{self, RedirectKind, RedirectUri};
use crate::tokens::family::refresh_token::Roots;
use crate::tokens::sign_in::place::SignInPlace;
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};

/// Maximum length of a label, in characters.
const MAX_LABEL: usize = 64;

/// A client that asks a user.
pub(super) struct AskingClient<'c> {
    pub(super) id: &'c str,
    pub(super) redirect_uris: Cow<'c, [RedirectUri]>,
    /// `oauth.client.scopes`. `None`: all.
    pub(super) scopes: Option<&'c [String]>,
    pub(super) known_by: KnownBy,
    /// `oauth.client.consent = "never"`
    pub(super) skips_consent: bool,
    /// `oauth.client.require_par`
    pub(super) must_push: bool,
    /// It proves at the token endpoint who it is.
    pub(super) authenticates: bool,
}

/// What a code keeps of its client.
pub(super) struct Grantee {
    /// How lists of sessions name it.
    pub(super) label: String,
    pub(super) authenticates: bool,
}

/// Where a client is described.
pub(super) enum Described<'c> {
    Here(AskingClient<'c>),
    AtItsUrl(&'c DocumentSettings),
    Nowhere,
}

/// Finds the client of this name without a fetch.
pub(super) fn find<'c>(
    id: &'c str,
    clients: &'c [RegisteredClient],
    settings: &'c AuthorizationSettings,
    roots: &Roots,
    now: UnixTime,
) -> Described<'c> {
    if let Some(client) = clients.iter().find(|client| client.client_id == id) {
        return AskingClient::of_operator(client).map_or(Described::Nowhere, Described::Here);
    }
    let registration = settings.registration.as_ref();
    if let Some(client) = registration.and_then(|settings| AskingClient::of_registration(id, settings, roots, now)) {
        return Described::Here(client);
    }
    match &settings.documents {
        Some(documents) if id.starts_with(client_document::SCHEME) => Described::AtItsUrl(documents),
        _ => Described::Nowhere,
    }
}

/// How a client of `[[oauth.client]]` may ask users.
pub(super) fn registered<'c>(id: &str, clients: &'c [RegisteredClient]) -> Option<&'c ClientAuthorization> {
    clients.iter().find(|client| client.client_id == id)?.authorization.as_ref()
}

/// Where the users of this client sign in.
pub(super) fn sign_in_place<'c>(
    id: &str,
    clients: &'c [RegisteredClient],
    settings: &'c AuthorizationSettings,
) -> &'c SignInPlace {
    registered(id, clients).and_then(|client| client.sign_in.as_ref()).unwrap_or(&settings.sign_in)
}

/// Why the gateway knows a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KnownBy {
    /// The operator has named it.
    Operator,
    /// It has registered itself, with a name that nothing proves.
    Itself { name: Option<String> },
    /// A document of this host describes it. `is_named`: the operator has named the host.
    Document { host: String, is_named: bool, name: Option<String> },
}

impl<'c> AskingClient<'c> {
    /// A client of `[[oauth.client]]` that may ask users.
    pub(super) fn of_operator(client: &'c RegisteredClient) -> Option<Self> {
        let authorization = client.authorization.as_ref()?;
        Some(AskingClient {
            id: &client.client_id,
            redirect_uris: Cow::Borrowed(&authorization.redirect_uris),
            scopes: if client.scopes.is_empty() { None } else { Some(&client.scopes) },
            known_by: KnownBy::Operator,
            skips_consent: authorization.skips_consent,
            must_push: authorization.must_push,
            authenticates: client.authenticates(),
        })
    }

    /// A client that has registered itself.
    pub(super) fn of_registration(
        id: &'c str,
        settings: &RegistrationSettings,
        roots: &Roots,
        now: UnixTime,
    ) -> Option<Self> {
        if !id.starts_with(PREFIX) {
            return None;
        }
        let registration = ClientRegistration::open(id, roots, settings.lifetime, now)?;
        // The operator may have changed `oauth.registration` since.
        let uris = registration.redirect_uris.into_iter().filter(|uri| settings.accepts(uri));
        Some(AskingClient {
            id,
            redirect_uris: Cow::Owned(uris.collect()),
            scopes: None,
            known_by: KnownBy::Itself { name: registration.name },
            skips_consent: false,
            must_push: false,
            authenticates: false,
        })
    }

    /// A client that a document describes, at the URL that is its id.
    pub(super) fn of_document(id: &'c str, settings: &DocumentSettings, document: &ClientDocument) -> Self {
        let host = client_document::host_of(id).unwrap_or_default().to_owned();
        AskingClient {
            id,
            redirect_uris: Cow::Owned(document.redirect_uris.clone()),
            scopes: None,
            known_by: KnownBy::Document { host, is_named: settings.hosts.is_some(), name: document.name.clone() },
            skips_consent: false,
            must_push: false,
            authenticates: document.keys.is_some(),
        }
    }

    /// Where the code goes. `None`: the client has not registered this redirect URI.
    pub(super) fn target(&self, requested: &str) -> Option<RedirectUri> {
        self.redirect_uris.iter().find_map(|registered| registered.target(requested))
    }

    /// As [`AskingClient::target`]. The error says what differs.
    pub(super) fn redirect_of(&self, requested: &str) -> Result<RedirectUri, Reject> {
        self.target(requested).ok_or_else(|| {
            let difference = redirect_uri::difference(&self.redirect_uris, requested);
            let registered: Vec<&str> = self.redirect_uris.iter().map(RedirectUri::as_str).collect();
            let registered = registered.join(" or ");
            let requested = shortened(requested);
            let detail = format!("{difference}; the client sent {requested:?}, registered is {registered}");
            Reject::new(Reason::RedirectMismatch, detail)
        })
    }

    pub(super) fn grantee(&self) -> Grantee {
        Grantee { label: self.label(), authenticates: self.authenticates }
    }

    /// How logs name it. `redirect_uri`: where its code goes, if that is known to be registered.
    pub(super) fn name_for_operators<'n>(&'n self, redirect_uri: Option<&'n RedirectUri>) -> Option<&'n str> {
        let is_named = self.known_by == KnownBy::Operator;
        client_name::for_operators(self.id, is_named, redirect_uri.map(RedirectUri::goes_to))
    }

    /// How lists of sessions name it: short, and on one line.
    pub(super) fn label(&self) -> String {
        let name = match &self.known_by {
            KnownBy::Operator => Some(self.id.to_owned()),
            // In quotes: it is not that of a client that the operator knows.
            KnownBy::Itself { name } => name.as_deref().and_then(shown_name).map(|name| format!("“{name}”")),
            KnownBy::Document { host, name, .. } => {
                let name = name.as_deref().and_then(shown_name).unwrap_or_default();
                Some(format!("{host}: “{name}”"))
            }
        };
        let name = name.unwrap_or_else(|| "an application without a name".to_owned());
        name.chars().take(MAX_LABEL).collect()
    }

    /// Returns true if an error may go to this redirect URI before a user has seen the request. A site that has
    /// registered itself could use the gateway as an open redirector (RFC 9700 section 4.11.2).
    pub(super) fn gets_errors_at(&self, uri: &RedirectUri) -> bool {
        match &self.known_by {
            KnownBy::Operator | KnownBy::Document { is_named: true, .. } => true,
            KnownBy::Itself { .. } | KnownBy::Document { is_named: false, .. } => uri.kind() == RedirectKind::Loopback,
        }
    }
}

/// The beginning of a text that a client has sent: the detail of a rejection must have room for what is wrong with it.
/// Of a sealed text of the gateway, only its kind.
pub(super) fn shortened(text: &str) -> String {
    const MAX: usize = 80;
    if let Some(kind) = sealed_kind(text) {
        return format!("{kind}…");
    }
    if text.len() <= MAX {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(MAX)])
}

/// How a text that this gateway has sealed begins, such as `bwd1_`.
fn sealed_kind(text: &str) -> Option<&str> {
    let (kind, _) = text.split_at_checked(5)?;
    if kind.starts_with("bw") && kind.ends_with("1_") { Some(kind) } else { None }
}
