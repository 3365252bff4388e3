//! A request through the whole pipeline without a socket, and each step of the pipeline on its own.

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]

use std::borrow::Cow;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, iter, slice, thread};

use bearward::auth::bearer;
use bearward::auth::revocations::Revocations;
use bearward::gateway::authorize::authorize;
use bearward::limits::concurrency::ConcurrencyLimit;
use bearward::limits::rate_limit::{Client, Per, RateLimitHeaders, RateLimitSettings, RateLimits, Share};
use bearward::protocols::http::challenges::{Challenges, REALM};
use bearward::protocols::http::framing::{Consumed, Framing, Limits};
use bearward::protocols::http::headers::set_forwarded;
use bearward::protocols::http::path::CanonicalPath;
use bearward::protocols::http::respond::{self, RejectFormat};
use bearward::protocols::http::target;
use bearward::telemetry::access_log::{AccessLog, AccessLogSettings, AccessLogTarget, Format, Record};
use bearward::telemetry::metrics::Metrics;
use bearward::tokens::jwt::Algorithm;
use bearward::types::clock::{Clock, SystemClock, Uptime};
use bearward::types::close_reason::CloseReason;
use bearward::types::ids::{RequestId, RequestIds, TokenId};
use bearward::types::reject::{Reason, Reject};
use criterion::{BatchSize, Criterion, SamplingMode, criterion_group, criterion_main};
use http::{HeaderValue, Request};
use serde::Serialize;

use setup::Mint;
use setup::steps::{SampleRequest, Steps};

mod setup;

/// Each iteration consumes a request. Batches are small so that a request is still in the processor's cache, as it is
/// when hyper delivers it.
const FEW: BatchSize = BatchSize::NumIterations(8);

fn pipeline(c: &mut Criterion) {
    let mut group = c.benchmark_group("pipeline");
    let mint = Mint::new(Algorithm::ES256);
    let steps = Steps::new(&mint);
    let count = if setup::in_brief() { 100 } else { 10_000 };
    let tokens: Vec<String> = setup::shuffled(count).into_iter().map(|number| mint.token(number)).collect();
    for (name, send) in
        [("plain", SampleRequest::plain as fn(&str) -> SampleRequest), ("browser", SampleRequest::browser)]
    {
        for (known, tokens) in [("one token", &tokens[..1]), ("10,000 tokens", &tokens[..])] {
            let requests: Vec<_> = tokens.iter().map(|token| send(token)).collect();
            for sent in &requests {
                assert!(steps.run(&mut sent.to_request()).is_ok(), "the request is accepted");
            }
            let mut next = requests.iter().cycle();
            group.bench_function(format!("{name} request, {known}"), |b| {
                b.iter_batched(
                    || next.next().expect("endless").to_request(),
                    |mut request| (steps.run(&mut request), request),
                    FEW,
                );
            });
        }
    }
}

