//! Serves cases to a real client, one after the other, and keeps what it answers.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use envoy_types::pb::google::protobuf::Any;
use serde_json::{Value, json};
use xds_tests::bare::{Bare, Served};
use xds_tests::certificates::Authority;
use xds_tests::config::{self, CLUSTER, ENDPOINTS, LISTENER, ROUTE};
use xds_tests::envoy::Envoy;
use xds_tests::wait::PATIENCE;
use xds_tests::worker::{Library, Worker};

use crate::prediction::cases::Case;

/// A client whose answers are foreseen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    Envoy,
    Grpcio,
    GrpcGo,
    GrpcJs,
    GrpcJava,
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Envoy => "Envoy",
            Self::Grpcio => "grpcio",
            Self::GrpcGo => "grpc-go",
            Self::GrpcJs => "grpc-js",
            Self::GrpcJava => "grpc-java",
        })
    }
}

/// What a client did with a configuration.
pub(crate) enum Answer {
    Accepted,
    Rejected(String),
    /// Its process ended.
    Ended(String),
}

impl Answer {
    pub(crate) fn is_refused(&self) -> bool {
        !matches!(self, Self::Accepted)
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted => f.write_str("accepts"),
            Self::Rejected(text) => write!(f, "rejects: {}", text.replace('\n', " ")),
            Self::Ended(text) => write!(f, "ends: {}", text.replace('\n', " ")),
        }
    }
}

/// How long nothing comes any more before a case is over. A client answers and asks in one go.
pub(crate) const QUIET: Duration = Duration::from_millis(100);

/// An Envoy answers for its clusters once they are ready, which some never are.
const LIMIT: Duration = Duration::from_secs(2);

/// The answers of a client to cases; `None` if its toolchain is missing.
pub(crate) async fn ask(client: Client, cases: &[&Case], quiet: Duration) -> Result<Option<Vec<Answer>>> {
    match client {
        Client::Envoy => ask_envoy(cases, quiet).await.map(Some),
        Client::Grpcio => ask_grpc(Library::Grpcio, cases, quiet).await,
        Client::GrpcGo => ask_grpc(Library::GrpcGo, cases, quiet).await,
        Client::GrpcJs => ask_grpc(Library::GrpcJs, cases, quiet).await,
        Client::GrpcJava => ask_grpc(Library::GrpcJava, cases, quiet).await,
    }
}

async fn ask_envoy(cases: &[&Case], quiet: Duration) -> Result<Vec<Answer>> {
    let bare = Bare::start().await?;
    let mut envoy = start_envoy(&bare, quiet).await?;
    let mut answers = Vec::new();
    for case in cases {
        for kind in [ENDPOINTS, ROUTE, CLUSTER] {
            bare.serve(kind, of_kind(case, kind));
        }
        let (mut rejections, mut is_answered) = bare.settle(quiet, LIMIT).await;
        bare.serve(LISTENER, of_kind(case, LISTENER));
        let mut wait = async || {
            let (more, is_done) = bare.settle(quiet, LIMIT).await;
            is_answered &= is_done;
            rejections.extend(more);
            rejections.is_empty()
        };
        // Routes are asked for at once, but maybe not within so short a time.
        let is_fine = wait().await;
        let routes = names_of(case, ROUTE);
        if is_fine && !routes.is_empty() && bare.wait_names(ROUTE, &routes, LIMIT).await {
            wait().await;
        }
        if !is_answered {
            let ended = envoy.process_mut().try_exit().await?;
            let log = envoy.log().to_string();
            envoy = start_envoy(&bare, quiet).await?;
            if let Some(status) = ended {
                answers.push(Answer::Ended(format!("{status}: {}", log.lines().last().unwrap_or_default())));
                continue;
            }
            let names = case.encoded.iter().map(|(_, name, _)| name);
            let names: Vec<&String> = names.filter(|name| name.ends_with(&case.number.to_string())).collect();
            let is_own =
                |line: &&str| line.contains(" rejected: ") && names.iter().any(|name| line.contains(*name));
            rejections.extend(log.lines().filter(is_own).map(str::to_owned));
        }
        let answer = rejected(&rejections);
        answers.push(answer);
    }
    Ok(answers)
}

