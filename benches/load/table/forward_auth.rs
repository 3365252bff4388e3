//! `[forward_auth]`: what an answer to another proxy costs, with nginx and with Traefik in front. Beside it are the
//! answer of mod_auth_openidc to the same nginx, and what a request costs Traefik itself.

use std::time::Duration;

use bearward::tokens::jwt::Algorithm;

use super::line::{Line, is_at_most, median};
use super::side_by_side::REVOCATIONS;
use crate::Outcome;
use crate::bench::Bench;
use crate::drive::{Load, Pace, cpu_time, drive};
use crate::fronts::{self, Missing, Place};
use crate::gateway::{Gateway, Setup};
use crate::peers::Kind;
use crate::program::Program;
use crate::provider::{Provider, SIGNED_IN};

/// Maximum ratio of an answer of the gateway to what it is compared with.
const GOAL: f64 = 0.35;

/// The gateways, the proxies in front of the origin, and an endpoint of others.
struct Programs {
    /// nginx asks it, and the bench itself.
    original: Gateway,
    /// Traefik asks it.
    forwarded: Gateway,
    nginx: Result<Program, Missing>,
    /// Apache, and an nginx that asks it.
    apache: Result<[Program; 2], Missing>,
    /// One asks the gateway, the other one does not ask.
    traefik: Result<[Program; 2], Missing>,
}

/// Requests of one kind, and what each costs the processes.
struct Chain {
    load: Load,
    /// The process that the bench sends to.
    front: u32,
    /// The process that the front asks.
    asked: Option<u32>,
    /// CPU microseconds per request in each round.
    front_costs: Vec<f64>,
    asked_costs: Vec<f64>,
}

struct Chains {
    /// The bench asks the gateway.
    direct: Chain,
    /// nginx asks the gateway: with a token, and with the cookie of a sign-in.
    nginx: Option<[Chain; 2]>,
    /// nginx asks mod_auth_openidc, with the cookie of a sign-in.
    apache: Option<Chain>,
    /// Traefik asks the gateway; Traefik does not ask.
    traefik: Option<[Chain; 2]>,
}

pub fn lines(bench: &Bench<'_>, kinds: &[Kind]) -> Outcome<Vec<Line>> {
    let provider = Provider::start(bench.keys)?;
    let programs = Programs::start(bench, &provider)?;
    let mut chains = programs.chains(bench, &provider)?;
    for chain in chains.all() {
        chain.measure(bench.flags.warm_up())?;
    }
    for round in 1..=bench.flags.rounds {
        eprintln!("round {round} of {}: forward-auth", bench.flags.rounds);
        for chain in chains.all() {
            let (front, asked) = chain.measure(bench.flags.length())?;
            chain.front_costs.push(front);
            chain.asked_costs.push(asked);
        }
    }
    for missing in programs.missing() {
        println!("not measured: {missing}");
    }
    Ok(chains.lines(kinds.len()))
}

impl Programs {
    fn start(bench: &Bench<'_>, provider: &Provider<'_>) -> Outcome<Programs> {
        let gateway = |dialect: &str| {
            let asks = format!("[forward_auth]\npath = \"/auth\"\ndialect = \"{dialect}\"\nfrom = [\"127.0.0.1\"]\n");
            let more = provider.configuration() + &asks;
            Gateway::start(&Setup { workers: 1, revocations: REVOCATIONS, more: &more, ..bench.gateway() })
        };
        let (original, forwarded) = (gateway("x-original")?, gateway("x-forwarded")?);
        let address = |gateway: &Gateway| gateway.target(false).address;
        let flags = bench.flags;
        let place = Place { cpus: flags.gateway_cpus.as_deref(), origin: bench.origin, connections: flags.connections };
        let nginx = || fronts::nginx(place, address(&original), "");
        let apache = || {
            let apache = fronts::apache(place, provider)?;
            // A session belongs to the host at which it began.
            let nginx = fronts::nginx(place, apache.address, "proxy_set_header Host $host;")?;
            Ok([apache, nginx])
        };
        let traefik = || Ok([fronts::traefik(place, Some(address(&forwarded)))?, fronts::traefik(place, None)?]);
        Ok(Programs {
            nginx: if_there(fronts::find_nginx(), nginx)?,
            apache: if_there(fronts::find_nginx().and_then(|()| fronts::find_apache()), apache)?,
            traefik: if_there(fronts::find_traefik(), traefik)?,
            original,
            forwarded,
        })
    }

    fn missing(&self) -> Vec<Missing> {
        let missing = [self.nginx.as_ref().err(), self.apache.as_ref().err(), self.traefik.as_ref().err()];
        let mut missing: Vec<_> = missing.into_iter().flatten().copied().collect();
        // Apache is not measured without nginx.
        missing.dedup();
        missing
    }