fn each_step(c: &mut Criterion) {
    let mut group = c.benchmark_group("step");
    let mint = Mint::new(Algorithm::ES256);
    let steps = Steps::new(&mint);
    let (plain, browser) = (SampleRequest::plain(&mint.token(0)), SampleRequest::browser(&mint.token(0)));
    let request = browser.to_request();
    let (headers, method, uri) = (request.headers(), request.method(), request.uri());
    let host = target::host(&request, 8 << 10).expect("a host");
    let path = CanonicalPath::parse(uri.path()).expect("a canonical path");
    let mut record = Record::default();
    let permit = steps.permit(&request, &mut record).expect("the request is accepted");
    let route = permit.route();

    let sent = to_http1(&request);
    let limits = Limits { request_header_size: 16 << 10, request_header_count: 100 };
    assert_eq!(Framing::new(limits).consume(&sent), Consumed { len: sent.len(), error: None });
    group.bench_function("framing", |b| b.iter(|| Framing::new(limits).consume(&sent)));
    group.bench_function("clock", |b| b.iter(|| (SystemClock.now(), Instant::now())));
    group.bench_function("is problem+json wanted", |b| b.iter(|| respond::wants_problem(headers)));
    group.bench_function("host", |b| b.iter(|| target::host(&request, 8 << 10)));
    group.bench_function("path", |b| b.iter(|| CanonicalPath::parse(uri.path())));
    group.bench_function("route", |b| b.iter(|| steps.decider.routes.find("gateway.example", method, &path).is_ok()));
    group.bench_function("bearer", |b| b.iter(|| bearer::find(headers, 8 << 10).is_ok()));
    group.bench_function("authenticate", |b| {
        b.iter(|| steps.worker.authenticate(&steps.decider.authenticator, headers));
    });
    group.bench_function("authorize", |b| {
        b.iter_batched(
            || (route.clone(), steps.worker.authenticate(&steps.decider.authenticator, headers).expect("known")),
            |(route, caller)| authorize(route, Ok(caller)),
            FEW,
        );
    });
    for (name, sent) in [("plain", &plain), ("browser", &browser)] {
        group.bench_function(format!("clean the headers, {name} request"), |b| {
            b.iter_batched_ref(|| sent.to_request(), |request| steps.hygiene.clean_request(request.headers_mut()), FEW);
        });
        group.bench_function(format!("all headers, {name} request"), |b| {
            b.iter_batched_ref(|| sent.to_request(), |request| steps.prepare(request, &permit, &record), FEW);
        });
    }
    group.bench_function("origin headers", |b| {
        let set = |request: &mut Request<()>| set_forwarded(request.headers_mut(), &steps.client, Some(&host));
        b.iter_batched_ref(|| plain.to_request(), set, FEW);
    });
    group.bench_function("count", |b| {
        b.iter(|| steps.worker.0.metrics.request_finished(200, Duration::from_micros(300)))
    });
}

/// The cost of each limit per request, and of the revocation check of a known token: with an unchanged epoch and with a
/// changed one.
fn limits(c: &mut Criterion) {
    let mut group = c.benchmark_group("limit");
    let (address, in_flight) = (IpAddr::from([192, 0, 2, 7]), 17);
    let share = ConcurrencyLimit::new(20_000, 25, 2);
    group.bench_function("requests in flight", |b| b.iter(|| share.acquire(in_flight, address, || false).is_ok()));
    let (none, uptime) = (RateLimits::default(), Uptime::from_secs(60));
    group.bench_function("rates, none configured", |b| b.iter(|| none.is_empty()));
    for (name, per) in [("address", Per::Address), ("subject", Per::Subject)] {
        let (requests, window) = (u32::MAX, Duration::from_secs(1));
        let settings = RateLimitSettings {
            number: 0,
            route: String::new(),
            name: name.into(),
            per,
            requests,
            window,
            burst: requests,
            share: Share::Replica,
        };
        let rates = RateLimits::new(iter::once(settings), 1);
        let client =
            Client { address, subject: Some(("https://gateway.example", "user-000001@example.com")), key: None };
        group.bench_function(format!("a rate for each {name}"), |b| {
            b.iter(|| {
                let mut told = RateLimitHeaders::default();
                (rates.take(&[], &client, &mut told, 1, uptime).is_ok(), told)
            });
        });
    }

    let mint = Mint::new(Algorithm::ES256);
    let (authenticator, _) = setup::authenticator(&mint);
    let known =
        setup::BenchWorker::new().authenticate(&authenticator, &setup::bearer(&mint.token(0))).expect("a good token");
    let (known, revocations) = (known.into_cached(), &authenticator.known.revocations);
    group.bench_function("revocation, nothing new", |b| b.iter(|| known.check_revocation(revocations).is_ok()));
    for number in 1..=1_000 {
        revocations.enforce(&setup::revocation(number));
    }
    let fresh = Revocations::new();
    group.bench_function("revocation, looked up again, twice", |b| {
        // The two sets have different epochs, so each call looks the token up.
        b.iter(|| (known.check_revocation(revocations).is_ok(), known.check_revocation(&fresh).is_ok()));
    });
}

