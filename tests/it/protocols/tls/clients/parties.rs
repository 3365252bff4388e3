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
