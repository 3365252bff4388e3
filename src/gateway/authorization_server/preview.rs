//! What the authorization endpoint would do with a request, for `bearward explain`: the same checks in the same order,
//! without effects. Nothing is fetched, sealed or counted.

use http::Method;

use super::asked::{Asked, Wish, asked_by};
use super::call::{check_host, unknown_client};
use super::clients::{AskingClient, Described, KnownBy, find, sign_in_place};
use super::parameters::Parameters;
use super::settings::AuthorizationSettings;
use crate::auth::client_documents::ClientDocuments;
use crate::auth::registered_clients::RegisteredClient;
use crate::gateway::context::RequestContext;
use crate::tokens::authorization::client_registration;
use crate::tokens::authorization::denied_clients::DeniedClients;
use crate::tokens::authorization::redirect_uri::{RedirectKind, RedirectUri};
use crate::tokens::authorization::request::{AuthorizationRequest, RequestError, SignInWish};
use crate::tokens::family::refresh_token::Roots;
use crate::tokens::sign_in::place::SignInPlace;
use crate::types::reject::{Reason, Reject};
use crate::types::step::Step;

/// What a question about a request needs to know.
pub struct Preview<'p> {
    pub settings: &'p AuthorizationSettings,
    /// `[[oauth.client]]`
    pub clients: &'p [RegisteredClient],
    /// `oauth.denied_clients`
    pub denied: &'p DeniedClients,
    /// `tokens.issuer`
    pub issuer: &'p str,
    /// None of them: they cannot be read.
    pub roots: &'p Roots,
    /// Those that a running gateway has fetched.
    pub documents: &'p ClientDocuments,
}

/// Why there is no preview.
pub enum NoPreview {
    Rejected(Reject),
    /// Why it is not known what the gateway would do.
    Unknown(String),
}

impl From<Reject> for NoPreview {
    fn from(reject: Reject) -> Self {
        NoPreview::Rejected(reject)
    }
}

impl Preview<'_> {
    /// The text completes the sentence "the gateway itself …".
    pub fn of(&self, context: &RequestContext<'_>) -> Result<String, NoPreview> {
        check_host(context.host(), self.issuer)?;
        if context.record.method == Method::POST {
            return Ok("asks a user for a client, with the form of the request, which is no part of a question".into());
        }
        let parameters = Parameters::of(context.record.uri.query().unwrap_or_default())?;
        let client = self.client(parameters.client_id()?, context)?;
        let known = known_by(&client.known_by);
        context.steps.report(Step::Client, || format!("{}: {known}", client.id));
        if parameters.get("request_uri").is_some() && self.roots.newest_secret().is_none() {
            let why = "the root secret, which cannot be read, opens the request that the client has pushed";
            return Err(NoPreview::Unknown(why.to_owned()));
        }
        let asked = asked_by(client, &parameters, self.settings, self.roots, context.now)?;
        let Asked { client, redirect_uri, wish } = asked;
        context.steps.report(Step::Redirect, || format!("{}, as registered", redirect_uri.as_str()));
        let request = match wish {
            Wish::Here(request) => request,
            Wish::Pushed(pushed) => pushed.request,
            Wish::Wrong(error) => return Err(refused(error, client.gets_errors_at(&redirect_uri)).into()),
        };
        context.steps.report(Step::Resource, || request.resources.join(" "));
        Ok(self.answer(&client, &request))
    }

    fn client<'s>(&'s self, id: &'s str, context: &RequestContext<'_>) -> Result<AskingClient<'s>, NoPreview> {
        self.denied.check(id, self.roots)?;
        let may_be_registered = id.starts_with(client_registration::PREFIX) && self.settings.registration.is_some();
        if may_be_registered && self.roots.newest_secret().is_none() {
            let why = "the root secret, which cannot be read, decides whether the client has registered itself";
            return Err(NoPreview::Unknown(why.to_owned()));
        }
        match find(id, self.clients, self.settings, self.roots, context.now) {
            Described::Here(client) => Ok(client),
            Described::Nowhere => Err(unknown_client(id).into()),
            Described::AtItsUrl(settings) => {
                let known = self.documents.known(id, settings, context.clock.uptime())?;
                let unknown = || NoPreview::Unknown(format!("the document at {id} decides, which no question fetches"));
                let document = known.ok_or_else(unknown)?;
                Ok(AskingClient::of_document(id, settings, &document))
            }
        }
    }

    fn answer(&self, client: &AskingClient<'_>, asked: &AuthorizationRequest) -> String {
        let place = match sign_in_place(client.id, self.clients, self.settings) {
            SignInPlace::Providers(providers) => providers.join(" or "),
            SignInPlace::LoginPage(page) => page.clone(),
        };
        let signs_in = match asked.sign_in {
            SignInWish::Silent => "only if the user has a session".to_owned(),
            SignInWish::Any => format!("after a sign-in at {place}, unless the browser has a session"),
            SignInWish::Anew => format!("after a new sign-in at {place}"),
            SignInWish::Within(seconds) => {
                format!("after a sign-in at {place}, unless that was within {seconds} seconds")
            }
        };
        let goes_to = goes_to(&asked.redirect_uri);
        if client.skips_consent && !asked.wants_consent {
            return format!("sends a code to {goes_to} without a question (consent = \"never\"), {signs_in}");
        }
        if asked.sign_in == SignInWish::Silent {
            return format!("answers login_required or consent_required to {goes_to}: prompt=none shows no page");
        }
        let resources = asked.resources.join(" and ");
        let scopes = match &*asked.scopes {
            [] => "no scope".to_owned(),
            scopes => format!("of the scopes {} those that the user can grant", scopes.join(" ")),
        };
        let name = client.label();
        format!("asks the user, {signs_in}: {name} wants {resources}, {scopes}; the code goes to {goes_to}")
    }
}

fn refused(error: RequestError, is_sent: bool) -> Reject {
    let learns = if is_sent {
        "the client gets this at its redirect URI"
    } else {
        "a page says it: the client could use the gateway as an open redirector"
    };
    let detail = format!("{}: {}; {learns}", error.code, error.description);
    Reject::new(Reason::AuthorizationRefused, detail)
}

fn known_by(known_by: &KnownBy) -> String {
    match known_by {
        KnownBy::Operator => "an [[oauth.client]]".to_owned(),
        KnownBy::Itself { .. } => "it has registered itself".to_owned(),
        KnownBy::Document { host, .. } => format!("a document of {host} describes it"),
    }
}

fn goes_to(uri: &RedirectUri) -> String {
    match uri.kind() {
        RedirectKind::Loopback => "a program on the device of the user".to_owned(),
        RedirectKind::Https | RedirectKind::PrivateScheme { .. } => uri.goes_to().to_owned(),
    }
}