    fn chains(&self, bench: &Bench<'_>, provider: &Provider<'_>) -> Outcome<Chains> {
        let gateway = self.original.target(false).address;
        let token = format!("Authorization: Bearer {}", bench.keys.tokens(Algorithm::ES256, 1)?.remove(0));
        let cookie = |address, host: &str, path| {
            let cookies = provider.sign_in(address, host, path)?;
            Outcome::Ok(format!("Cookie: theme=dark; {cookies}"))
        };
        let through = |front: &Program, path, field: &str, asked| {
            Chain::new(bench.repeated(front.address, path, field), front.pid(), asked)
        };
        let question = format!(
            "X-Original-Method: GET\r\nX-Original-Host: localhost\r\nX-Original-URI: /1k\r\n\
             X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\n{token}"
        );
        let nginx = self.nginx.as_ref().ok().map(|nginx| {
            let (asked, cookie) = (Some(self.original.pid()), cookie(gateway, "localhost", SIGNED_IN)?);
            Outcome::Ok([through(nginx, "/1k", &token, asked), through(nginx, SIGNED_IN, &cookie, asked)])
        });
        let apache = self.apache.as_ref().ok().map(|[apache, nginx]| {
            let cookie = cookie(apache.address, &format!("localhost:{}", apache.address.port()), "/")?;
            Outcome::Ok(through(nginx, SIGNED_IN, &cookie, Some(apache.pid())))
        });
        let traefik = self.traefik.as_ref().ok().map(|[asking, alone]| {
            [through(asking, "/1k", &token, Some(self.forwarded.pid())), through(alone, "/1k", &token, None)]
        });
        let direct = Chain::new(bench.repeated(gateway, "/auth", &question), self.original.pid(), None);
        Ok(Chains { direct, nginx: nginx.transpose()?, apache: apache.transpose()?, traefik })
    }
}

/// Starts programs that are installed.
fn if_there<P>(found: Result<(), Missing>, start: impl FnOnce() -> Outcome<P>) -> Outcome<Result<P, Missing>> {
    match found {
        Ok(()) => start().map(Ok),
        Err(missing) => Ok(Err(missing)),
    }
}

impl Chain {
    fn new(load: Load, front: u32, asked: Option<u32>) -> Chain {
        Chain { load, front, asked, front_costs: Vec::new(), asked_costs: Vec::new() }
    }

    /// CPU microseconds per request of the front and of the process that it asks.
    fn measure(&self, length: Duration) -> Outcome<(f64, f64)> {
        let asked = || self.asked.map_or(Ok(Duration::ZERO), cpu_time);
        let before = asked()?;
        let measured = drive(&self.load, Pace::ClosedLoop, length, self.front)?;
        let cost = (asked()?.saturating_sub(before)).as_secs_f64() * 1e6 / measured.responses.max(1) as f64;
        Ok((measured.cpu_micros_per_request(), cost))
    }
}

impl Chains {
    fn all(&mut self) -> impl Iterator<Item = &mut Chain> {
        let Chains { direct, nginx, apache, traefik } = self;
        let pairs = nginx.iter_mut().chain(traefik).flatten();
        [direct].into_iter().chain(pairs).chain(apache)
    }

    fn lines(&self, peers: usize) -> Vec<Line> {
        let line = |name: &str, costs: &[f64]| Line::alone(name, "CPU us/req", costs.to_vec(), peers);
        let answer = |name: &str, chain: &Chain, than: Option<(&str, &[f64])>| {
            let line = line(&format!("forward auth, an answer {name}"), &chain.asked_costs);
            let Some((peer, theirs)) = than else { return line };
            let ratio = median(&chain.asked_costs) / median(theirs);
            line.goal(ratio, format!("{GOAL:.2} x {peer}"), is_at_most(ratio, GOAL))
        };
        let openidc = self.apache.as_ref().map(|chain| ("mod_auth_openidc", &*chain.asked_costs));
        let traefiks = self.traefik.as_ref().map(|[asking, _]| ("Traefik itself", &*asking.front_costs));
        let mut lines = vec![line("forward auth, an answer to the bench, es256", &self.direct.front_costs)];
        if let Some([token, cookie]) = &self.nginx {
            lines.push(answer("to nginx, es256", token, traefiks));
            lines.push(line("that nginx itself", &token.front_costs));
            lines.push(answer("to nginx, a sign-in's cookie", cookie, openidc));
        }
        if let Some(apache) = &self.apache {
            lines.push(line("the same of mod_auth_openidc", &apache.asked_costs));
        }
        if let Some([asking, alone]) = &self.traefik {
            lines.push(answer("to Traefik, es256", asking, traefiks));
            lines.push(line("that Traefik itself", &asking.front_costs));
            lines.push(line("Traefik that does not ask", &alone.front_costs));
        }
        lines
    }
}
