//! `/v1/certificates`: when the certificates of this server end.

use std::time::SystemTime;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use xds_units::rfc3339;

use crate::answer::Answer;
use crate::input::{NoParams, Params};
use crate::problem::ApiError;
use crate::state::ApiState;

/// What the ports of this server use for TLS.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CertificateList {
    /// What ends, the first to end first.
    pub certificates: Vec<CertificateEntry>,
}

/// Something that ends.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CertificateEntry {
    /// The port.
    pub port: String,
    /// `leaf`, the certificate of the port; `client_ca`, `trust_domain` or `crl`, by which it knows its clients.
    pub part: String,
    /// When it ends, or has ended.
    pub ends: String,
    /// True if it has ended.
    pub ended: bool,
}

pub(crate) async fn list(State(state): State<ApiState>, _: Params<NoParams>) -> Result<Answer, ApiError> {
    let now = SystemTime::now();
    let mut ends = state.certificates.iter().flat_map(|of| of.ends()).collect::<Vec<_>>();
    ends.sort_by_key(|end| end.at);
    let entry = |end: crate::state::CertificateEnd| CertificateEntry {
        port: end.port.to_owned(),
        part: end.part.to_owned(),
        ends: rfc3339(end.at),
        ended: end.at <= now,
    };
    Answer::ok(&CertificateList { certificates: ends.into_iter().map(entry).collect() })
}
