//! Real clients that prove who they are by a JSON Web Token: `bootstrap … --jwt-file`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use xds_tests::secured::{Kind, Secured};
use xds_tests::tokens::{self, TokenIssuer};
use xds_tests::worker::Library;

/// The node group of the pod that a token names.
fn group() -> String {
    let spec = json!({
        "selector": {"nodeIds": ["edge-*"]},
        "identities": [{"jwt": {"issuer": "cluster", "claims": {"/pod": "{node}"}}}],
    });
    json!({"apiVersion": "xds-server.io/v1", "kind": "NodeGroup", "metadata": {"name": "edge"}, "spec": spec})
        .to_string()
}

/// Writes a token as Kubernetes does: a whole file takes the place of the old one.
fn replace(path: &Path, token: &str) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, token)?;
    Ok(fs::rename(new, path)?)
}

/// A client begins with a token for somebody else, gets one that ends soon, and then one for long. Nothing is served with the first,
/// and no request fails from the second on.
async fn is_served_by_its_token(kind: Kind) -> Result<()> {
    let issuer = TokenIssuer::new()?;
    let world = Secured::start("edge/resources.yaml", async |certificates, dir, setup| {
        dir.write("edge/group.yaml", &group())?;
        let file = |name: &str| certificates.path(name);
        fs::write(file("keys.json"), issuer.key_set())?;
        fs::write(file("access.yaml"), tokens::policy(Path::new(&file("keys.json"))))?;
        let setup = setup.arg(format!("--access-policy={}", file("access.yaml")));
        Ok(certificates.protect(setup, "xds"))
    })
    .await?;
    let token = |change: &dyn Fn(&mut Value), left: u64| {
        let mut claims = tokens::claims("edge-1", Duration::from_secs(left))?;
        change(&mut claims);
        issuer.token(&claims)
    };
    // Not beside the certificates: a client must not need their directory to follow the token.
    let directory = world.certificates.directory().join("token");
    fs::create_dir(&directory)?;
    let file = directory.join("xds");
    let foreign = || token(&|claims| claims["aud"] = "somebody else".into(), 50);
    replace(&file, &foreign()?)?;
    let flag = format!("--jwt-file={}", file.display());
    let Some(client) = world.client(kind, &[&flag]).await? else { return Ok(()) };
    // The first one may have ended while the client was installed.
    replace(&file, &foreign()?)?;
    // A proxyless client connects with its first call.
    let refused = async {
        world.wait_refused("bad-token", 1).await?;
        let nodes = world.server.get_json("/v1/nodes").await?;
        ensure!(!nodes.to_string().contains("\"edge-1\""), "{nodes}");
        let short = token(&|_| (), SHORT.as_secs())?;
        replace(&file, &short)?;
        Ok(short)
    };
    let served = client.requests_after_refusal(&world, &world.first);
    let (requests, short) = tokio::try_join!(served, refused)?;
    let long = token(&|_| (), 3600)?;
    requests
        .none_fails(async {
            replace(&file, &long)?;
            world.wait_refused("expired", 1).await?;
            world.switch()?;
            requests.wait_backend(&world.second).await
        })
        .await
        .with_context(|| world.server.log().to_string())?;
    let log = world.server.log().to_string();
    ensure!(!log.contains(&short) && !log.contains(&long), "a token is in the log");
    Ok(())
}

#[tokio::test]
async fn an_envoy_is_served_by_its_token() -> Result<()> {
    is_served_by_its_token(Kind::Envoy(&[])).await
}

#[tokio::test]
async fn an_envoy_with_delta_is_served_by_its_token() -> Result<()> {
    is_served_by_its_token(Kind::Envoy(&["--delta"])).await
}

#[tokio::test]
async fn grpcio_is_served_by_its_token() -> Result<()> {
    is_served_by_its_token(Kind::Grpc(Library::Grpcio)).await
}

#[tokio::test]
async fn grpc_go_is_served_by_its_token() -> Result<()> {
    is_served_by_its_token(Kind::Grpc(Library::GrpcGo)).await
}

/// The life of the token that ends while it is used.
const SHORT: Duration = Duration::from_secs(25);
