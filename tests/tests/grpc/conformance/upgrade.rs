//! HTTPRoute: connections that become something else.

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use xds_tests::documents::{World, service_with};
use xds_tests::server::Variant;
use xds_tests::wait::{PATIENCE, wait_for};

use crate::conformance::support::web_gateway;

/// Agrees to every upgrade and then gives back what it gets.
async fn serve(listener: TcpListener) -> Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let head = read_head(&mut stream).await?;
            ensure!(head.to_ascii_lowercase().contains("upgrade: websocket"), "no upgrade: {head}");
            let answer =
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
            stream.write_all(answer.as_bytes()).await?;
            let (mut from, mut to) = stream.split();
            tokio::io::copy(&mut from, &mut to).await?;
            anyhow::Ok(())
        });
    }
}

/// Reads up to the empty line.
async fn read_head(stream: &mut TcpStream) -> Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.context("the end of the connection")?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

#[tokio::test]
async fn a_backend_may_speak_websocket() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    tokio::spawn(serve(listener));
    let mut world = World::start(&[]).await?;
    world.ports(&["web"])?;
    let route = "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: chat}\nspec:\n  \
                 parentRefs: [{name: web}]\n  rules: [{backendRefs: [{name: chat, port: 80}]}]\n---\n";
    let service = service_with("default", "chat", 80, &[addr], "kubernetes.io/ws");
    world.write("chat.yaml", &(web_gateway() + route + &service))?;
    let _envoy = world.envoy(Variant::Delta).await?;
    let port = world.port("web")?;
    let mut stream = wait_for("the upgrade", PATIENCE, async || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let ask = "GET /chat HTTP/1.1\r\nhost: a.com\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
        stream.write_all(ask.as_bytes()).await?;
        let head = read_head(&mut stream).await?;
        ensure!(head.starts_with("HTTP/1.1 101"), "{head}");
        Ok(stream)
    })
    .await?;
    stream.write_all(b"hello").await?;
    let mut back = [0; 5];
    stream.read_exact(&mut back).await?;
    assert_eq!(&back, b"hello");
    Ok(())
}
