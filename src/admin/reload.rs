//! `POST /admin/v1/reload`: the configuration file is read again, as after SIGHUP, and the caller hears what became of it.
//!
//! | request | answer |
//! |---|---|
//! | `POST /admin/v1/reload` | 200, `{"success": true, "inForce": […], "takesRestart": […]}`: the parts that changed |
//! | | 422, `{"success": false, …, "faults": […], "report"}`: nothing has changed |

use std::sync::mpsc::Sender;

use http::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::Admin;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::types::reject::{Reason, Reject};

pub(super) const PATH: &str = "/admin/v1/reload";

/// Parts of the configuration, by the names of their tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Changed, and count from now on.
    pub in_force: Vec<&'static str>,
    /// Changed in the file, and count from the next start on.
    pub takes_restart: Vec<&'static str>,
}

/// Why nothing was reloaded.
#[derive(Clone, Debug)]
pub struct ReloadError {
    /// For people.
    pub report: String,
    /// For programs: faults of the file with their places, if it is that.
    pub faults: Value,
}

/// Who waits for the outcome.
pub type ReloadReply = oneshot::Sender<Result<Reloaded, ReloadError>>;

pub(super) async fn answer<B>(admin: &Admin, request: &Request<B>) -> Result<Response<Body>, Reject> {
    if request.method() != Method::POST {
        return Err(Reject::from(Reason::MethodNotAllowed).allow("POST"));
    }
    // A gateway that was not started from a file.
    let reloads: &Sender<ReloadReply> = admin.reloads.as_ref().ok_or(Reason::NoRoute)?;
    let (asking, answer) = oneshot::channel();
    let gone = || Reject::new(Reason::Internal, "the gateway is ending");
    reloads.send(asking).map_err(|_| gone())?;
    Ok(match answer.await.map_err(|_| gone())? {
        Ok(done) => {
            let answer = json!({ "success": true, "inForce": done.in_force, "takesRestart": done.takes_restart });
            respond::json(StatusCode::OK, &answer)
        }
        Err(refused) => {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            let answer = json!({
                "success": false,
                "error": "invalid_configuration",
                "error_description": "nothing was reloaded",
                "status": status.as_u16(),
                "faults": refused.faults,
                "report": refused.report,
            });
            respond::json(status, &answer)
        }
    })
}
