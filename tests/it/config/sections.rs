//! Wrong values in each section, and similar values that are valid.

use super::{check, parse, with_upstream};

/// The rest of a listener. It starts at line 3.
macro_rules! listener {
    ($rest:literal) => {
        concat!("[[listener]]\naddress = \"0.0.0.0:1\"\n", $rest)
    };
}

#[test]
fn listeners_and_the_admin_address_are_checked() {
    check(&[
        ("[[listener]]\ntls = \"off\"", "listener[0].address", (1, 1), "`address` is missing"),
        ("[[listener]]\naddress = \":8443\"", "listener[0].address", (2, 11), "for all IPv4 addresses"),
        ("[[listener]]\naddress = \"0.0.0.0\"", "listener[0].address", (2, 11), "\"0.0.0.0:8443\""),
        ("[[listener]]\naddress = \"::1\"", "listener[0].address", (2, 11), "\"[::1]:8443\""),
        ("[[listener]]\naddress = \"localhost:80\"", "listener[0].address", (2, 11), "\"127.0.0.1:80\""),
        ("[[listener]]\naddress = \"https://1.2.3.4\"", "listener[0].address", (2, 11), "remove the scheme"),
        (
            "[[listener]]\naddress = \"0.0.0.0:1\"\ntls = \"on\"",
            "listener[0].tls",
            (3, 7),
            "expected \"self-signed\", \"off\" or {",
        ),
        (
            "[[listener]]\naddress = \"0.0.0.0:1\"\ntls = \"selfsigned\"",
            "listener[0].tls",
            (3, 7),
            "did you mean \"self-signed\"?",
        ),
        ("[[listener]]\naddress = \"0.0.0.0:1\"\ntls = []", "listener[0].tls", (3, 7), "the list is empty"),
        (
            "[[listener]]\naddress = \"0.0.0.0:1\"\n[[listener]]\naddress = \"0.0.0.0:1\"",
            "listener[1].address",
            (4, 11),
            "two listeners have the address 0.0.0.0:1",
        ),
        (
            "[[listener]]\naddress = \"0.0.0.0:1\"\n[[listener]]\naddress = \"127.0.0.1:1\"",
            "listener[1].address",
            (4, 11),
            "overlap",
        ),
        (
            "[[listener]]\naddress = \"0.0.0.0:1\"\nproxy_protocol = true",
            "listener[0].proxy_protocol",
            (3, 18),
            "no proxy is trusted",
        ),
        (
            listener!("public_url = \"api.example\""),
            "listener[0].public_url",
            (3, 14),
            "write the URL at which clients",
        ),
        (
            listener!("public_url = \"ftp://api.example\""),
            "listener[0].public_url",
            (3, 14),
            "expected http:// or https://",
        ),
        (listener!("public_url = \"https://me@api.example\""), "listener[0].public_url", (3, 14), "remove everything"),
        (listener!("public_url = \"https://api.example/?a\""), "listener[0].public_url", (3, 14), "remove everything"),
        (
            listener!("public_url = \"https://api.example/a/../b\""),
            "listener[0].public_url",
            (3, 14),
            "change the path",
        ),
        (listener!("public_url = 1"), "listener[0].public_url", (3, 14), "this is a number"),
        ("[admin]\naddress = \"127.0.0.1:8443\"", "admin.address", (2, 11), "overlap"),
        ("[admin]\naddress = \"0.0.0.0:9443\"", "admin.address", (2, 11), "tls = \"off\""),
        ("[admin]\nsocket = \"/none/admin\"", "admin.socket", (2, 10), "does not exist"),
        (
            concat!(
                "[admin]\nsocket = \"/tmp/0123456789/0123456789/0123456789/0123456789/0123456789/",
                "0123456789/0123456789/0123456789/0123456789/0123456789\""
            ),
            "admin.socket",
            (2, 10),
            "at most 107 bytes",
        ),
        ("[admin]\nhosts = [\"a b\"]", "admin.hosts[0]", (2, 10), "not a host name"),
        ("[admin]\nconnections = 0", "admin.connections", (2, 15), "from 1 to 100000"),
        ("[admin]\nstreams = 1001", "admin.streams", (2, 11), "from 0 to 1000"),
        ("[admin]\nconnections_per_address = 100001", "admin.connections_per_address", (2, 27), "from 0 to 100000"),
        ("[admin]\nrecent_rejections = 65537", "admin.recent_rejections", (2, 21), "from 0 to 65536"),
        ("[admin]\nsession_lifetime = \"8d\"", "admin.session_lifetime", (2, 20), "1m to 7d"),
        ("[admin]\nwrong_tokens = 10001", "admin.wrong_tokens", (2, 16), "from 0 to 10000"),
        ("[admin]\ntoken_file = \"\"", "admin.token_file", (2, 14), "the path is empty"),
        ("[admin]\ntoken_env = \"s3cret!\"", "admin.token_env", (2, 13), "name the variable"),
        ("[admin]\ntoken_env = \"BEARWARD_NOT_SET\"", "admin.token_env", (2, 13), "is not set"),
        ("[admin]\ntoken_file = \"a\"\ntoken_env = \"PATH\"", "admin.token_env", (3, 13), "two sources"),
    ]);
}