pub(crate) async fn start_envoy(bare: &Bare, quiet: Duration) -> Result<Envoy> {
    bare.forget();
    for kind in [ENDPOINTS, ROUTE, CLUSTER, LISTENER] {
        bare.serve(kind, Vec::new());
    }
    let service = json!({"envoy_grpc": {"cluster_name": "xds_cluster"}});
    let address = |port: u16| json!({"socket_address": {"address": "127.0.0.1", "port_value": port}});
    let bootstrap = json!({
        "node": {"id": "n", "cluster": "c"},
        "admin": {"address": address(0)},
        "dynamic_resources": {
            "ads_config": {"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": [service], "set_node_on_first_message_only": true},
            "cds_config": {"ads": {}, "resource_api_version": "V3"},
            "lds_config": {"ads": {}, "resource_api_version": "V3"},
        },
        "static_resources": {"clusters": [{
            "name": "xds_cluster", "type": "STATIC", "connect_timeout": "1s",
            "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": {}},
            }},
            "load_assignment": {"cluster_name": "xds_cluster", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(bare.addr().port())}}]}]},
        }]},
    });
    let envoy = Envoy::start(&bootstrap.to_string()).await?;
    bare.wait_asked(LISTENER).await?;
    ensure!(bare.settle(quiet, LIMIT).await.1, "an Envoy does not answer");
    Ok(envoy)
}

async fn ask_grpc(library: Library, cases: &[&Case], quiet: Duration) -> Result<Option<Vec<Answer>>> {
    let bare = Bare::start().await?;
    let files = tempfile::tempdir()?;
    let bootstrap = bootstrap(&bare, files.path())?;
    let Some(mut worker) = Worker::start(library, &bootstrap).await? else { return Ok(None) };
    let mut answers = Vec::new();
    for case in cases {
        for kind in [ENDPOINTS, CLUSTER, ROUTE, LISTENER] {
            bare.serve(kind, of_kind(case, kind));
        }
        let target = format!("xds:///l{}", case.number);
        let asking = async {
            let channel = worker.open(&target).await?;
            channel.state(true).await?;
            let is_asked = bare.wait_names(LISTENER, &[format!("l{}", case.number)], PATIENCE).await;
            ensure!(is_asked, "it does not ask");
            let (rejections, _) = bare.settle(quiet, LIMIT).await;
            channel.close().await?;
            bare.settle(quiet, LIMIT).await;
            anyhow::Ok(rejections)
        };
        let answer = match asking.await {
            Ok(rejections) => rejected(&rejections),
            Err(error) => Answer::Ended(error.to_string().chars().take(300).collect()),
        };
        if matches!(answer, Answer::Ended(_)) {
            drop(worker);
            bare.forget();
            worker = Worker::start(library, &bootstrap).await?.context("the worker is gone")?;
        }
        answers.push(answer);
    }
    Ok(Some(answers))
}

/// A bootstrap with certificates from files.
fn bootstrap(bare: &Bare, dir: &Path) -> Result<String> {
    let authority = Authority::new()?;
    let issued = authority.issue(&["a"])?;
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text)?;
        anyhow::Ok(path)
    };
    let mut bootstrap: Value = serde_json::from_str(&config::grpc_bootstrap(bare.addr(), "n"))?;
    bootstrap["certificate_providers"] = json!({"files": {"plugin_name": "file_watcher", "config": {
        "certificate_file": write("certificate.pem", issued.chain_pem())?,
        "private_key_file": write("key.pem", &issued.key_pem())?,
        "ca_certificate_file": write("authority.pem", &authority.pem())?,
        "refresh_interval": "600s",
    }}});
    Ok(bootstrap.to_string())
}

fn names_of(case: &Case, kind: &str) -> Vec<String> {
    of_kind(case, kind).into_iter().map(|served| served.name).collect()
}

fn of_kind(case: &Case, kind: &str) -> Vec<Served> {
    let own = case.encoded.iter().filter(|(url, _, _)| url == kind);
    own.map(|(url, name, bytes)| Served {
        name: name.clone(),
        any: Any { type_url: url.clone(), value: bytes.clone() },
    })
    .collect()
}

fn rejected(rejections: &[String]) -> Answer {
    match rejections {
        [] => Answer::Accepted,
        some => Answer::Rejected(some.join(" / ")),
    }
}
