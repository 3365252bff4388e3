//! Browser apps in headless Chromium, on another origin than the gateway, with the libraries that such apps use.

use std::time::Duration;

use serde_json::{Value, json};

use super::{APP, CORS};
use crate::support::{Browser, Gateway, Site, TokenPair, Upstream};

/// The pages of `site` see the gateway as https://gateway.example, its `tokens.issuer`.
async fn browser(gateway: &Gateway, site: &Site, more: &[&str]) -> Browser {
    let hosts =
        [("gateway.example", gateway.tls_address()), ("app.example", site.address), ("evil.example", site.address)];
    Browser::open(&hosts, &[&gateway.certificate(), &site.certificate()], more).await
}

fn as_json(pair: &TokenPair) -> Value {
    json!({ "accessToken": pair.access, "refreshToken": pair.refresh })
}

/// The limits are the default ones. With `deduplicateRefresh`, axios-auth-refresh 5 fails requests that get 401 while a
/// refresh runs; without it, they wait for that refresh too.
#[tokio::test]
async fn fifty_requests_with_an_expired_token_keep_the_session() {
    let (upstream, site) = (Upstream::start(), Site::start().await);
    let gateway = Gateway::with_throttle(upstream.address, "", CORS);
    let pair = gateway.issue("alice", "").await;
    let browser = browser(&gateway, &site, &[]).await;
    browser.visit(APP).await;
    gateway.advance(Duration::from_secs(20 * 60));
    let script = r#"
        const session = input;
        let refreshes = 0;
        const bearer = () => `Bearer ${session.accessToken}`;
        const api = axios.create({ baseURL: "https://gateway.example" });
        api.interceptors.request.use(request => { request.headers.Authorization = bearer(); return request; });
        authRefresh.createAuthRefresh(api, async () => {
            refreshes++;
            const body = { refreshToken: session.refreshToken };
            const headers = { Authorization: bearer() };
            const { data } = await axios.post("https://gateway.example/user/refresh", body, { headers });
            Object.assign(session, data);
        }, { deduplicateRefresh: false });
        const numbers = Array.from({ length: 50 }, (_, number) => number);
        const responses = await Promise.all(numbers.map(number => api.get(`/orders/${number}`)));
        return { statuses: responses.map(response => response.status), refreshes, ...session };
    "#;
    let result = browser.run(script, &as_json(&pair)).await;
    assert_eq!(result["statuses"], json!(vec![200; 50]));
    let refreshes = result["refreshes"].as_u64().expect("a number") as usize;
    assert!(refreshes >= 1);
    assert_eq!(upstream.seen().len(), 50, "each request arrived once, with a valid token");
    let last = TokenPair::from_json(&result);
    assert_eq!(last.token_id, pair.token_id, "it is one session");
    assert_eq!(gateway.refresh(&last.access, &last.refresh).await.status, 200, "the session lives");
    // Two events of the signing key and one of the login come first.
    let events = gateway.audit_events(4 + refreshes).await;
    let names: Vec<_> = events.iter().skip(3).map(|event| &event["event"]).collect();
    assert_eq!(names, vec!["token.refreshed"; refreshes + 1], "no refresh was repeated, and no reuse detected");
}

#[tokio::test]
async fn a_page_reads_why_it_was_rejected() {
    let (upstream, site) = (Upstream::start(), Site::start().await);
    let routes = "[[route]]\npath = \"/\"\n[[route]]\npath = \"/few\"\npublic = true\n\
                  [[route.rate]]\nper = \"route\"\nrequests = 1\nwindow = \"1h\"\n";
    let gateway = Gateway::with_config(&upstream, &format!("{CORS}{routes}"));
    let browser = browser(&gateway, &site, &[]).await;
    browser.visit(APP).await;
    let script = r#"
        const results = [];
        for (const [path, token] of [["/orders", "forged"], ["/orders", null], ["/few", null], ["/few", null]]) {
            const headers = token ? { Authorization: `Bearer ${token}` } : {};
            const response = await fetch(`https://gateway.example${path}`, { headers });
            const names = ["WWW-Authenticate", "Retry-After", "RateLimit"];
            const fields = names.map(name => response.headers.get(name));
            const body = response.ok ? null : await response.json();
            results.push({ status: response.status, fields, error: body && body.error });
        }
        return results;
    "#;
    let results = browser.run(script, &Value::Null).await;
    let statuses: Vec<_> = results.as_array().expect("a list").iter().map(|result| &result["status"]).collect();
    assert_eq!(statuses, [401, 401, 200, 429], "{results:#}");
    let challenge = results[0]["fields"][0].as_str().expect("WWW-Authenticate");
    assert!(challenge.contains("error=\"invalid_token\""), "{challenge}");
    assert_eq!((&results[0]["error"], &results[1]["error"]), (&json!("invalid_token"), &json!("unauthorized")));
    assert_eq!(results[2]["fields"][2], "\"route\";r=0;t=3600");
    assert_eq!((&results[3]["fields"][1], &results[3]["error"]), (&json!("3600"), &json!("rate_limited")));
}

