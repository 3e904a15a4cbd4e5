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
use xds_tests::world::{self, World, native};

use crate::clients::{CLUSTERS, Follower, LISTENERS, ROUTES, envoy};
use crate::samples::{Samples, sample};

/// The form of the documents of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    GatewayApi,
    Native,
}

impl Form {
    pub(crate) const ALL: [Self; 2] = [Self::GatewayApi, Self::Native];

    /// The text before the names of its rows.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::GatewayApi => "",
            Self::Native => "native form: ",
        }
    }
}

/// The measurements at one size.
pub(crate) struct Measured {
    pub(crate) n_routes: usize,
    /// From the start of the process until it is ready.
    pub(crate) ready: Duration,
    pub(crate) resident_mb: [u64; 3],
    /// By kind of change, always in the same order.
    pub(crate) changes: Vec<(&'static str, Samples)>,
}

/// A table of kinds of changes by size, of each form.
pub(crate) async fn table(sizes: &[usize]) -> Result<String> {
    let mut table = row("routes", sizes.iter().map(ToString::to_string));
    table += &row("---", sizes.iter().map(|_| "---".to_owned()));
    for form in Form::ALL {
        let mut all = Vec::new();
        for n in sizes {
            all.push(measure(form, *n).await?);
        }
        table += &rows(form, &all);
    }
    Ok(table + "\nMedian until it is answered or seen / processor time of the server.\n")
}

fn rows(form: Form, all: &[Measured]) -> String {
    let row = |name: &str, cells: &dyn Fn(&Measured) -> String| {
        row(&format!("{}{name}", form.label()), all.iter().map(cells))
    };
    let mut rows = row("start until ready", &|one| format!("{:.2} s", one.ready.as_secs_f64()));
    rows += &row("resident when ready / a few seconds later / after all changes", &|one| {
        let [ready, later, changed] = one.resident_mb;
        format!("{ready} / {later} / {changed} MB")
    });
    let names = all.first().map(|one| one.changes.as_slice()).unwrap_or_default();
    for (i, (name, _)) in names.iter().enumerate() {
        rows += &row(name, &|one| one.changes.get(i).map(|(_, samples)| samples.cell()).unwrap_or_default());
    }
    rows
}

fn row(name: &str, cells: impl Iterator<Item = String>) -> String {
    let mut row = format!("| {name} |");
    for cell in cells {
        let _ = write!(row, " {cell} |");
    }
    row + "\n"
}

/// Starts a server with a world of `n_routes` and changes it.
pub(crate) async fn measure(form: Form, n_routes: usize) -> Result<Measured> {
    let dir = TempDir::with_prefix("xds-world-")?;
    let world = World::new(n_routes);
    match form {
        Form::GatewayApi => {
            world.write(dir.path())?;
            fs::write(dir.path().join("secure.yaml"), secure())?;
            fs::write(dir.path().join("certificate.yaml"), certificate()?)?;
        }
        Form::Native => world.write_native(dir.path())?,
    }
    let begun = Instant::now();
    let server = Server::start_with(Setup::metered()?.watch(dir.path())).await?;
    let ready = wait_for("readiness", LONG, async || server.get("/readyz").await?.success());
    ready.await.with_context(|| server.log().to_string())?;
    let ready = begun.elapsed();
    let meter = Meter::of(&server)?;
    let loaded = [meter.resident()? >> 20, settled(meter).await? >> 20];
    let mut changes = vec![(WEIGHT, sample(meter, async |i| patch(form, &server, i).await).await?)];
    match form {
        Form::GatewayApi => changes.extend(of_gateway_api(&server, meter, n_routes).await?),
        Form::Native => changes.extend(of_native(&server, meter, n_routes).await?),
    }
    changes.push(followed_weight(form, &server, meter).await?);
    if form == Form::GatewayApi {
        changes.push(followed_slice(&server, meter, &dir).await?);
    }
    Ok(Measured { n_routes, ready, resident_mb: [loaded[0], loaded[1], meter.resident()? >> 20], changes })
}

/// Resident bytes once they have not fallen for three seconds: what a load takes for itself is given back soon after it.
async fn settled(meter: Meter) -> Result<u64> {
    let (mut least, mut since) = (meter.resident()?, Instant::now());
    let deadline = Instant::now() + LONG;
    while since.elapsed() < Duration::from_secs(3) && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = meter.resident()?;
        // A page more or less is nothing.
        if now + (1 << 20) < least {
            (least, since) = (now, Instant::now());
        }
    }
    meter.resident()
}

