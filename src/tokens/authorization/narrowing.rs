//! What a client asks for of what it was granted (RFC 6749 section 6, RFC 8707 section 2.2): its next access token can
//! be for less, and never for more. What was granted stays. Pure.

use super::request::OFFLINE_ACCESS;
use super::resource::{OfferedResource, is_named};
use crate::tokens::family::Family;
use crate::types::reject::Reason;

/// The parameters `scope` and `resource` of a call of the token endpoint.
#[derive(Clone, Debug, Default)]
pub struct Narrowing {
    /// `None`: all scopes.
    pub scope: Option<String>,
    /// Without any: all resources.
    pub resources: Vec<String>,
    /// The resources of the gateway.
    pub offered: Vec<OfferedResource>,
    /// What a session without an audience of its own is good for.
    pub of_ordinary: Vec<String>,
}

/// What an access token is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Narrowed {
    pub scope: String,
    pub audience: Vec<String>,
}

impl Narrowing {
    /// `scope` and `audience`: what was granted.
    pub fn of(&self, scope: &str, audience: &[String]) -> Result<Narrowed, Reason> {
        self.check_granted(audience)?;
        let is_wanted =
            |url: &&String| self.resources.is_empty() || self.resources.iter().any(|named| is_named(url, named));
        let taken: Vec<String> = audience.iter().filter(is_wanted).cloned().collect();
        let scope = if taken.len() < audience.len() { self.scope_of(&taken, scope) } else { scope.to_owned() };
        Ok(Narrowed { scope: self.scope(&scope)?, audience: taken })
    }

    /// As [`Narrowing::of`], for the next access token of a session. The audience of an ordinary session stays as it
    /// is: each of its resources is good for the same routes.
    pub fn of_family(&self, family: &Family) -> Result<Narrowed, Reason> {
        if !family.audience.is_empty() {
            return self.of(&family.scope, &family.audience);
        }
        self.check_granted(&self.of_ordinary)?;
        Ok(Narrowed { scope: self.scope(&family.scope)?, audience: Vec::new() })
    }

    fn check_granted(&self, audience: &[String]) -> Result<(), Reason> {
        let is_granted = |named: &String| audience.iter().any(|url| is_named(url, named));
        if self.resources.iter().all(is_granted) { Ok(()) } else { Err(Reason::InvalidTarget) }
    }

    /// The scopes that these resources have: those of another one mean something else.
    fn scope_of(&self, audience: &[String], scope: &str) -> String {
        let taken: Vec<_> = self.offered.iter().filter(|resource| audience.contains(&resource.url)).collect();
        let is_of_taken =
            |scope: &&str| taken.iter().any(|resource| resource.scopes.iter().any(|known| known == scope));
        scope.split(' ').filter(is_of_taken).collect::<Vec<_>>().join(" ")
    }

    /// A scope beyond the granted ones is an error, so that no client takes its token for more than it is. Many clients
    /// repeat `offline_access`, which is never granted.
    fn scope(&self, granted: &str) -> Result<String, Reason> {
        let wanted = self.scope.iter().flat_map(|text| text.split(' '));
        let wanted: Vec<&str> = wanted.filter(|scope| !scope.is_empty() && *scope != OFFLINE_ACCESS).collect();
        if !wanted.iter().all(|wanted| granted.split(' ').any(|scope| scope == *wanted)) {
            return Err(Reason::InvalidScope);
        }
        if wanted.is_empty() {
            return Ok(granted.to_owned());
        }
        let kept: Vec<&str> = granted.split(' ').filter(|scope| wanted.contains(scope)).collect();
        Ok(kept.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::clock::UnixTime;

    const MCP: &str = "https://a.example/mcp";
    const NOTES: &str = "https://a.example/notes";

    fn narrowed(scope: Option<&str>, resources: &[&str]) -> Result<(String, Vec<String>), Reason> {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let offered = vec![
            OfferedResource { url: MCP.to_owned(), scopes: texts(&["call"]), default_scopes: vec![] },
            OfferedResource { url: NOTES.to_owned(), scopes: texts(&["read", "write"]), default_scopes: vec![] },
        ];
        let scope = scope.map(str::to_owned);
        let narrowing = Narrowing { scope, resources: texts(resources), offered, of_ordinary: vec![] };
        let narrowed = narrowing.of("call read write", &texts(&[MCP, NOTES]))?;
        Ok((narrowed.scope, narrowed.audience))
    }

    #[test]
    fn a_token_is_for_less_and_never_for_more() {
        for (scope, resources, expected) in [
            (None, &[][..], Ok(("call read write", &[MCP, NOTES][..]))),
            (Some("write call"), &[], Ok(("call write", &[MCP, NOTES]))),
            (Some("read read"), &[], Ok(("read", &[MCP, NOTES]))),
            (Some(" offline_access "), &[], Ok(("call read write", &[MCP, NOTES]))),
            (Some("offline_access read"), &[], Ok(("read", &[MCP, NOTES]))),
            (None, &[NOTES], Ok(("read write", &[NOTES]))),
            (None, &["HTTPS://A.example/notes", NOTES], Ok(("read write", &[NOTES]))),
            (Some("read"), &[NOTES], Ok(("read", &[NOTES]))),
            (Some("read"), &[MCP], Err(Reason::InvalidScope)),
            (Some("read admin"), &[], Err(Reason::InvalidScope)),
            (Some("Read"), &[], Err(Reason::InvalidScope)),
            (Some("read\twrite"), &[], Err(Reason::InvalidScope)),
            (None, &[MCP, "https://a.example"], Err(Reason::InvalidTarget)),
            (Some("admin"), &["https://b.example/mcp"], Err(Reason::InvalidTarget)),
        ] {
            let expected = expected.map(|(scope, audience)| {
                (scope.to_owned(), audience.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>())
            });
            assert_eq!(narrowed(scope, resources), expected, "{scope:?} {resources:?}");
        }
    }

    #[test]
    fn an_ordinary_session_keeps_its_audience() {
        let ordinary = Narrowing { of_ordinary: vec!["orders".to_owned(), MCP.to_owned()], ..Narrowing::default() };
        let family = Family { scope: "call read".to_owned(), ..Family::sample(UnixTime::from_secs(1)) };
        let narrowed = |resource: &str| {
            let narrowing = Narrowing { resources: vec![resource.to_owned()], ..ordinary.clone() };
            narrowing.of_family(&family)
        };
        let all = Narrowed { scope: "call read".to_owned(), audience: vec![] };
        assert_eq!(narrowed("orders"), Ok(all.clone()));
        assert_eq!(narrowed(MCP), Ok(all));
        assert_eq!(narrowed(NOTES), Err(Reason::InvalidTarget));
    }
}
