//! `POST /admin/v1/reload`: reads the configuration file again, as after SIGHUP.
//!
//! | request | response |
//! |---|---|
//! | `POST /admin/v1/reload` | 200, `{"success": true, "changed": […], "requiresRestart": […], "restartKeys": […], "changes": [{…}]}`: the tables that changed, and their keys; with `"warnings": […]` if there are any |
//! | with `?dryRun=true` | the same, and nothing changes |
//! | | 422, `{"success": false, …, "errors": […], "report"}`: nothing has changed |

use http::{Method, Response, StatusCode, Uri};
use serde_json::json;
use tokio::sync::oneshot;

use super::query::Query;
use super::reload_reply::{ReloadError, ReloadRequest, Reloaded};
use crate::admin::state::Admin;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::tokens::audit_event::EventContext;
use crate::types::reject::{Reason, Reject};

pub(crate) const PATH: &str = "/admin/v1/reload";

pub(crate) async fn handle(
    admin: &Admin,
    method: &Method,
    uri: &Uri,
    context: &EventContext,
) -> Result<Response<Body>, Reject> {
    if *method != Method::POST {
        return Err(Reject::from(Reason::MethodNotAllowed).allows("POST"));
    }
    let is_dry_run = is_dry_run(uri)?;
    let reloads = admin.reloads.as_ref().ok_or(Reason::NoRoute)?;
    let (reply, result) = oneshot::channel();
    let draining = || Reject::new(Reason::Internal, "the gateway is draining");
    reloads.send(ReloadRequest { is_dry_run, reply }).map_err(|_| draining())?;
    Ok(match result.await.map_err(|_| draining())? {
        Ok(reloaded) => success(&reloaded),
        Err(error) => failure(&error, context),
    })
}

fn is_dry_run(uri: &Uri) -> Result<bool, Reject> {
    let mut query = Query::read(uri)?;
    let is_dry_run = match query.take("dryRun").as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(Reject::new(Reason::BadParameter, "dryRun: expected true or false")),
    };
    query.finish()?;
    Ok(is_dry_run)
}

fn success(reloaded: &Reloaded) -> Response<Body> {
    let mut body = json!({
        "success": true,
        "changed": reloaded.active,
        "requiresRestart": reloaded.requires_restart,
        "restartKeys": reloaded.restart_keys(),
        "changes": reloaded.changes,
    });
    if !reloaded.warnings.is_empty() {
        body["warnings"] = reloaded.warnings.clone().into();
    }
    respond::json(StatusCode::OK, &body)
}

fn failure(error: &ReloadError, context: &EventContext) -> Response<Body> {
    let status = StatusCode::UNPROCESSABLE_ENTITY;
    let body = json!({
        "success": false,
        "error": "invalid_configuration",
        "error_description": "not reloaded; the current settings stay active",
        "status": status.as_u16(),
        "requestId": context.request,
        "errors": error.errors,
        "report": error.report,
    });
    respond::json(status, &body)
}