/// The head of the request in HTTP/1.1.
fn to_http1<B>(request: &Request<B>) -> Vec<u8> {
    let mut head = format!("{} {} HTTP/1.1\r\n", request.method(), request.uri()).into_bytes();
    for (name, value) in request.headers() {
        head.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    [head.as_slice(), b"\r\n"].concat()
}

fn ids(c: &mut Criterion) {
    let mut group = c.benchmark_group("id");
    let (ids, token_id) = (RequestIds::new(), setup::family(1));
    let text = token_id.to_string();
    group.bench_function("request id to hex", |b| b.iter(|| HeaderValue::from_bytes(&ids.next().as_hex())));
    group.bench_function("token id to text", |b| b.iter(|| token_id.to_string()));
    group.bench_function("token id from text", |b| b.iter(|| TokenId::parse(&text)));
    let body = [0xa7; 41];
    let text = bearward::types::ids::to_base62(&body, 56);
    group.bench_function("refresh token's body to text", |b| b.iter(|| bearward::types::ids::to_base62(&body, 56)));
    group.bench_function("refresh token's body from text", |b| {
        b.iter(|| bearward::types::ids::from_base62::<41>(&text))
    });
}

fn rejections(c: &mut Criterion) {
    let mut group = c.benchmark_group("rejection");
    let id = RequestIds::new().next();
    for (name, reject) in [
        ("no token", Reject::from(Reason::NoToken)),
        ("expired", Reject::from(Reason::Expired)),
        ("scope missing", Reject::from(Reason::InsufficientScope).needs_scope("orders:read orders:write")),
    ] {
        group.bench_function(name, |b| {
            b.iter(|| respond::reject(&reject, Challenges::bearer(&REALM), id, RejectFormat::Json))
        });
        group.bench_function(format!("{name}, as a problem"), |b| {
            b.iter(|| respond::reject(&reject, Challenges::bearer(&REALM), id, RejectFormat::Problem))
        });
    }
}

/// Lines on a page when the writer takes it, 20 ms after the first line, at 25,000 requests per second.
const PAGE: u32 = 500;

/// The cost of a log line for the worker, and for the writer thread that writes it to the file.
fn access_log(c: &mut Criterion) {
    let mut group = c.benchmark_group("access_log");
    group.sample_size(20).warm_up_time(Duration::from_millis(10)).measurement_time(Duration::from_millis(100));
    group.sampling_mode(SamplingMode::Flat);
    let mint = Mint::new(Algorithm::ES256);
    let steps = Steps::new(&mint);
    let sent = SampleRequest::browser(&mint.token(0));
    for (name, format) in [("json", Format::Json), ("text", Format::Text)] {
        let metrics = Metrics::new(1).worker(0);
        let settings = AccessLogSettings {
            target: AccessLogTarget::File("/dev/null".into()),
            format,
            max_field_size: 256,
            rejections_per_second: 100,
        };
        let before: Vec<_> = Writer::tasks().collect();
        let log = AccessLog::open(&settings, slice::from_ref(&metrics)).expect("opens").expect("is on");
        let (buffer, writer) = (log.buffer(0), Writer::find_beside(&before));
        let push = |count: u64| {
            let record = || *steps.run(&mut sent.to_request()).expect("the request is accepted");
            let records: Vec<_> = (0..PAGE).map(|_| record()).collect();
            let before = writer.time();
            let start = Instant::now();
            records.iter().for_each(|record| buffer.push(record));
            let pushing = start.elapsed();
            let writing = writer.time_when_idle() - before;
            // Criterion chooses `count`; the time of a page is scaled to it.
            let scaled = |time: Duration| time.mul_f64(count as f64 / f64::from(PAGE));
            (scaled(pushing), scaled(writing))
        };
        group.bench_function(format!("{name}/write a line"), |b| b.iter_custom(|count| push(count).0));
        group.bench_function(format!("{name}/write it out"), |b| b.iter_custom(|count| push(count).1));
        assert_eq!(metrics.access_log_dropped.get(), 0, "no line was dropped");
    }
    let mut page = Vec::new();
    group.bench_function("json by serde/write a line", |b| {
        b.iter_custom(|count| {
            let record = || *steps.run(&mut sent.to_request()).expect("the request is accepted");
            let records: Vec<_> = (0..PAGE).map(|_| record()).collect();
            page.clear();
            let start = Instant::now();
            records.iter().for_each(|record| write_by_serde(record, &mut page));
            start.elapsed().mul_f64(count as f64 / f64::from(PAGE))
        });
    });
}

/// The line of a record as serde would write it: what the gateway's own writer is measured against.
#[derive(Serialize)]
struct SerdeLine<'r> {
    time: &'r str,
    request_id: RequestId,
    client: Option<IpAddr>,
    method: &'r str,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'r str>,
    path: &'r str,
    protocol: &'r str,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    observed: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    issuer: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_id: Option<TokenId>,
    duration_us: u64,
    sent: u64,
    complete: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<Cow<'r, str>>,
}

