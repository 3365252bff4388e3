//! `[https]`: redirects and policies that cannot work.

use super::check;

#[test]
fn redirects_and_policies_are_checked() {
    check(&[
        (
            "[[listener]]\naddress = \"127.0.0.1:80\"\ntls = \"off\"\n[https]\nredirect = true",
            "https.redirect",
            (5, 12),
            "no request would be served",
        ),
        ("[https]\nredirect = \"yes\"", "https.redirect", (2, 12), "true or false"),
        ("[https]\nredirect_status = \"303\"", "https.redirect_status", (2, 19), "\"308\""),
        ("[https]\nredirect_port = 0", "https.redirect_port", (2, 17), "from 1 to 65535"),
        ("[https]\nhosts = [\"https://a.example\"]", "https.hosts[0]", (2, 10), "not a host name"),
        ("[https]\nhosts = [\"a.example:80\"]", "https.hosts[0]", (2, 10), "not a host name"),
        ("[https]\nhosts = [\"*.example\"]", "https.hosts[0]", (2, 10), "not a host name"),
        ("[https]\nhosts = [\"a\\r\\nb\"]", "https.hosts[0]", (2, 10), "not a host name"),
        ("[https]\nhsts_max_age = \"3651d\"", "https.hsts_max_age", (2, 16), "0s to 3650d"),
        ("[https]\nhsts_preload = true", "https.hsts_preload", (2, 16), "no effect here"),
        ("[https]\nhsts_include_subdomains = true", "https.hsts_include_subdomains", (2, 27), "no effect here"),
        (
            "[https]\nhsts_max_age = \"364d\"\nhsts_include_subdomains = true\nhsts_preload = true",
            "https.hsts_preload",
            (4, 16),
            "at least 365d",
        ),
        ("[https]\nhsts_max_age = \"365d\"\nhsts_preload = true", "https.hsts_preload", (3, 16), "at least 365d"),
    ]);
}

#[test]
fn a_trusted_proxy_may_be_the_one_with_tls() {
    let text = "[[listener]]\naddress = \"127.0.0.1:80\"\ntls = \"off\"\n[https]\nredirect = true\n\
                [forwarding]\ntrusted = [\"10.0.0.0/8\"]";
    assert!(super::parse(&super::with_upstream(text)).is_ok());
}
