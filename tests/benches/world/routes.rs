//! Changes in a world of many routes.

use std::cell::Cell;
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::json;
use tempfile::TempDir;
use xds_tests::certificates::Authority;
use xds_tests::footprint::Meter;
use xds_tests::raw;
use xds_tests::server::{Server, Setup};
use xds_tests::wait::wait_for;
use xds_tests::world::{self, World};

use crate::clients::{CLUSTERS, Follower, LISTENERS, ROUTES, envoy};
use crate::samples::{Samples, sample};

/// What was measured at one size.
pub(crate) struct Measured {
    pub(crate) n_routes: usize,
    /// From the start of the process until it is ready.
    pub(crate) ready: Duration,
    pub(crate) resident_mb: [u64; 2],
    /// By kind of change, always in the same order.
    pub(crate) changes: Vec<(&'static str, Samples)>,
}

/// A table of kinds of changes by size.
pub(crate) async fn table(sizes: &[usize]) -> Result<String> {
    let mut all = Vec::new();
    for n in sizes {
        all.push(measure(*n).await?);
    }
    let mut table = row("routes", all.iter().map(|one| one.n_routes.to_string()));
    table += &row("---", all.iter().map(|_| "---".to_owned()));
    table += &row("start until ready", all.iter().map(|one| format!("{:.2} s", one.ready.as_secs_f64())));
    let resident = |one: &Measured| format!("{} / {} MB", one.resident_mb[0], one.resident_mb[1]);
    table += &row("resident after load / after all changes", all.iter().map(resident));
    for i in 0..all.first().map_or(0, |one| one.changes.len()) {
        let of = |one: &Measured| one.changes.get(i).copied();
        let name = all.first().and_then(of).map_or("", |(name, _)| name);
        table += &row(name, all.iter().filter_map(of).map(|(_, samples)| samples.cell()));
    }
    Ok(table + "\nMedian until it is answered or seen / processor time of the server.\n")
}

fn row(name: &str, cells: impl Iterator<Item = String>) -> String {
    let mut row = format!("| {name} |");
    for cell in cells {
        let _ = write!(row, " {cell} |");
    }
    row + "\n"
}

/// Starts a server with a world of `n_routes` and changes it.
pub(crate) async fn measure(n_routes: usize) -> Result<Measured> {
    let dir = TempDir::with_prefix("xds-world-")?;
    World::new(n_routes).write(dir.path())?;
    fs::write(dir.path().join("secure.yaml"), secure())?;
    fs::write(dir.path().join("certificate.yaml"), certificate()?)?;
    let begun = Instant::now();
    let server = Server::start_with(Setup::metered()?.watch(dir.path())).await?;
    let ready = wait_for("readiness", LONG, async || server.get("/readyz").await?.success());
    ready.await.with_context(|| server.log().to_string())?;
    let ready = begun.elapsed();
    let meter = Meter::of(&server)?;
    let loaded = meter.resident()? >> 20;
    let mut changes = changes(&server, meter, n_routes).await?;
    changes.extend(followed(&server, meter, &dir).await?);
    Ok(Measured { n_routes, ready, resident_mb: [loaded, meter.resident()? >> 20], changes })
}

/// Changes that are answered.
async fn changes(server: &Server, meter: Meter, n: usize) -> Result<Vec<(&'static str, Samples)>> {
    let mut changes = vec![("`PATCH` of a weight", sample(meter, async |i| patch(server, i).await).await?)];
    let certificates: Vec<String> = (0..40).map(|_| certificate()).collect::<Result<_>>()?;
    let kinds: [(&'static str, &dyn Fn(usize) -> String); 7] = [
        ("an EndpointSlice", &|i| world::slice(&world::services(i)[0], "10.255.0.1")),
        ("a new Service with its EndpointSlice", &|i| {
            let name = format!("new-{i}");
            world::service(&name) + &world::slice(&name, "10.255.0.2")
        }),
        ("a new route with its Services", &|i| world::documents(n + i)),
        ("a route that moves to another host", &|i| {
            world::route(i).replace(&world::host(i), &format!("moved-{i}.example.com"))
        }),
        ("a certificate", &|i| certificates.get(i).cloned().unwrap_or_default()),
        ("a ReferenceGrant", &|i| {
            format!(
                "apiVersion: gateway.networking.k8s.io/v1beta1\nkind: ReferenceGrant\nmetadata: {{ name: grant-{i}, namespace: prod \
                 }}\nspec:\n  from: [{{ group: gateway.networking.k8s.io, kind: GRPCRoute, namespace: other }}]\n  to: [{{ group: \
                 \"\", kind: Service }}]\n"
            )
        }),
        ("a new Gateway", &|i| {
            world::gateway(&format!("edge-{i}"), 9_000 + u16::try_from(i).unwrap_or_default())
        }),
    ];
    for (name, document) in kinds {
        let change = async |i: usize| {
            server.request("POST", "/v1/apply", &YAML, document(i)).await?.success().map(drop)
        };
        changes.push((name, sample(meter, change).await.context(name)?));
    }
    Ok(changes)
}

const YAML: [(&str, &str); 1] = [("content-type", "application/yaml")];

async fn patch(server: &Server, i: usize) -> Result<()> {
    let [one, other] = world::services(i);
    let body = json!({"backends": {format!("{one}:80"): 40 + i % 40, format!("{other}:80"): 10}}).to_string();
    let headers = [("content-type", "application/merge-patch+json"), ("if-match", "*")];
    server.request("PATCH", &world::weights(i), &headers, body).await?.success().map(drop)
}

/// Changes that an Envoy gets: a weight, and an EndpointSlice in a file.
async fn followed(server: &Server, meter: Meter, dir: &TempDir) -> Result<Vec<(&'static str, Samples)>> {
    let everything: [(&str, &[&str]); 3] = [(LISTENERS, &[]), (CLUSTERS, &[]), (ROUTES, &["prod/edge/8000"])];
    let mut client = Follower::start(raw::connect(server.xds()).await?, envoy("envoy"), &everything).await?;
    let n = Cell::new(30);
    let weight = sample(meter, async |_| {
        client.mark();
        patch(server, n.replace(n.get() + 1)).await?;
        client.next().await
    });
    let weight = ("`PATCH` of a weight, until one Envoy has it", weight.await?);
    drop(client);
    let [service, _] = world::services(60);
    let assignment = format!("prod/{service}/80");
    let asks: [(&str, &[&str]); 1] = [(ENDPOINTS, &[&assignment])];
    let mut client = Follower::start(raw::connect(server.xds()).await?, envoy("envoy"), &asks).await?;
    let path = dir.path().join("routes-000000.yaml");
    let text = fs::read_to_string(&path)?;
    let file = sample(meter, async |i| {
        client.mark();
        let changed = world::slice(&service, &format!("10.254.0.{}", i + 1));
        fs::write(&path, text.replace(&world::slice(&service, &world::address(60)), &changed))?;
        client.next().await
    });
    Ok(vec![weight, ("an EndpointSlice in a file of 500 documents, until one Envoy has it", file.await?)])
}

const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
const LONG: Duration = Duration::from_secs(300);

/// A Gateway that ends TLS.
fn secure() -> String {
    world::gateway("secure", 8_443).replace(
        "protocol: HTTP",
        "protocol: HTTPS, hostname: secure.example.com, tls: { certificateRefs: [{ name: certificate }] }",
    )
}

/// What it shows; another one each time.
fn certificate() -> Result<String> {
    let issued = Authority::new()?.issue(&["secure.example.com"])?;
    Ok(issued.secret("prod", "certificate"))
}
