//! Real clients whose certificates the server comes to distrust: they go on serving, and come back when they have others.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use xds_tests::certificate_files::CertificateFiles;
use xds_tests::secured::{Client, Kind, Secured};
use xds_tests::worker::Library;

const ENVOY: Kind = Kind::Envoy(&[]);
const GRPCIO: Kind = Kind::Grpc(Library::Grpcio);
const GRPC_GO: Kind = Kind::Grpc(Library::GrpcGo);

/// A server whose clients have authorities in a file of their own, and the flags that `more` makes.
async fn start(more: impl AsyncFnOnce(&CertificateFiles) -> Result<Vec<String>>) -> Result<Secured> {
    Secured::start("all.yaml", async |certificates, _, setup| {
        fs::copy(certificates.path("ca.crt"), certificates.path(CLIENTS))?;
        let setup = certificates.protect_from(setup, "xds", CLIENTS);
        Ok(more(certificates).await?.into_iter().fold(setup, |setup, flag| setup.arg(flag)))
    })
    .await
}

/// Has a client send requests while it loses its trust and regains it, and then a change. None fails.
async fn goes_on_and_comes_back(
    world: &Secured,
    client: &Client,
    lose: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    let requests = client.requests(world, &world.first).await?;
    requests
        .none_fails(async {
            lose().await?;
            // Only a client that is connected again gets this.
            world.switch()?;
            requests.wait_backend(&world.second).await
        })
        .await
}

/// Waits until a client has lost its stream for this reason and has tried again in vain.
async fn wait_lost(world: &Secured, client: &Client, reason: &str, handshake: &str) -> Result<()> {
    world.wait_refused(reason, 1).await?;
    // The rest of the text has its spaces encoded.
    client.wait_logged(&format!("{reason}:")).await?;
    world.wait_handshake_failure(handshake).await
}

fn replace(path: impl AsRef<Path>, text: &str) -> Result<()> {
    let new = path.as_ref().with_extension("new");
    fs::write(&new, text)?;
    Ok(fs::rename(new, path)?)
}

async fn authority_is_taken_out_and_put_back(kind: Kind) -> Result<()> {
    let world = start(async |_| Ok(vec![])).await?;
    let others = CertificateFiles::new().await?;
    let bundle = world.certificates.path(CLIENTS);
    let good = fs::read_to_string(&bundle)?;
    let Some(client) = world.client(kind, &[]).await? else { return Ok(()) };
    goes_on_and_comes_back(&world, &client, async || {
        replace(&bundle, &fs::read_to_string(others.path("ca.crt"))?)?;
        wait_lost(&world, &client, "untrusted", "unknown-issuer").await?;
        replace(&bundle, &good)
    })
    .await
}

async fn authority_is_replaced(kind: Kind) -> Result<()> {
    let world = start(async |_| Ok(vec![])).await?;
    let others = CertificateFiles::new().await?;
    let Some(client) = world.client(kind, &[]).await? else { return Ok(()) };
    goes_on_and_comes_back(&world, &client, async || {
        replace(world.certificates.path(CLIENTS), &fs::read_to_string(others.path("ca.crt"))?)?;
        wait_lost(&world, &client, "untrusted", "unknown-issuer").await?;
        for file in ["client.key", "client.crt"] {
            replace(world.certificates.path(file), &fs::read_to_string(others.path(file))?)?;
        }
        Ok(())
    })
    .await
}

async fn certificate_is_revoked(kind: Kind) -> Result<Secured> {
    let world = start(async |certificates| {
        certificates.issue_numbered("client", "edge-1", 7)?;
        certificates.revoke(&[])?;
        Ok(vec![format!("--xds-client-crl={}", certificates.path("crl.pem"))])
    })
    .await?;
    let Some(client) = world.client(kind, &[]).await? else { return Ok(world) };
    goes_on_and_comes_back(&world, &client, async || {
        world.certificates.revoke(&[7])?;
        wait_lost(&world, &client, "revoked", "revoked").await?;
        world.certificates.issue_numbered("client", "edge-1", 8)
    })
    .await?;
    Ok(world)
}

#[tokio::test]
async fn an_envoy_whose_authority_is_taken_out_goes_on_and_comes_back_with_it() -> Result<()> {
    authority_is_taken_out_and_put_back(ENVOY).await
}

#[tokio::test]
async fn grpcio_whose_authority_is_taken_out_goes_on_and_comes_back_with_it() -> Result<()> {
    authority_is_taken_out_and_put_back(GRPCIO).await
}

#[tokio::test]
async fn grpc_go_whose_authority_is_taken_out_goes_on_and_comes_back_with_it() -> Result<()> {
    authority_is_taken_out_and_put_back(GRPC_GO).await
}

#[tokio::test]
async fn an_envoy_whose_authority_is_taken_out_comes_back_with_a_certificate_of_another() -> Result<()> {
    authority_is_replaced(ENVOY).await
}

#[tokio::test]
async fn grpcio_whose_authority_is_taken_out_comes_back_with_a_certificate_of_another() -> Result<()> {
    authority_is_replaced(GRPCIO).await
}

#[tokio::test]
async fn grpc_go_whose_authority_is_taken_out_comes_back_with_a_certificate_of_another() -> Result<()> {
    authority_is_replaced(GRPC_GO).await
}

#[tokio::test]
async fn an_envoy_whose_certificate_is_revoked_goes_on_and_comes_back_with_another() -> Result<()> {
    let world = certificate_is_revoked(ENVOY).await?;
    let lines = world.server.get_json("/v1/audit").await?.to_string();
    for expected in [
        r#""event":"tls.loaded""#,
        r#""event":"tls.untrusted""#,
        r#""reason":"revoked""#,
        r#""identity":"dns:edge-1""#,
    ] {
        ensure!(lines.contains(expected), "{expected} is not in {lines}");
    }
    Ok(())
}

#[tokio::test]
async fn grpcio_whose_certificate_is_revoked_goes_on_and_comes_back_with_another() -> Result<()> {
    certificate_is_revoked(GRPCIO).await.map(drop)
}

#[tokio::test]
async fn grpc_go_whose_certificate_is_revoked_goes_on_and_comes_back_with_another() -> Result<()> {
    certificate_is_revoked(GRPC_GO).await.map(drop)
}

#[tokio::test]
async fn an_envoy_whose_certificate_ends_goes_on_and_comes_back_with_a_newer_one() -> Result<()> {
    let world = start(async |certificates| {
        certificates.issue_for("client", &["edge-1"], "20s").await?;
        Ok(vec![])
    })
    .await?;
    let client = world.client(ENVOY, &[]).await?.context("no Envoy")?;
    goes_on_and_comes_back(&world, &client, async || {
        wait_lost(&world, &client, "expired", "expired").await?;
        world.certificates.issue("client", &["edge-1"]).await
    })
    .await?;
    let shown: Value = world.server.get_json("/v1/nodes/edge-1").await?;
    ensure!(shown.to_string().contains("dns:edge-1"), "{shown}");
    Ok(())
}

/// The authorities of clients.
const CLIENTS: &str = "clients.crt";
