//! The steps of `Gateway::handle` up to the upstream, in the same order.
//!
//! The body type of a request exists only on a connection, so a bench cannot call `Gateway::handle` without a socket.
//! This file calls the same public functions, one line per step, and fills the record in the same way.

use std::sync::Arc;
use std::time::Instant;

use bearward::auth::authenticate::Authenticator;
use bearward::auth::bearer::session_cookie;
use bearward::gateway::authorize::Permit;
use bearward::gateway::context::RequestContext;
use bearward::gateway::cors::Cors;
use bearward::gateway::decide::{Decider, Decision};
use bearward::gateway::https::Https;
use bearward::gateway::route::{Access, Route, TokenForwarding};
use bearward::gateway::route_table::RouteTable;
use bearward::gateway::rules::Rules;
use bearward::gateway::source::Source;
use bearward::protocols::http::forwarded::ForwardedClient;
use bearward::protocols::http::headers::{Hygiene, set_forwarded};
use bearward::protocols::http::{respond, target};
use bearward::telemetry::access_log::Record;
use bearward::types::clock::{Clock, SystemClock};
use bearward::types::ids::RequestIds;
use bearward::types::reject::Reject;
use bearward::types::step::StepReporter;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};

use super::{BenchWorker, Mint, NOW, authenticator, run_ready};

const UPSTREAM: &str = "10.0.0.1:3000";

pub struct Steps {
    /// Shared by all workers.
    pub decider: Arc<Decider>,
    pub hygiene: Arc<Hygiene>,
    pub client: ForwardedClient,
    pub worker: BenchWorker,
    pub request_ids: RequestIds,
    upstream: HeaderValue,
}

impl Steps {
    pub fn new(mint: &Mint) -> Steps {
        Steps::with(authenticator(mint), &routes(10), 1)
    }

    /// For this number of workers, of which this is the first.
    pub fn with((authenticator, hygiene): (Authenticator, Arc<Hygiene>), routes: &[Route], workers: usize) -> Steps {
        Steps {
            decider: Arc::new(Decider {
                routes: Arc::new(RouteTable::new(routes, workers)),
                authenticator,
                cors: Cors::default(),
                https: Https::default(),
                headers: 100,
                header_list_size: 16 << 10,
                uri_size: 8 << 10,
            }),
            hygiene,
            client: ForwardedClient::new([192, 0, 2, 7].into(), true),
            worker: BenchWorker::new(),
            request_ids: RequestIds::new(),
            upstream: HeaderValue::from_static(UPSTREAM),
        }
    }

    /// The steps of another worker with its own state. The workers share the rest.
    pub fn beside(&self, number: usize) -> Steps {
        Steps {
            decider: self.decider.clone(),
            hygiene: self.hygiene.clone(),
            client: ForwardedClient::new([192, 0, 2, 7].into(), true),
            worker: BenchWorker::numbered(number),
            request_ids: RequestIds::new(),
            upstream: self.upstream.clone(),
        }
    }

    /// Turns the request from hyper into the request for the upstream. Returns its record.
    pub fn run(&self, request: &mut Request<()>) -> Result<Box<Record>, Reject> {
        // The clock is read as the gateway reads it. Tokens are checked at the fixed time NOW.
        let time = SystemClock.now();
        let started = Instant::now();
        let wants_problem = respond::wants_problem(request.headers());
        let mut record = Box::new(Record {
            request_id: self.request_ids.next(),
            time,
            client: Some([192, 0, 2, 7].into()),
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            user_agent: request.headers().get(header::USER_AGENT).cloned(),
            ..Record::default()
        });
        let permit = self.permit(request, &mut record)?;
        self.prepare(request, &permit, &record);
        record.status = if wants_problem { 201 } else { 200 };
        record.complete = true;
        record.duration = started.elapsed();
        self.worker.0.metrics.request_finished(record.status, record.duration);
        Ok(record)
    }

    /// Decides whether the request is accepted.
    pub fn permit(&self, request: &Request<()>, record: &mut Record) -> Result<Permit, Reject> {
        let mut context = RequestContext {
            now: NOW,
            clock: &SystemClock,
            source: &Source::client(&self.client),
            route: &mut None,
            worker: &self.worker.0,
            record,
            rate_limit_headers: &mut None,
            upload: &mut None,
            steps: StepReporter::OFF,
        };
        let decision = run_ready(self.decider.decide(request, &mut context));
        let Decision::Forward { permit, .. } = decision? else { panic!("expected a route to an upstream") };
        Ok(permit)
    }

