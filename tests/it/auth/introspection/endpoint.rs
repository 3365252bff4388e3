//! An introspection endpoint of the tests: it answers as a test says, also in ways that no server should.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bearward::types::secret;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{AUDIENCE, LOGIN};
use crate::support::{ScriptedBackend, Wire};

pub const CLIENT_SECRET: &str = "+a secret: 100%";

/// The bytes of a response. Empty: none, and the connection stays open.
pub type Response = Vec<u8>;

type Answer = dyn Fn(&str) -> Response + Send + Sync;

/// A question: the request without its form, and the form.
#[derive(Clone, Debug)]
pub struct Question {
    pub head: String,
    pub form: String,
}

#[derive(Default)]
struct Shared {
    answer: Mutex<Option<Arc<Answer>>>,
    questions: Mutex<Vec<Question>>,
}

pub struct Endpoint {
    server: ScriptedBackend,
    shared: Arc<Shared>,
    /// Each answer takes one.
    gate: Arc<Semaphore>,
}

impl Endpoint {
    /// Says of each token that it is active, and that its subject is the text until the first dot.
    pub fn start() -> Endpoint {
        let (shared, gate) = (Arc::<Shared>::default(), Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)));
        let (scripted, scripted_gate) = (shared.clone(), gate.clone());
        let server = ScriptedBackend::start(move |wire, _| serve(wire, scripted.clone(), scripted_gate.clone()));
        let endpoint = Endpoint { server, shared, gate };
        endpoint.answer_json(|_| json!({}));
        endpoint
    }

    pub fn url(&self) -> String {
        format!("http://{}/introspect", self.server.address)
    }

    /// From now on, the response to a question about a token.
    pub fn respond(&self, answer: impl Fn(&str) -> Response + Send + Sync + 'static) {
        *self.shared.answer.lock().expect("not poisoned") = Some(Arc::new(answer));
    }

    /// From now on, the changes to [`active`].
    pub fn answer_json(&self, changes: impl Fn(&str) -> Value + Send + Sync + 'static) {
        self.respond(move |token| response("200 OK", "application/json", active(token, &changes(token)).to_string()));
    }

    /// From now on, these bytes.
    pub fn respond_with(&self, response: impl Into<Vec<u8>>) {
        let response = response.into();
        self.respond(move |_| response.clone());
    }

    pub fn deny(&self) {
        self.answer_json(|_| json!({ "active": false }));
    }

    /// No answer leaves it until [`Endpoint::release`].
    pub fn hold(&self) {
        self.gate.forget_permits(Semaphore::MAX_PERMITS);
    }

    pub fn release(&self, answers: usize) {
        self.gate.add_permits(answers);
    }

    pub fn questions(&self) -> Vec<Question> {
        self.shared.questions.lock().expect("not poisoned").clone()
    }

    pub fn count(&self) -> usize {
        self.questions().len()
    }
}

/// What a good endpoint says about a good token, with some members changed. `null` removes a member.
pub fn active(token: &str, changes: &Value) -> Value {
    let subject = token.split('.').next().unwrap_or_default();
    let mut answer = json!({
        "active": true, "token_type": "Bearer", "iss": LOGIN, "aud": AUDIENCE, "sub": subject, "client_id": "app",
        "scope": "read", "username": "Alice",
    });
    let members = answer.as_object_mut().expect("an object");
    for (name, value) in changes.as_object().expect("an object") {
        members.insert(name.clone(), value.clone());
    }
    members.retain(|_, value| !value.is_null());
    answer
}

pub fn response(status: &str, media_type: &str, body: impl AsRef<[u8]>) -> Response {
    let body = body.as_ref();
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

pub fn write_client_secret(folder: &Path) {
    secret::write_private(&folder.join("client.secret"), CLIENT_SECRET.as_bytes()).expect("written");
}

async fn serve(mut wire: Wire, shared: Arc<Shared>, gate: Arc<Semaphore>) {
    let Some(head) = wire.try_read_until("\r\n\r\n").await else { return };
    let length =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned));
    let length = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
    let form = String::from_utf8(wire.read_bytes(length).await).expect("a form");
    let token = form.split('&').find_map(|field| field.strip_prefix("token=")).unwrap_or_default().to_owned();
    shared.questions.lock().expect("not poisoned").push(Question { head, form });
    if let Ok(permit) = gate.acquire().await {
        permit.forget();
    }
    let answer = shared.answer.lock().expect("not poisoned").clone().expect("set at the start");
    match &*answer(&token) {
        [] => tokio::time::sleep(Duration::MAX).await,
        // A peer that rejects a response may close early.
        bytes => drop(wire.try_send(bytes).await),
    }
}