/// The text of the time is cached, as in the gateway. The path is not searched for tokens, which the gateway does.
fn write_by_serde(record: &Record, page: &mut Vec<u8>) {
    let caller = record.caller.as_deref();
    let line = SerdeLine {
        time: "2026-11-20T23:05:21.042Z",
        request_id: record.request_id,
        client: record.client.map(|client| client.to_canonical()),
        method: record.method.as_str(),
        host: record.host.as_ref().and_then(|host| host.to_str().ok()),
        path: record.uri.path(),
        protocol: "HTTP/1.1",
        status: record.status,
        reason: record.rejected.as_ref().map(|reject| reject.reason.code()),
        observed: record.observed.as_ref().map(|reject| reject.reason.code()),
        detail: record.rejected.as_ref().map(|reject| &*reject.detail),
        route: record.route.as_deref(),
        upstream: record.upstream.as_ref().map(|upstream| &*upstream.name),
        issuer: caller.map(|caller| &*caller.issuer),
        subject: caller.map(|caller| &*caller.subject),
        token_id: record.token_id.or(caller.and_then(|caller| caller.family)),
        duration_us: u64::try_from(record.duration.as_micros()).unwrap_or(u64::MAX),
        sent: record.sent,
        complete: record.complete,
        ended: record.ended.map(CloseReason::code),
        user_agent: record.user_agent.as_ref().map(|agent| String::from_utf8_lossy(agent.as_bytes())),
    };
    serde_json::to_writer(&mut *page, &line).expect("writing to memory does not fail");
    page.push(b'\n');
}

/// The log's writer thread in /proc.
struct Writer(PathBuf);

impl Writer {
    /// Finds the thread by its name. The name appears shortly after the start, so this repeats the search. Threads in
    /// `before` belong to other logs: a writer thread outlives its dropped log for a moment.
    fn find_beside(before: &[PathBuf]) -> Writer {
        let is_writer =
            |task: &PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "access-log");
        let find = || Writer::tasks().find(|task| !before.contains(task) && is_writer(task));
        Writer(iter::repeat_with(find).flatten().next().expect("endless"))
    }

    fn tasks() -> impl Iterator<Item = PathBuf> {
        fs::read_dir("/proc/self/task").expect("Linux").flatten().map(|task| task.path())
    }

    /// CPU time of the thread so far.
    fn time(&self) -> Duration {
        let schedstat = fs::read_to_string(self.0.join("schedstat")).expect("the kernel keeps statistics");
        Duration::from_nanos(schedstat.split(' ').next().expect("three numbers").parse().expect("a number"))
    }

    /// CPU time after the last line is written. The writer starts 20 ms after the first record.
    fn time_when_idle(&self) -> Duration {
        thread::sleep(Duration::from_millis(30));
        let mut before = self.time();
        loop {
            thread::sleep(Duration::from_millis(10));
            let now = self.time();
            if now == before {
                return now;
            }
            before = now;
        }
    }
}

criterion_group!(benches, pipeline, each_step, limits, ids, rejections, access_log);
criterion_main!(benches);
