//! Clients that others wrote: curl and the client of OpenSSL.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use rcgen::SanType;

use crate::support::certificates::Authority;
use crate::support::{Gateway, Upstream};

const ROUTES: &str = "[[route]]\npath = \"/\"\npublic = true\nclient_certificate = \"required\"\n\
                      [identity]\ncertificate_dns = \"X-Client-Dns\"\ncertificate_subject = \"X-Client-Subject\"\n";

fn gateway(upstream: &Upstream, authority: &Authority) -> Gateway {
    let gateway = Gateway::with_clients(upstream, authority, "client_certificate = \"required\"", ROUTES);
    let name = SanType::DnsName("orders.internal".try_into().expect("text"));
    authority.client(|params| params.subject_alt_names = vec![name]).write(gateway.path(), "orders");
    Authority::new().client(|_| {}).write(gateway.path(), "other");
    gateway
}

#[tokio::test]
async fn curl_authenticates_with_its_certificate() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let gateway = gateway(&upstream, &authority);
    let url = format!("https://localhost:{}/", gateway.tls_address().port());
    let curl = |arguments: Vec<String>| {
        let mut command = Command::new("curl");
        command.args(["-sS", "--cacert"]).arg(gateway.certificate()).args(["-w", "%{http_code}"]).args(arguments);
        let output = command.arg(&url).output().expect("curl");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let shown = |name: &str, more: &[&str]| {
        let file = |extension: &str| gateway.path().join(format!("{name}.{extension}")).display().to_string();
        let certificate = ["--cert".to_owned(), file("pem"), "--key".to_owned(), file("key")];
        certificate.into_iter().chain(more.iter().map(|more| (*more).to_owned())).collect::<Vec<_>>()
    };
    for more in [&["--http1.1"][..], &["--http2"], &["--tls-max", "1.2"], &["--tlsv1.3"]] {
        assert_eq!(curl(shown("orders", more)), (true, "hello200".to_owned()), "{more:?}");
        assert!(!curl(shown("other", more)).0, "{more:?}");
        assert!(!curl(more.iter().map(|more| (*more).to_owned()).collect()).0, "{more:?}");
    }
    assert_eq!(upstream.seen().len(), 4);
    for request in upstream.seen() {
        assert_eq!(request.header("x-client-dns"), Some("orders.internal"));
        assert_eq!(request.header("x-client-subject"), Some("CN=orders,O=Example"));
    }
}

/// nginx CVE-2025-23419: a session of a client with a certificate, and one of a listener that asks for none.
#[tokio::test]
async fn a_session_file_of_openssl_is_never_resumed() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let plain = "[[listener]]\naddress = \"127.0.0.1:0\"\ntls = \"self-signed\"\n";
    let keys = "client_certificate = \"required\"";
    let gateway = Gateway::with_clients(&upstream, &authority, keys, &format!("{ROUTES}{plain}"));
    authority.client(|_| {}).write(gateway.path(), "orders");
    let openssl = |address: std::net::SocketAddr, arguments: &[&str]| {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-ign_eof", "-connect", &address.to_string(), "-servername", "localhost"]);
        command.args(arguments).current_dir(gateway.path());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("openssl");
        let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let _ = child.stdin.take().expect("piped").write_all(request);
        String::from_utf8_lossy(&child.wait_with_output().expect("it is our child").stdout).into_owned()
    };
    let (asking, plain) = (gateway.tls_address(), gateway.running().addresses[2]);
    for version in ["-tls1_2", "-tls1_3"] {
        let with = [version, "-cert", "orders.pem", "-key", "orders.key"];
        let first = openssl(asking, &[&with[..], &["-sess_out", "own"]].concat());
        assert!(first.contains("New, TLSv1") && first.contains("HTTP/1.1 200 "), "{version}: {first}");
        // Without the certificate, and with it.
        let own = ["-sess_in", "own"];
        let has_session = gateway.path().join("own").exists();
        if has_session {
            let again = openssl(asking, &[&[version][..], &own].concat());
            assert!(!again.contains("Reused") && !again.contains("HTTP/1.1"), "{version}: {again}");
            let again = openssl(asking, &[&with[..], &own].concat());
            assert!(again.contains("New, TLSv1") && again.contains("HTTP/1.1 200 "), "{version}: {again}");
        }
        // The neighbour: the listener that asks for none resumes its own sessions.
        openssl(plain, &[version, "-sess_out", "other"]);
        let resumed = openssl(plain, &[version, "-sess_in", "other"]);
        assert!(resumed.contains("Reused, TLSv1"), "{version}: {resumed}");
        let stolen = openssl(asking, &[version, "-sess_in", "other"]);
        assert!(!stolen.contains("Reused") && !stolen.contains("HTTP/1.1"), "{version}: {stolen}");
    }
}

#[tokio::test]
async fn the_client_of_openssl_authenticates_with_its_certificate() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let gateway = gateway(&upstream, &authority);
    let openssl = |arguments: &[&str]| -> Output {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-quiet", "-ign_eof", "-connect", &gateway.tls_address().to_string(), "-CAfile"]);
        command.arg(gateway.certificate()).args(arguments).current_dir(gateway.path());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("openssl");
        let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        // It may have ended.
        let _ = child.stdin.take().expect("piped").write_all(request);
        child.wait_with_output().expect("it is our child")
    };
    for version in ["-tls1_2", "-tls1_3"] {
        let good = openssl(&[version, "-cert", "orders.pem", "-key", "orders.key"]);
        let text = String::from_utf8_lossy(&good.stdout).into_owned();
        assert!(text.starts_with("HTTP/1.1 200 "), "{version}: {text} {}", String::from_utf8_lossy(&good.stderr));
        for bad in [&[version][..], &[version, "-cert", "other.pem", "-key", "other.key"]] {
            let rejected = openssl(bad);
            let errors = String::from_utf8_lossy(&rejected.stderr).into_owned();
            assert!(rejected.stdout.is_empty() && errors.contains("alert"), "{bad:?}: {errors}");
        }
    }
    assert_eq!(upstream.seen().len(), 2);
}
