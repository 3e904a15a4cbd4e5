//! Streams of events on the admin port have no end of their own: they end when the server does.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::middleware::map_response_with_state;
use axum::response::Response;
use futures_util::StreamExt as _;
use http::header::CONTENT_TYPE;
use tokio::sync::watch;

/// The router, whose streams of events end once the server stops: nothing waits for them to be drained.
pub(crate) fn end_with_the_server(router: Router, stop: watch::Receiver<bool>) -> Router {
    router.layer(map_response_with_state(stop, end))
}

async fn end(State(mut stop): State<watch::Receiver<bool>>, response: Response) -> Response {
    let is_stream = |kind: &http::HeaderValue| kind.as_bytes().starts_with(b"text/event-stream");
    if !response.headers().get(CONTENT_TYPE).is_some_and(is_stream) {
        return response;
    }
    let stopped = async move {
        // Whoever could stop it being gone is an end, too.
        let _ = stop.wait_for(|is_stopping| *is_stopping).await;
    };
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(Box::pin(stopped))))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use axum::response::IntoResponse as _;
    use axum::routing::get;
    use futures_util::stream;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_of_events_ends_when_the_server_stops() {
        let endless = || async {
            let event = stream::once(async { Ok::<_, Infallible>("data: 1\n\n") });
            let body = Body::from_stream(event.chain(stream::pending()));
            ([(CONTENT_TYPE, "text/event-stream")], body).into_response()
        };
        let (sender, stop) = watch::channel(false);
        let router = end_with_the_server(Router::new().route("/", get(endless)), stop);
        let response = router.oneshot(http::Request::new(Body::empty())).await.unwrap();
        let whole = tokio::spawn(response.into_body().collect());
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(!whole.is_finished());
        sender.send_replace(true);
        assert_eq!(whole.await.unwrap().unwrap().to_bytes(), "data: 1\n\n");
    }
}