#[test]
fn rates_are_checked() {
    check(&[
        ("[[rate]]\nrequests = 1", "rate[0].per", (1, 1), "`per` is missing"),
        ("[[rate]]\nper = \"subject\"", "rate[0].requests", (1, 1), "`requests` is missing"),
        ("[[rate]]\nper = \"ip\"\nrequests = 1", "rate[0].per", (2, 7), "\"address\", \"subject\", \"route\""),
        ("[[rate]]\nper = \"route\"\nrequests = 0", "rate[0].requests", (3, 12), "from 1 to 1000000"),
        ("[[rate]]\nper = \"route\"\nrequests = 1\nwindow = \"1ms\"", "rate[0].window", (4, 10), "1s to 1d"),
        ("[[rate]]\nper = \"route\"\nrequests = 1\nname = \"a b\"", "rate[0].name", (4, 8), "without spaces"),
        ("[[rate]]\nper = \"route\"\nrequests = 1\nburst = 0", "rate[0].burst", (4, 9), "from 1 to 1000000"),
        (
            "[[rate]]\nper = \"route\"\nrequests = 1\nshare = \"all\"",
            "rate[0].share",
            (4, 9),
            "\"replica\", \"cluster\"",
        ),
    ]);
}

#[test]
fn traces_need_a_secure_collector() {
    check(&[
        ("[trace]\nendpoint = \"a\"", "trace.endpoint", (2, 12), "write the complete URL"),
        ("[trace]\nendpoint = \"http://a/\"", "trace.endpoint", (2, 12), "allow_http = true"),
        ("[trace]\nendpoint = \"https://a:b@c/\"", "trace.endpoint", (2, 12), "authorization_file"),
        ("[trace]\nendpoint = \"https://a/#b\"", "trace.endpoint", (2, 12), "remove `#` and the text after it"),
        ("[trace]\nallow_http = true", "trace.allow_http", (2, 14), "add `endpoint"),
        ("[trace]\nendpoint = \"https://a/\"\nsample = 0.01", "trace.sample", (3, 10), "a string in quotes"),
        ("[trace]\nendpoint = \"https://a/\"\nsample = \"101%\"", "trace.sample", (3, 10), "from 0% to 100%"),
        ("[trace]\nendpoint = \"https://a/\"\nerrors = 1", "trace.errors", (3, 10), "true or false"),
        ("[trace]\nendpoint = \"https://a/\"\nper_second = 100001", "trace.per_second", (3, 14), "100000"),
        ("[trace]\nendpoint = \"https://a/\"\nqueue_size = \"1KiB\"", "trace.queue_size", (3, 14), "64KiB"),
        ("[trace]\nendpoint = \"https://a/\"\nca_file = \"none\"", "trace.ca_file", (3, 11), "none"),
        (
            "[trace]\nendpoint = \"https://a/\"\nauthorization_file = \"none\"",
            "trace.authorization_file",
            (3, 22),
            "none",
        ),
    ]);
    assert!(parse(&with_upstream("[trace]\nsample = \"5%\"")).expect("valid").trace.is_none());
    let read = |keys: &str| {
        let text = format!("[trace]\nendpoint = \"http://127.0.0.1:4318/v1/traces\"\n{keys}");
        parse(&with_upstream(&text)).expect("valid").trace.expect("a collector")
    };
    let defaults = "sample = \"1%\"\nerrors = true\nper_second = 100\nqueue_size = \"4MiB\"\nallow_http = false";
    assert_eq!(read(""), read(defaults));
    assert_ne!(read(""), read("sample = \"0.1%\""));
}

