//! The attacks. Each is defined by what its connections send first and what they send after that.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use crate::gateway::Gateway;
use crate::{Outcome, client};

pub const NAMES: [&str; 28] = [
    "slow-heads",
    "slow-bodies",
    "no-reading",
    "connections",
    "idle",
    "ten-addresses",
    "in-flight",
    "handshakes",
    "large-heads",
    "endless-heads",
    "many-headers",
    "long-uris",
    "large-bodies",
    "lingering",
    "over-rate",
    "forged",
    "guesses",
    "log-lines",
    "authorizations",
    "registrations",
    "documents",
    "ping",
    "settings",
    "priority",
    "resets",
    "continuation",
    "empty-data",
    "streams",
];

pub struct Attack {
    address: SocketAddr,
    connections: usize,
    /// The connections are spread over this many addresses.
    addresses: u8,
    opening: Vec<u8>,
    behavior: Behavior,
    uploads: bool,
}

/// Limits that some of the attacks exceed and the honest client does not. The upload rate of an address is its
/// `[[rate]]` times this body size. With bodies of 1 MiB that would be 400 MiB/s, and the bench would measure the
/// machine.
pub const LIMITS: &str = "body_size = \"64KiB\"";
pub const ROUTES: &str = "\
[[route]]
path = \"/orders/\"
upstream = \"origin\"
[[route.rate]]
per = \"subject\"
requests = 1
window = \"1h\"
[[route]]
path = \"/login\"
upstream = \"origin\"
public = true
login = true
[[route]]
path = \"/signin\"
upstream = \"origin\"
public = true
login = \"cookie\"
[[route]]
path = \"/mcp\"
upstream = \"origin\"
resource = true
[oauth]
login_page = \"/signin\"
registration = [\"loopback\"]
client_documents = [\"localhost\"]
[[oauth.client]]
client_id = \"cli\"
client_auth = \"none\"
redirect_uris = [\"http://127.0.0.1/callback\"]
";

/// What a connection does after its opening.
enum Behavior {
    /// Sends this every 100 ms. The connections are spread over these 100 ms.
    Drip(&'static [u8]),
    /// As `Drip`, but reads no responses, so it goes on after the gateway has closed its direction.
    DripUnread(&'static [u8]),
    /// Sends nothing and stays open.
    Stay,
    /// Sends these pieces as fast as the gateway takes them. The argument is the number of the piece.
    Flood(Box<dyn Fn(u32) -> Vec<u8> + Send + Sync>),
    /// Sends this piece repeatedly like `Flood`, but reads no responses.
    FloodUnread(Vec<u8>),
    /// Closes the connection and opens the next.
    Disconnect,
}

const GET: &str = "GET /public/ HTTP/1.1\r\nHost: localhost\r\n";

impl Attack {
    pub fn by_name(name: &str, gateway: &Gateway, token: &str) -> Outcome<Attack> {
        let address = gateway.target(false).address;
        let attack = |connections, opening: &[u8], behavior| Attack {
            address,
            connections,
            addresses: 1,
            opening: opening.into(),
            behavior,
            uploads: false,
        };
        let repeat = |piece: Vec<u8>| Behavior::Flood(Box::new(move |_| piece.clone()));
        let flood = |frame: Vec<u8>| repeat(frame.repeat(100));
        let of_stream = |say: fn(u32) -> Vec<u8>| {
            Behavior::Flood(Box::new(move |turn| (0..50).flat_map(|one| say(2 * (50 * turn + one) + 1)).collect()))
        };
        let hello = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(4, 0, 0, &[])].concat();
        let after_hello = |more: Vec<u8>| [hello.clone(), more].concat();
        let block = header_block();
        Ok(match name {
            "slow-heads" => attack(300, format!("{GET}X: ").as_bytes(), Behavior::Drip(b"x")),
            "slow-bodies" => {
                let post = "POST /public/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n";
                attack(300, post.as_bytes(), Behavior::Drip(b"x"))
            }
            "no-reading" => attack(100, &[], Behavior::FloodUnread(format!("{GET}\r\n").repeat(100).into_bytes())),
            "connections" => attack(1, &[], Behavior::Disconnect),
            "idle" => attack(900, format!("{GET}\r\n").as_bytes(), Behavior::Stay),
            // Requests sent before the first response wait at the gateway. When it rejects one, the next takes its
            // place.
            // As many connections as the gateway accepts in all.
            "ten-addresses" => {
                let never = b"GET /public/never HTTP/1.1\r\nHost: localhost\r\n\r\n";
                Attack { addresses: 10, ..attack(10_000, never, Behavior::Stay) }
            }
            "in-flight" => attack(300, &[], Behavior::Drip(b"GET /public/never HTTP/1.1\r\nHost: localhost\r\n\r\n")),
            "handshakes" => {
                let target = gateway.target(true);
                let config = target.tls.ok_or("no TLS")?;
                let mut client = ClientConnection::new(config, ServerName::try_from("localhost")?)?;
                let mut hello = Vec::new();
                client.write_tls(&mut hello)?;
                Attack { address: target.address, ..attack(1, &hello, Behavior::Disconnect) }
            }
            "large-heads" => {
                let head = format!("{GET}X: {}\r\n\r\n", "x".repeat(15_000)).into_bytes();
                attack(4, &[], repeat(head))
            }
            "endless-heads" => attack(4, format!("{GET}X: ").as_bytes(), repeat([b'x'; 4096].to_vec())),
            "many-headers" => attack(4, &[], repeat(format!("{GET}{}\r\n", "X: 1\r\n".repeat(150)).into_bytes())),
            "long-uris" => {
                let path = "x".repeat(9_000);
                attack(4, &[], repeat(format!("GET /public/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes()))
            }
            "large-bodies" => {
                let post = "POST /public/never HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
                attack(4, post.as_bytes(), repeat(format!("4000\r\n{}\r\n", "x".repeat(0x4000)).into_bytes()))
            }
            // Rejected uploads that go on. The honest client uploads too: see `Attack::uploads`.
            "lingering" => {
                let post = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n";
                let opening = [post.as_bytes(), &[b'x'; 70_000]].concat();
                Attack { uploads: true, ..attack(300, &opening, Behavior::DripUnread(b"x")) }
            }
            "over-rate" => {
                let request =
                    format!("GET /orders/ HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
                attack(4, &[], repeat(request.into_bytes()))
            }
            "forged" => {
                let unsigned = token.rsplit_once('.').ok_or("no token")?.0.to_owned();
                let request = move |turn| {
                    let signature = format!("{turn:08}").repeat(11)[..86].to_owned();
                    format!("GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {unsigned}.{signature}\r\n\r\n")
                };
                attack(4, &[], Behavior::Flood(Box::new(move |turn| request(turn).into_bytes())))
            }
            // Passwords at a captured login. `throttle.failures` lets twenty of each address reach the backend.
            "guesses" => {
                let body = "{\"user\":\"alice\",\"password\":\"guess\"}";
                let head = "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
                let guess = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
                attack(376, &[], repeat(guess.into_bytes()))
            }
            "log-lines" => {
                // HPACK: the first request puts a long User-Agent into the table, and each further one names it with
                // one byte. Each is rejected, because it has no token.
                let indexed = |stream: u32| frame(1, 5, stream + 2, &[0x82, 0x84, 0x86, 0x80 | 63, 0x80 | 62]);
                attack(4, &after_hello(frame(1, 5, 1, &long_agent_block())), of_stream(indexed))
            }
            // The gateway seals each request into the URL of the consent page.
            "authorizations" => attack(4, &[], repeat(authorization("cli").into_bytes())),
            "registrations" => {
                let body = "{\"client_name\":\"A program\",\"redirect_uris\":[\"http://127.0.0.1/callback\"]}";
                let head =
                    "POST /oauth/register HTTP/1.1\r\nHost: gateway.example\r\nContent-Type: application/json\r\n";
                let register = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
                attack(4, &[], repeat(register.into_bytes()))
            }
            // Each request names another document, at a server that accepts connections and says nothing.
            "documents" => {
                let server = TcpListener::bind("127.0.0.1:0")?;
                let port = server.local_addr()?.port();
                let request = move |turn| {
                    let _ = &server;
                    authorization(&format!("https%3A%2F%2Flocalhost%3A{port}%2F{turn}"))
                };
                attack(4, &[], Behavior::Flood(Box::new(move |turn| request(turn).into_bytes())))
            }
            "ping" => attack(4, &hello, flood(frame(6, 0, 0, &[7; 8]))),
            "settings" => attack(4, &hello, flood(frame(4, 0, 0, &[]))),
            "priority" => attack(4, &hello, flood(frame(2, 0, 1, &[0, 0, 0, 0, 1]))),
            "resets" => {
                let reset =
                    |stream| [frame(1, 5, stream, &header_block()), frame(3, 0, stream, &[0, 0, 0, 8])].concat();
                attack(4, &hello, of_stream(reset))
            }
            "continuation" => attack(4, &after_hello(frame(1, 1, 1, &block)), flood(frame(9, 0, 1, &[]))),
            "empty-data" => attack(4, &after_hello(frame(1, 4, 1, &block)), flood(frame(0, 0, 1, &[]))),
            "streams" => attack(4, &hello, of_stream(|stream| frame(1, 5, stream, &header_block()))),
            other => return Err(format!("unknown attack `{other}`").into()),
        })
    }

    /// How many requests the honest client sends on one connection. New connections are what some attacks are against.
    pub fn requests_per_connection(&self) -> u64 {
        if self.addresses > 1 { 20 } else { u64::MAX }
    }

    /// Whether the honest client sends uploads without a token, each of which must get its 401.
    pub fn uploads(&self) -> bool {
        self.uploads
    }

    /// Attacks until `done`.
    pub fn run(&self, from: IpAddr, done: &AtomicBool) -> Sent {
        let attacker = |number: usize| Attacker::at(nth_address(from, number % usize::from(self.addresses)));
        let mut attackers: Vec<_> = (0..self.connections).map(attacker).collect();
        let mut attacks = 0;
        while !done.load(Ordering::Relaxed) {
            if matches!(self.behavior, Behavior::Drip(_) | Behavior::DripUnread(_) | Behavior::Stay) {
                for some in attackers.chunks_mut(self.connections.div_ceil(100)) {
                    attacks += send_pieces(some, self);
                    thread::sleep(Duration::from_millis(1));
                }
                continue;
            }
            let sent = send_pieces(&mut attackers, self);
            attacks += sent;
            if sent == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        Sent { attacks, bytes: attackers.iter().map(|attacker| attacker.bytes).sum() }
    }
}

/// A request of the authorization endpoint, as a browser sends it for this client.
fn authorization(client: &str) -> String {
    let challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
    let query = format!(
        "response_type=code&client_id={client}&redirect_uri=http%3A%2F%2F127.0.0.1%3A7%2Fcallback&state=x\
         &code_challenge={challenge}&code_challenge_method=S256"
    );
    format!("GET /oauth/authorize?{query} HTTP/1.1\r\nHost: gateway.example\r\n\r\n")
}

/// 127.0.1.1, 127.0.2.1 and so on for 127.0.1.1.
fn nth_address(from: IpAddr, number: usize) -> IpAddr {
    let IpAddr::V4(v4) = from else { return from };
    let [first, second, third, last] = v4.octets();
    IpAddr::from([first, second, third.wrapping_add(u8::try_from(number).unwrap_or_default()), last])
}

/// What an attacker has sent.
pub struct Sent {
    /// Pieces; for `connections`, connections.
    pub attacks: u64,
    pub bytes: u64,
}

/// Gives each attacker a turn. Returns the number of pieces sent.
fn send_pieces(attackers: &mut [Attacker], attack: &Attack) -> u64 {
    attackers.iter_mut().map(|attacker| attacker.turn(attack)).sum()
}

struct Attacker {
    from: IpAddr,
    /// `None` before the first turn, and after the gateway has closed the connection.
    stream: Option<TcpStream>,
    unsent: Vec<u8>,
    turn: u32,
    /// Bytes sent on all connections.
    bytes: u64,
}

impl Attacker {
    fn at(from: IpAddr) -> Attacker {
        Attacker { from, stream: None, unsent: Vec::new(), turn: 0, bytes: 0 }
    }

    /// Sends what is due. Returns 1 if a piece was sent completely, otherwise 0.
    fn turn(&mut self, attack: &Attack) -> u64 {
        let Some(stream) = &mut self.stream else {
            self.stream = connect(self.from, attack.address);
            (self.unsent, self.turn) = (attack.opening.clone(), 0);
            return 0;
        };
        let is_unread = matches!(attack.behavior, Behavior::DripUnread(_) | Behavior::FloodUnread(_));
        if !is_unread && !discard_input(stream) {
            self.stream = None;
            return 0;
        }
        if self.unsent.is_empty() {
            match &attack.behavior {
                Behavior::Drip(piece) | Behavior::DripUnread(piece) => self.unsent = piece.to_vec(),
                Behavior::Stay => return 0,
                Behavior::Flood(piece) => self.unsent = piece(self.turn),
                Behavior::FloodUnread(piece) => self.unsent = piece.clone(),
                Behavior::Disconnect => {}
            }
            self.turn += 1;
        }
        match stream.write(&self.unsent) {
            Ok(written) => {
                self.unsent.drain(..written);
                self.bytes += written as u64;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return 0,
            Err(_) => self.stream = None,
        }
        if matches!(attack.behavior, Behavior::Disconnect) {
            self.stream = None;
        }
        u64::from(self.unsent.is_empty())
    }
}

fn connect(from: IpAddr, address: SocketAddr) -> Option<TcpStream> {
    let stream = client::connect_from(Some(from), address).ok()?;
    stream.set_nonblocking(true).ok()?;
    Some(stream)
}

/// Discards received bytes. Returns false if the gateway has closed the connection.
fn discard_input(stream: &mut TcpStream) -> bool {
    let mut space = [0; 16 * 1024];
    match stream.read(&mut space) {
        Ok(read) => read > 0,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

/// An HTTP/2 frame (RFC 9113 section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// `GET http://a/public/`, without compression (RFC 7541 section 6.2.2).
fn header_block() -> Vec<u8> {
    let indexed = |index: u8, value: &str| [&[index, value.len() as u8], value.as_bytes()].concat();
    [indexed(2, "GET"), indexed(6, "http"), indexed(1, "a"), indexed(4, "/public/")].concat()
}

/// `GET http://localhost/` with a User-Agent of 3,900 bytes. The authority and the User-Agent go into the table (RFC 7541
/// section 6.2.1): the first entries, 63 and 62, of the next requests.
fn long_agent_block() -> Vec<u8> {
    let authority = [&[0x40 | 1, 9], b"localhost".as_slice()].concat();
    // The length in a prefix of seven bits (section 5.1): 127 + 61 + 29 * 128.
    let agent = [&[0x40 | 58, 127, 0x80 | 61, 29], [b'x'; 3_900].as_slice()].concat();
    [&[0x82, 0x84, 0x86], authority.as_slice(), &agent].concat()
}