const WEIGHT: &str = "`PATCH` of a weight";

/// Changes of documents of the Gateway API, which are answered.
async fn of_gateway_api(server: &Server, meter: Meter, n: usize) -> Result<Vec<(&'static str, Samples)>> {
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
    apply(server, meter, &kinds).await
}

/// Changes of documents of the native form.
async fn of_native(server: &Server, meter: Meter, n: usize) -> Result<Vec<(&'static str, Samples)>> {
    let kinds: [(&'static str, &dyn Fn(usize) -> String); 4] = [
        ("other endpoints of a backend", &|i| native::backend(&world::services(i)[0], "10.255.0.1")),
        ("a new backend", &|i| native::backend(&format!("new-{i}"), "10.255.0.2")),
        ("a new route with its backends", &|i| native::documents(n + i..n + i + 1)),
        ("a route that moves to another host", &|i| native::route(i, &format!("moved-{i}.example.com"))),
    ];
    apply(server, meter, &kinds).await
}

/// Documents of each kind, one after the other.
async fn apply(
    server: &Server,
    meter: Meter,
    kinds: &[(&'static str, &dyn Fn(usize) -> String)],
) -> Result<Vec<(&'static str, Samples)>> {
    let mut changes = Vec::new();
    for (name, document) in kinds {
        let change = async |i: usize| {
            server.request("POST", "/v1/apply", &YAML, document(i)).await?.success().map(drop)
        };
        changes.push((*name, sample(meter, change).await.context(*name)?));
    }
    Ok(changes)
}

const YAML: [(&str, &str); 1] = [("content-type", "application/yaml")];

async fn patch(form: Form, server: &Server, i: usize) -> Result<()> {
    let (path, port) = match form {
        Form::GatewayApi => (world::weights(i), ":80"),
        Form::Native => (native::weights(i), ""),
    };
    let [one, other] = world::services(i).map(|service| service + port);
    let body = json!({"backends": {one: 40 + i % 40, other: 10}}).to_string();
    let headers = [("content-type", "application/merge-patch+json"), ("if-match", "*")];
    server.request("PATCH", &path, &headers, body).await?.success().map(drop)
}

/// A weight that an Envoy gets.
async fn followed_weight(form: Form, server: &Server, meter: Meter) -> Result<(&'static str, Samples)> {
    let routes = match form {
        Form::GatewayApi => "prod/edge/8000",
        Form::Native => "default/edge/8000",
    };
    let everything: [(&str, &[&str]); 3] = [(LISTENERS, &[]), (CLUSTERS, &[]), (ROUTES, &[routes])];
    let mut client = Follower::start(raw::connect(server.xds()).await?, envoy("envoy"), &everything).await?;
    let n = Cell::new(30);
    let weight = sample(meter, async |_| {
        client.mark();
        patch(form, server, n.replace(n.get() + 1)).await?;
        client.next().await
    });
    Ok(("`PATCH` of a weight, until one Envoy has it", weight.await?))
}

/// An EndpointSlice in a file, which an Envoy gets.
async fn followed_slice(server: &Server, meter: Meter, dir: &TempDir) -> Result<(&'static str, Samples)> {
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
    Ok(("an EndpointSlice in a file of 500 documents, until one Envoy has it", file.await?))
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

/// A certificate to serve; another one each time.
fn certificate() -> Result<String> {
    let issued = Authority::new()?.issue(&["secure.example.com"])?;
    Ok(issued.secret("prod", "certificate"))
}