#[test]
fn audit_events_have_one_destination() {
    check(&[
        ("[audit]\nfile = \"stdout\"", "audit.file", (2, 8), "use a file or `webhook`"),
        ("[audit]\nfile = \"none/audit.jsonl\"", "audit.file", (2, 8), "mkdir -p"),
        ("[audit]\nfile = 1", "audit.file", (2, 8), "this is a number"),
        ("[audit]\nwebhook = \"https://a/\"\nfile = \"a\"", "audit.file", (3, 8), "two destinations"),
        ("[audit]\nwebhook = \"a\"", "audit.webhook", (2, 11), "write the complete URL"),
        ("[audit]\nwebhook = \"http://a/\"", "audit.webhook", (2, 11), "webhook_allow_http = true"),
        ("[audit]\nwebhook = \"https://a:b@c/\"", "audit.webhook", (2, 11), "webhook_authorization_file"),
        ("[audit]\nwebhook = \"https://a/#b\"", "audit.webhook", (2, 11), "remove `#` and the text after it"),
        ("[audit]\nwebhook_allow_http = true", "audit.webhook_allow_http", (2, 22), "has no effect without a webhook"),
        (
            "[audit]\nwebhook = \"https://a/\"\nwebhook_authorization_file = \"none\"",
            "audit.webhook_authorization_file",
            (3, 30),
            "does not exist",
        ),
        ("[audit]\noutbox = 999", "audit.outbox", (2, 10), "1000"),
    ]);
    for right in ["file = \"off\"", "webhook = \"https://a/b?c\"", "webhook = \"http://127.0.0.1:9/\"", "outbox = 1000"]
    {
        parse(&with_upstream(&format!("[audit]\n{right}"))).expect(right);
    }
}

#[test]
fn token_settings_are_checked() {
    check(&[
        ("[tokens]\nissuer = \"gateway\"", "tokens.issuer", (2, 10), "expected https:// and a host"),
        ("[tokens]\nissuer = \"https://a/?b\"", "tokens.issuer", (2, 10), "remove `?` or `#`"),
        ("[tokens]\naudience = []", "tokens.audience", (2, 12), "the list is empty"),
        ("[tokens]\naudience = [\"a\", \"a\"]", "tokens.audience[1]", (2, 18), "twice"),
        ("[tokens]\nalgorithm = \"HS256\"", "tokens.algorithm", (2, 13), "\"ES256\", \"ES384\", \"EdDSA\", \"RS256\""),
        ("[tokens]\naccess_lifetime = \"30s\"", "tokens.access_lifetime", (2, 19), "expected 1m to 1d"),
        ("[tokens]\nrefresh_grace = \"61s\"", "tokens.refresh_grace", (2, 17), "expected 0s to 1m"),
        ("[tokens]\nlifetime_jitter = 51", "tokens.lifetime_jitter", (2, 19), "from 0 to 50"),
        ("[tokens]\nclock_skew = \"6m\"", "tokens.clock_skew", (2, 14), "expected 0s to 5m"),
        ("[tokens]\nrefresh_idle = \"31d\"", "tokens.refresh_idle", (2, 16), "expected at most 30d"),
        ("[tokens]\nkey_lifetime = \"59m\"", "tokens.key_lifetime", (2, 16), "expected 1h to"),
        ("[tokens]\nkey_ahead = \"59s\"", "tokens.key_ahead", (2, 13), "expected 1m to"),
        ("[tokens]\nkey_ahead = \"91d\"", "tokens.key_ahead", (2, 13), "longer than key_lifetime (90d)"),
        ("[tokens]\nkey_lifetime = \"2h\"", "tokens.key_lifetime", (2, 16), "key_ahead (1d) is longer"),
        ("[tokens]\nrefresh_absolute = \"1d\"", "tokens.refresh_absolute", (2, 20), "expected at least 7d"),
        ("[tokens]\naccess_lifetime = \"2h\"\nrefresh_idle = \"1h\"", "tokens.access_lifetime", (2, 19), "at most 1h"),
        ("[tokens]\nexpires_at = \"millis\"", "tokens.expires_at", (2, 14), "did you mean \"milliseconds\"?"),
    ]);
}

