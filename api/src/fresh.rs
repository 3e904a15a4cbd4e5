//! `?minRevision=n` of every `GET`: the answer is about that revision, or a later one.
//!
//! Whoever writes to one server and reads from another one with the same store sees what it wrote.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{Method, Uri};
use tokio::time::timeout;
use xds_cache::Revision;

use crate::problem::ApiError;
use crate::state::ApiState;

/// Waits until this server serves the revision that a request wants, and takes the parameter away.
pub(crate) async fn fresh(State(state): State<ApiState>, mut request: Request, next: Next) -> Response {
    if request.method() != Method::GET {
        return next.run(request).await;
    }
    let revision = match split(request.uri()) {
        Ok(None) => return next.run(request).await,
        Ok(Some((revision, rest))) => {
            *request.uri_mut() = rest;
            revision
        }
        Err(error) => return error.into_response(),
    };
    if timeout(LONGEST, state.control.serves(revision)).await.is_err() {
        let served = state.publisher.groups().0;
        let why = format!("this server serves revision {served}, and not {revision} yet");
        return ApiError::NotReady(vec![why]).into_response();
    }
    next.run(request).await
}

/// The revision, and the URI without it; `None` if there is none.
fn split(uri: &Uri) -> Result<Option<(Revision, Uri)>, ApiError> {
    let Some(query) = uri.query() else { return Ok(None) };
    let (wanted, others): (Vec<&str>, Vec<&str>) =
        query.split('&').partition(|pair| pair.split('=').next() == Some(NAME));
    let Some(pair) = wanted.first() else { return Ok(None) };
    let number =
        pair.split_once('=').and_then(|(_, number)| number.parse().ok()).filter(|_| wanted.len() == 1);
    let refused = || ApiError::BadRequest(format!("{NAME} is the number of one revision"));
    let revision = Revision(number.ok_or_else(refused)?);
    let query = if others.is_empty() { String::new() } else { format!("?{}", others.join("&")) };
    let rest = format!("{}{query}", uri.path()).parse().map_err(|_| refused())?;
    Ok(Some((revision, rest)))
}

const NAME: &str = "minRevision";

/// How long a request waits.
const LONGEST: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_is_taken_away_and_the_others_stay() {
        let split = |uri: &str| split(&uri.parse().unwrap());
        let table = [
            ("/v1/a?minRevision=7", 7, "/v1/a"),
            ("/v1/a?limit=1&minRevision=7&after=x%2Fy", 7, "/v1/a?limit=1&after=x%2Fy"),
        ];
        for (uri, revision, rest) in table {
            assert_eq!(split(uri).unwrap(), Some((Revision(revision), rest.parse().unwrap())), "{uri}");
        }
        for uri in ["/v1/a", "/v1/a?limit=1", "/v1/a?xminRevision=2"] {
            assert_eq!(split(uri).unwrap(), None, "{uri}");
        }
        for uri in [
            "/v1/a?minRevision",
            "/v1/a?minRevision=",
            "/v1/a?minRevision=x",
            "/v1/a?minRevision=1&minRevision=2",
        ] {
            assert!(split(uri).is_err(), "{uri}");
        }
    }
}
