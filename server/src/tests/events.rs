//! `/v1/events`.

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use tower::Service as _;

use super::rest::{Rest, publication, rest};

#[tokio::test]
async fn events_are_numbered_and_can_be_resumed() {
    let rest = rest();
    rest.put("/v1/groups/g/resources", &publication(&[("a", "1")])).await;
    let first = next_event(&rest, None, "publish").await;
    rest.put("/v1/groups/g/resources", &publication(&[("a", "2")])).await;
    let second = next_event(&rest, Some(&first.0), "publish").await;
    assert!(second.1.contains("\"revision\":2"), "{second:?}");
    let lost = next_event(&rest, Some("1-1"), "lagged").await;
    assert!(lost.1.contains("missed"), "an id of another run: {lost:?}");
}

/// The id and the data of the first event of that name after `last`, or from the beginning.
async fn next_event(rest: &Rest, last: Option<&str>, name: &str) -> (String, String) {
    let request = Request::get("/v1/events").header("last-event-id", last.unwrap_or("0-0"));
    let response = rest.router.clone().call(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body();
    loop {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let text = String::from_utf8(frame.to_vec()).unwrap();
        let field = |field: &str| {
            text.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default().trim().to_owned()
        };
        if field("event:") == name {
            return (field("id:"), field("data:"));
        }
    }
}
