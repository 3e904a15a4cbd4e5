//! Measures each request to the admin API.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use tokio::time::Instant;

use crate::answer::ProblemType;
use crate::counts::{Refusal, RequestCounts, Route};
use crate::endpoints::{ENDPOINTS, Method};

/// Counts a request. The time is that until the answer begins, or is complete where it is not a stream.
pub(crate) async fn measure(
    State(counts): State<Arc<RequestCounts>>,
    request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    let route = route_of(&request);
    let response = next.run(request).await;
    let problem = response.extensions().get::<ProblemType>();
    let refusal = problem.map(|ProblemType(problem)| Refusal { status: response.status().as_u16(), problem });
    counts.add(route, refusal, began.elapsed());
    response
}

fn route_of(request: &Request) -> Route {
    let method = Method::of(request.method());
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let endpoint = ENDPOINTS.iter().find(|endpoint| Some(endpoint.path) == path);
    Route {
        method: method.map_or(OTHER, Method::as_str),
        path: endpoint.map_or(OTHER, |endpoint| endpoint.path),
    }
}

/// The label of everything that is in no list.
const OTHER: &str = "other";

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn a_path_that_is_no_endpoint_makes_no_label() {
        let request = Request::builder().method("BREW").uri("/v1/nodes/secret").body(Body::empty());
        assert_eq!(route_of(&request.unwrap()), Route { method: OTHER, path: OTHER });
    }
}
