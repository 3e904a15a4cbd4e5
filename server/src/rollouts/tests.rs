//! Tests of the calls that rollouts make; what the driver does is tested with the control, over REST.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};

use super::{calls, fetch};

/// A server that answers every connection with the same bytes, and counts them; `None` never answers.
async fn answering(bytes: Option<&'static [u8]>) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let n = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&n);
    tokio::spawn(async move {
        let mut kept = Vec::new();
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
            let mut request = vec![0; 64 * 1024];
            let _ = socket.read(&mut request).await;
            match bytes {
                Some(bytes) => {
                    let _ = socket.write_all(bytes).await;
                }
                None => kept.push(socket),
            }
        }
    });
    (addr, n)
}

fn payload() -> xds_rollout::HookPayload {
    xds_rollout::HookPayload {
        name: "web".to_owned(),
        namespace: "prod".to_owned(),
        phase: xds_rollout::Phase::Progressing,
        checksum: "1".to_owned(),
        metadata: [("a".to_owned(), "b".to_owned())].into(),
    }
}

#[tokio::test]
async fn only_a_status_2xx_is_a_go() {
    for (answer, said) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", None),
        ("HTTP/1.1 202 Accepted\r\ncontent-length: 2\r\n\r\nok", None),
        ("HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\nnope", Some("404 Not Found: nope")),
        // Where it points to is not asked.
        (
            "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
            Some("302 Found"),
        ),
        ("HTTP/1.1 500 Internal Server Error\r\n\r\n", Some("500")),
        ("garbage\r\n\r\n", Some("no HTTP answer")),
        ("", Some("no HTTP answer")),
        ("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort", Some("cannot be read")),
    ] {
        let (addr, _) = answering(Some(answer.as_bytes())).await;
        let told = calls::call(&format!("http://{addr}/hook?x=1"), &payload(), Duration::from_secs(5)).await;
        match said {
            None => assert_eq!(told, Ok(()), "{answer}"),
            Some(said) => assert!(told.as_ref().unwrap_err().contains(said), "{answer}: {told:?}"),
        }
    }
}

#[tokio::test]
async fn a_body_and_a_head_without_end_are_not_read_to_it() {
    let long = Box::leak(format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(2 << 20)).into_boxed_str());
    let head = Box::leak(format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(1 << 20)).into_boxed_str());
    for answer in [&*long, &*head] {
        let (addr, _) = answering(Some(answer.as_bytes())).await;
        let told = calls::call(&format!("http://{addr}/"), &payload(), Duration::from_secs(5)).await;
        assert!(told.is_err(), "{told:?}");
    }
}

#[tokio::test]
async fn who_does_not_answer_is_given_up_in_time() {
    let (addr, n) = answering(None).await;
    let began = Instant::now();
    let told = calls::call(&format!("http://{addr}/"), &payload(), Duration::from_millis(50)).await;
    assert_eq!((told, n.load(Ordering::Relaxed)), (Err("no answer within 50ms".to_owned()), 1));
    assert!(began.elapsed() < Duration::from_secs(5));
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let told = calls::call(&format!("http://{closed}/"), &payload(), Duration::from_secs(5)).await;
    assert!(told.as_ref().unwrap_err().contains("cannot connect"), "{told:?}");
}

#[tokio::test]
async fn the_payload_is_the_one_of_flagger() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/gate", listener.local_addr().unwrap());
    let calling = tokio::spawn(async move { calls::call(&url, &payload(), Duration::from_secs(5)).await });
    let (mut socket, _) = listener.accept().await.unwrap();
    let mut text = String::new();
    while !text.ends_with('}') {
        let mut bytes = vec![0; 4096];
        let n = timeout(Duration::from_secs(5), socket.read(&mut bytes)).await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(&bytes[..n]).unwrap());
    }
    socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    assert_eq!(calling.await.unwrap(), Ok(()));
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /gate HTTP/1.1\r\n") && head.contains("content-type: application/json"));
    let body: Value = serde_json::from_str(body).unwrap();
    let expected = json!({
        "name": "web", "namespace": "prod", "phase": "Progressing", "checksum": "1", "metadata": {"a": "b"},
    });
    assert_eq!(body, expected);
}

#[test]
fn what_cannot_be_called_is_refused() {
    for url in ["http://a", "http://127.0.0.1:9090/x?y", "http://[::1]:1/"] {
        assert_eq!(fetch::refusal(url), None, "{url}");
    }
    for url in ["https://a/", "ftp://a/", "http://", "http://a b/", "http://a:99999/", "a"] {
        assert!(fetch::refusal(url).is_some(), "{url}");
    }
}
