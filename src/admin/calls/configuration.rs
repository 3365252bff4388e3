//! `GET /admin/v1/config`: the configuration in force, each value with its origin.

use http::{Method, Response, StatusCode};

use crate::admin::state::Admin;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::types::reject::{Reason, Reject};

pub(crate) const PATH: &str = "/admin/v1/config";

pub(crate) fn handle(admin: &Admin, method: &Method) -> Result<Response<Body>, Reject> {
    match *method {
        Method::GET => Ok(respond::json(StatusCode::OK, &(admin.configuration)())),
        _ => Err(Reject::from(Reason::MethodNotAllowed).allows("GET, HEAD")),
    }
}