#[test]
fn identity_headers_and_the_access_log_are_checked() {
    check(&[
        ("[identity]\nsubject = \"X Auth\"", "identity.subject", (2, 11), "not a header name"),
        ("[identity]\nsubject = \"Authorization\"", "identity.subject", (2, 11), "reserved for another purpose"),
        ("[identity]\nsubject = \"Transfer_Encoding\"", "identity.subject", (2, 11), "reserved for another purpose"),
        ("[identity]\nsubject = \"Host\"", "identity.subject", (2, 11), "reserved for another purpose"),
        ("[identity]\nsubject = \"Content-Length\"", "identity.subject", (2, 11), "reserved for another purpose"),
        ("[identity]\nsubject = \"X-Forwarded-For\"", "identity.subject", (2, 11), "reserved for another purpose"),
        ("[identity]\nsubject = \"X-Forwarded-Users\"", "identity.subject", (2, 11), "reserved for another purpose"),
        (
            "[identity]\nsubject = \"X-Forwarded-User\"\nissuer = \"X_Forwarded_User\"",
            "identity.issuer",
            (3, 10),
            "the same header",
        ),
        ("[identity]\nscope = \"x_auth_subject\"", "identity.scope", (2, 9), "`scope` and `subject`"),
        ("[identity]\nsubject = \"X-Who\"\nissuer = \"x-WHO\"", "identity.issuer", (3, 10), "the same header"),
        ("[identity]\nissuer = \"x.auth.scope\"", "identity.issuer", (2, 10), "the same header"),
        ("[[identity.claim]]\nheader = \"X-A\"", "identity.claim[0].pointer", (1, 1), "`pointer` is missing"),
        ("[[identity.claim]]\npointer = \"/a\"", "identity.claim[0].header", (1, 1), "`header` is missing"),
        ("[[identity.claim]]\npointer = \"a.b\"\nheader = \"X-A\"", "identity.claim[0].pointer", (2, 11), "\"/a/b\""),
        (
            "[[identity.claim]]\npointer = \"/a\"\n\
        header = \"\"",
            "identity.claim[0].header",
            (3, 10),
            "not a header name",
        ),
        (
            "[[identity.claim]]\npointer = \"/a\"\nheader = \"Cookie\"",
            "identity.claim[0].header",
            (3, 10),
            "reserved for another purpose",
        ),
        (
            "[[identity.claim]]\npointer = \"/a\"\nheader = \"X_Auth_Scope\"",
            "identity.claim[0].header",
            (3, 10),
            "`scope` has",
        ),
        (
            "[[identity.claim]]\npointer = \"/a\"\nheader = \"X-A\"\n[[identity.claim]]\npointer = \"/b\"\n\
             header = \"x_a\"",
            "identity.claim[1].header",
            (6, 10),
            "two claims",
        ),
        ("[forwarding]\ntrusted = \"10.0.0.0/8\"", "forwarding.trusted", (2, 11), "write it in brackets"),
        ("[forwarding]\ntrusted = [\"proxy\"]", "forwarding.trusted[0]", (2, 12), "is not a network"),
        ("[forwarding]\ntrusted = [\"10.0.0.0/33\"]", "forwarding.trusted[0]", (2, 12), "is not a network"),
        ("[forwarding]\ntrusted = [\"0.0.0.0/0\"]", "forwarding.trusted[0]", (2, 12), "contains all addresses"),
        ("[forwarding]\ntrusted = [\"::/0\"]", "forwarding.trusted[0]", (2, 12), "contains all addresses"),
        (
            "[forwarding]\ntrusted = [\"10.1.2.3/8\"]",
            "forwarding.trusted[0]",
            (2, 12),
            "\"10.0.0.0/8\", or the address, \"10.1.2.3\"",
        ),
        ("[forwarding]\ntrusted = [\"10.0.0.1\", \"10.0.0.1/32\"]", "forwarding.trusted[1]", (2, 24), "twice"),
        ("[forwarding]\nx_real_ip = 1", "forwarding.x_real_ip", (2, 13), "a number"),
        ("[forwarding]\nremove = [\"X A\"]", "forwarding.remove[0]", (2, 11), "is not a header name"),
        ("[forwarding]\nremove = [\"X*\"]", "forwarding.remove[0]", (2, 11), "is not a header name"),
        ("[forwarding]\nremove = [\"Content-*\"]", "forwarding.remove[0]", (2, 11), "would remove content-"),
        ("[forwarding]\nremove = [\"Authorization\"]", "forwarding.remove[0]", (2, 11), "would remove authorization"),
        ("[forwarding]\nremove = [\"X-A\", \"x_a\"]", "forwarding.remove[1]", (2, 18), "twice"),
        ("[forwarding]\nkeep = [\"X-Tenant\"]", "forwarding.keep[0]", (2, 9), "is not removed by default"),
        ("[forwarding]\nkeep = [\"X-Auth-Subject\"]", "forwarding.keep[0]", (2, 9), "must not set X-Auth-Subject"),
        ("[forwarding]\nkeep = [\"x_forwarded_for\"]", "forwarding.keep[0]", (2, 9), "must not set x_forwarded_for"),
        ("[forwarding]\nkeep = [\"Upgrade\"]", "forwarding.keep[0]", (2, 9), "must not set Upgrade"),
        (
            "[identity]\nsubject = \"Remote-User\"\n[forwarding]\nkeep = [\"Remote-User\"]",
            "forwarding.keep[0]",
            (4, 9),
            "must not set Remote-User",
        ),
        (
            "[forwarding]\nx_real_ip = true\nkeep = [\"X-Real-IP\"]",
            "forwarding.keep[0]",
            (3, 9),
            "must not set X-Real-IP",
        ),
        ("[access_log]\nformat = \"xml\"", "access_log.format", (2, 10), "expected \"json\", \"text\""),
        ("[access_log]\nmax_field_size = \"63B\"", "access_log.max_field_size", (2, 18), "64B to 4KiB"),
        ("[access_log]\nmax_field_size = \"5KiB\"", "access_log.max_field_size", (2, 18), "64B to 4KiB"),
        ("[access_log]\nrejections_per_second = 100001", "access_log.rejections_per_second", (2, 25), "0 to 100000"),
        ("[access_log]\nfile = \"no/such/folder/a.log\"", "access_log.file", (2, 8), "mkdir -p"),
        ("[access_log]\nfile = \"src\"", "access_log.file", (2, 8), "is a folder"),
        ("[store]\nsqlite = \"no/such/folder/a.db\"", "store.sqlite", (2, 10), "does not exist"),
    ]);
}