    /// Removes and sets headers for the upstream.
    pub fn prepare(&self, request: &mut Request<()>, permit: &Permit, record: &Record) {
        let (places, drop) = (&permit.route().places, permit.route().token_forwarding != TokenForwarding::Pass);
        places.rewrite_for_upstream(request, drop).expect("nothing to take out");
        if permit.route().sign_in.is_some() {
            session_cookie::remove(request.headers_mut());
        }
        self.hygiene.clean_request(request.headers_mut());
        set_forwarded(request.headers_mut(), &self.client, record.host.as_ref());
        let headers = request.headers_mut();
        for (name, value) in permit.caller().iter().flat_map(|caller| &caller.cached().identity) {
            headers.insert(name.clone(), value.clone());
        }
        if let Ok(id) = HeaderValue::from_bytes(&record.request_id.as_hex()) {
            headers.insert(HeaderName::from_static("x-request-id"), id);
        }
        headers.remove(header::EXPECT);
        headers.insert(header::HOST, self.upstream.clone());
        *request.uri_mut() = target::origin_form(request.uri());
    }
}

/// `count` routes of an API that require a token. The requests below match the first.
pub fn routes(count: usize) -> Vec<Route> {
    let route = |number| Route {
        name: format!("service {number}").into(),
        methods: vec![Method::GET, Method::POST],
        path: if number == 0 { "/api/orders/".into() } else { format!("/api/service-{number}/v1/") },
        access: Access::Token(Rules { scopes: vec!["orders:read".into()], ..Rules::default() }),
        ..Route::everything()
    };
    (0..count).map(route).collect()
}

/// A sample request that can be created any number of times.
pub struct SampleRequest {
    names: Vec<HeaderName>,
    values: Vec<String>,
}

impl SampleRequest {
    /// A request from another service.
    pub fn plain(token: &str) -> SampleRequest {
        SampleRequest::of(&[
            ("host", "gateway.example"),
            ("user-agent", "orders-client/2.1"),
            ("accept", "application/json"),
            ("authorization", &format!("Bearer {token}")),
        ])
    }

    /// A request from a page in a browser.
    pub fn browser(token: &str) -> SampleRequest {
        SampleRequest::of(&[
            ("host", "gateway.example"),
            ("connection", "keep-alive"),
            ("sec-ch-ua-platform", "\"Linux\""),
            ("authorization", &format!("Bearer {token}")),
            ("user-agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0"),
            ("accept", "application/json"),
            ("sec-ch-ua", "\"Chromium\";v=\"138\", \"Not)A;Brand\";v=\"8\""),
            ("sec-ch-ua-mobile", "?0"),
            ("origin", "https://shop.example"),
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-mode", "cors"),
            ("sec-fetch-dest", "empty"),
            ("referer", "https://shop.example/orders"),
            ("accept-encoding", "gzip, deflate, br, zstd"),
            ("accept-language", "en-GB,en;q=0.9"),
            ("cookie", "consent=all; theme=dark"),
        ])
    }

    /// A request from a page in a browser that has signed in.
    pub fn signed_in(handle: &str) -> SampleRequest {
        let mut request = SampleRequest::browser("");
        for (name, value) in request.names.iter().zip(&mut request.values) {
            if name == header::COOKIE {
                *value = format!("{value}; {}={handle}", session_cookie::SESSION);
            }
        }
        let token = request.names.iter().position(|name| name == header::AUTHORIZATION).expect("one");
        request.names.remove(token);
        request.values.remove(token);
        request
    }

    fn of(headers: &[(&str, &str)]) -> SampleRequest {
        let name = |name: &str| HeaderName::from_bytes(name.as_bytes()).expect("a name");
        let (names, values) = headers.iter().map(|(key, value)| (name(key), (*value).to_owned())).unzip();
        SampleRequest { names, values }
    }

    /// The request as hyper delivers it: each value is a slice of one buffer, and the map has capacity for all headers.
    pub fn to_request(&self) -> Request<()> {
        let target = "/api/orders/8731?expand=lines";
        let read = Bytes::from([target, &self.values.concat()].concat());
        let mut request = Request::new(());
        *request.uri_mut() = Uri::from_maybe_shared(read.slice(..target.len())).expect("a target");
        let mut headers = HeaderMap::with_capacity(self.names.len());
        let mut from = target.len();
        for (name, value) in self.names.iter().zip(&self.values) {
            let part = read.slice(from..from + value.len());
            headers.append(name.clone(), HeaderValue::from_maybe_shared(part).expect("a value"));
            from += value.len();
        }
        *request.headers_mut() = headers;
        request
    }
}