#[tokio::test]
async fn a_page_logs_out() {
    let (upstream, site) = (Upstream::start(), Site::start().await);
    let gateway = Gateway::with_config(&upstream, CORS);
    let pair = gateway.issue("alice", "").await;
    let browser = browser(&gateway, &site, &[]).await;
    browser.visit(APP).await;
    let script = r#"
        const headers = { Authorization: `Bearer ${input.accessToken}` };
        const api = axios.create({ baseURL: "https://gateway.example", headers, validateStatus: () => true });
        const before = await api.get("/orders");
        const ended = await api.delete(`/token/${input.refreshToken.split("_")[1]}`);
        const after = await api.get("/orders");
        return [before.status, ended.status, ended.data, after.status, after.data.error_description];
    "#;
    let result = browser.run(script, &as_json(&pair)).await;
    assert_eq!(result, json!([200, 200, { "success": true }, 401, "the token was revoked"]));
    gateway.refresh(&pair.access, &pair.refresh).await.assert_rejected(400, "invalid_grant");
}

#[tokio::test]
async fn a_page_of_another_origin_reads_and_causes_nothing() {
    let (upstream, site) = (Upstream::start(), Site::start().await);
    let gateway = Gateway::with_config(&upstream, CORS);
    let pair = gateway.issue("alice", "").await;
    let browser = browser(&gateway, &site, &[]).await;
    browser.visit("https://evil.example/").await;
    let script = r#"
        const headers = { Authorization: `Bearer ${input.accessToken}`, "Content-Type": "application/json" };
        const refresh = JSON.stringify({ refreshToken: input.refreshToken });
        const attempts = [
            ["/orders", {}],
            ["/orders", { headers }],
            ["/orders", { method: "DELETE", headers }],
            ["/user/refresh", { method: "POST", headers, body: refresh }],
            [`/token/${input.refreshToken.split("_")[1]}`, { method: "DELETE", headers }],
            ["/orders", { credentials: "include" }],
            ["/orders", { mode: "no-cors", method: "POST", body: refresh }],
            ["/.well-known/jwks.json", {}],
        ];
        const results = [];
        for (const [path, options] of attempts) {
            try {
                const response = await fetch(`https://gateway.example${path}`, options);
                results.push(`${response.type} ${response.status} ${(await response.text()).length > 0}`);
            } catch (error) {
                results.push(error.name);
            }
        }
        return results;
    "#;
    let results = browser.run(script, &as_json(&pair)).await;
    let nothing = "TypeError";
    let expected = [nothing, nothing, nothing, nothing, nothing, nothing, "opaque 0 false", "cors 200 true"];
    assert_eq!(results, json!(expected));
    assert!(upstream.seen().is_empty(), "nothing reached the backend");
    assert_eq!(gateway.status_of(&pair.access).await, 200, "the session lives");
    assert_eq!(gateway.refresh(&pair.access, &pair.refresh).await.status, 200, "its refresh token was not used");
}

#[tokio::test]
async fn oidc_client_ts_refreshes_and_revokes() {
    let (upstream, site) = (Upstream::start(), Site::start().await);
    let gateway = Gateway::with_config(&upstream, CORS);
    let login = json!({ "sub": "alice", "scope": "orders:read", "clientId": "spa" });
    let pair = TokenPair::from_json(&gateway.request_tokens(&login).await.json());
    let browser = browser(&gateway, &site, &[]).await;
    browser.visit(APP).await;
    let script = r#"
        const manager = new oidc.UserManager({
            authority: "https://gateway.example",
            client_id: "spa",
            redirect_uri: "https://app.example/",
            automaticSilentRenew: false,
        });
        await manager.storeUser(new oidc.User({
            access_token: input.accessToken, refresh_token: input.refreshToken, token_type: "Bearer",
            scope: "orders:read", profile: { sub: "alice" }, expires_at: 1,
        }));
        const user = await manager.signinSilent();
        const headers = { Authorization: `Bearer ${user.access_token}` };
        const used = await fetch("https://gateway.example/orders", { headers });
        await manager.revokeTokens(["refresh_token"]);
        const after = await fetch("https://gateway.example/orders", { headers });
        return { accessToken: user.access_token, refreshToken: user.refresh_token, scope: user.scope,
                 lasts: user.expires_in, used: used.status, after: after.status };
    "#;
    let result = browser.run(script, &as_json(&pair)).await;
    let next = TokenPair::from_json(&result);
    assert!(next.token_id == pair.token_id && next.refresh != pair.refresh && next.access != pair.access);
    assert_eq!(
        (&result["scope"], &result["used"], &result["after"]),
        (&json!("orders:read"), &json!(200), &json!(401))
    );
    assert!(result["lasts"].as_u64().is_some_and(|seconds| (700..=900).contains(&seconds)), "{}", result["lasts"]);
}

/// The gateway rejects it before the page has sent everything.
#[tokio::test]
async fn a_page_reads_why_a_large_upload_was_rejected() {
    let (upstream, site) = (Upstream::start(), Site::start().await);
    let gateway = Gateway::with_config(&upstream, CORS);
    for more in [&[][..], &["--disable-http2"]] {
        let browser = browser(&gateway, &site, more).await;
        browser.visit(APP).await;
        let script = r#"
            const response = await fetch("https://gateway.example/orders", {
                method: "POST", headers: { Authorization: "Bearer forged" }, body: new Uint8Array(50 << 20),
            });
            return [response.status, (await response.json()).error];
        "#;
        assert_eq!(browser.run(script, &Value::Null).await, json!([401, "invalid_token"]), "{more:?}");
    }
    assert!(upstream.seen().is_empty());
}