#[test]
fn values_close_to_errors_are_accepted() {
    for text in [
        "listener = []\nroute = []\nissuer = []",
        "[[listener]]\naddress = \"0.0.0.0:1\"\n[[listener]]\naddress = \"[::]:1\"\n[[listener]]\n\
         address = \"127.0.0.1:2\"",
        "[[listener]]\naddress = \"127.0.0.1:0\"\n[[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\n\
         address = \"127.0.0.1:0\"",
        "[admin]\naddress = \"0.0.0.0:9443\"\ntls = \"off\"",
        "[admin]\naddress = \"[::1]:9443\"\ntoken_env = \"PATH\"",
        "[tokens]\naccess_lifetime = \"1h\"\nrefresh_idle = \"60m\"\nrefresh_absolute = \"3600s\"\n\
         refresh_grace = \"0s\"",
        "[tokens]\nkey_lifetime = \"1h\"\nkey_ahead = \"60m\"",
        "[[route]]\npath = \"/a\"\n[[route]]\npath = \"/a/\"\n[[route]]\npath = \"/a\"\nhost = \"b\"",
        "[[route]]\npath = \"/a\"\nmethods = [\"GET\"]\n[[route]]\npath = \"/a\"\nmethods = [\"POST\"]\npublic = true",
        "[[route]]\npath = \"/tokens\"\nscopes = []\npublic = true\n[[route]]\npath = \"/user/refreshed\"",
        "[[route]]\npath = \"/\"\ntoken_from = [\"cookie:__Host-a\"]\n\
         origins = [\"http://[::1]:8080\", \"https://a/\"]\ntoken = \"drop\"",
        "[[route]]\npath = \"/\"\norigins = []\n[[route]]\npath = \"/p\"\npublic = true\ntoken = \"drop\"",
        "[[route]]\npath = \"/\"\nany_scope = [\"a\"]\n[[route.claim]]\npointer = \"/a/0\"\n\
         one_of = [\"x\", 1, true]\n[[route.claim]]\npointer = \"/~0~1\"\npresent = true",
        "[[route]]\npath = \"/\"\nhost = \"[::1]\"\n[[route]]\npath = \"/\"\nhost = \"127.0.0.1\"",
        "[[upstream]]\nservers = [\"https://[::1]:1/\", \"http://my_service.internal\"]\nprotocol = \"h2\"",
        "[identity]\nsubject = \"X-Who\"\nscope = \"\"\ntoken_id = \"\"\nissuer = \"X-Auth-Subject\"",
        "[identity]\nsubject = \"X-Forwarded-User\"\n[[identity.claim]]\npointer = \"/email\"\nheader = \"X-Forwarded-Email\"",
        "[identity]\nissuer = \"\"\n[[identity.claim]]\npointer = \"/iss\"\nheader = \"X-Auth-Issuer\"",
        "[forwarding]\ntrusted = [\"10.0.0.0/8\", \"fd00::/8\", \"192.0.2.1\", \"::1\"]",
        "[forwarding]\nremove = [\"X-A\", \"X-A-*\"]\nkeep = [\"X-Real-IP\", \"Remote-*\", \"X-Forwarded-User\"]",
        "[access_log]\nfile = \"off\"\n[limits]\nbody_size = \"0B\"\n[timeouts]\ndrain = \"0s\"",
    ] {
        parse(&with_upstream(text)).unwrap_or_else(|errors| panic!("{text}\n{errors}"));
    }
}

#[test]
fn throttle_limits_are_checked() {
    check(&[
        ("[throttle]\nrefreshes = 10001", "throttle.refreshes", (2, 13), "from 0 to 10000"),
        ("[throttle]\ncalls = \"off\"", "throttle.calls", (2, 9), "this is a string"),
        ("[throttle]\nfailure = 1", "throttle.failure", (2, 1), "did you mean `failures`?"),
    ]);
    let rates = |text: &str| {
        let throttle = parse(&with_upstream(text)).unwrap_or_else(|errors| panic!("{errors}")).throttle;
        let each = [throttle.refreshes, throttle.calls, throttle.failures];
        each.map(|rate| rate.map(|rate| (rate.burst, rate.interval.as_millis())))
    };
    assert_eq!(rates(""), [Some((10, 5_000)), Some((300, 200)), Some((20, 3_000))]);
    assert_eq!(rates("[throttle]\nrefreshes = 0\ncalls = 60\nfailures = 0"), [None, Some((60, 1_000)), None]);
}
