//! Every way into the server.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use prost::Message as _;
use prost_types::FileDescriptorProto;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{FileDescriptorResponse, ServerReflectionRequest};
use xds_tests::raw;
use xds_tests::server::{Server, Setup};

const REST: [&str; 10] = [
    "POST /v1/apply",
    "POST /v1/validate",
    "PUT /v1/groups/{group}",
    "PUT /v1/groups/{group}/resources",
    "PUT /v1/groups/{group}/resources/{type}/{name}",
    "POST /v1/rollback",
    "POST /v1/rollouts",
    "POST /v1/rollouts/{rollout}",
    "PUT /v1/weights/{kind}/{namespace}/{name}/{rule}",
    "PATCH /v1/weights/{kind}/{namespace}/{name}/{rule}",
];

/// The gRPC methods by what reads their messages: all discovery streams of a variant are served by the same code.
const GRPC: [&str; 7] = [
    "discovery, State of the World",
    "discovery, incremental",
    "discovery, unary",
    "client status",
    "load reports",
    "reflection",
    "health",
];

#[tokio::test]
async fn every_way_in_has_a_row() -> Result<()> {
    let server = Server::start_with(Setup::new()?).await?;
    let document = server.get_json("/openapi.json").await?;
    let mut with_body = BTreeSet::new();
    for (path, item) in document["paths"].as_object().context("no paths")? {
        for (method, operation) in item.as_object().context("no methods")? {
            if !operation["requestBody"].is_null() {
                with_body.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
    }
    let rows: BTreeSet<String> = REST.iter().map(|way| (*way).to_owned()).collect();
    assert_eq!(with_body, rows, "a REST endpoint that takes a body needs a row");

    for method in grpc_methods(&server).await? {
        let kind = kind_of(&method).with_context(|| format!("{method} needs a row"))?;
        ensure!(GRPC.contains(&kind), "{kind}");
    }
    Ok(())
}

/// The row of a gRPC method.
fn kind_of(method: &str) -> Option<&'static str> {
    let (service, name) = method.rsplit_once('/')?;
    let kind = match service {
        "envoy.service.status.v3.ClientStatusDiscoveryService" => "client status",
        "envoy.service.load_stats.v3.LoadReportingService" => "load reports",
        "grpc.health.v1.Health" => "health",
        "grpc.reflection.v1.ServerReflection" | "grpc.reflection.v1alpha.ServerReflection" => "reflection",
        _ if name.starts_with("Stream") => "discovery, State of the World",
        _ if name.starts_with("Delta") => "discovery, incremental",
        _ if name.starts_with("Fetch") => "discovery, unary",
        _ => return None,
    };
    Some(kind)
}

/// The methods of every service that reflection lists, as `service/Method`.
async fn grpc_methods(server: &Server) -> Result<Vec<String>> {
    let mut client = ServerReflectionClient::new(raw::connect(server.xds()).await?);
    let ask = |message: MessageRequest| ServerReflectionRequest {
        host: String::new(),
        message_request: Some(message),
    };
    let mut answer = async |message| -> Result<MessageResponse> {
        let answers = client.server_reflection_info(tokio_stream::once(ask(message))).await?;
        let answer = answers.into_inner().message().await?.context("no answer")?;
        answer.message_response.context("an empty answer")
    };
    let MessageResponse::ListServicesResponse(services) =
        answer(MessageRequest::ListServices(String::new())).await?
    else {
        anyhow::bail!("no list of services");
    };
    let mut methods = Vec::new();
    for service in services.service {
        let symbol = MessageRequest::FileContainingSymbol(service.name.clone());
        let MessageResponse::FileDescriptorResponse(FileDescriptorResponse { file_descriptor_proto }) =
            answer(symbol).await?
        else {
            anyhow::bail!("{} is listed and not described", service.name);
        };
        for file in file_descriptor_proto {
            methods.extend(methods_of(&file, &service.name)?);
        }
    }
    ensure!(methods.len() > 30, "{methods:?}");
    Ok(methods)
}

/// The methods of a service, as `service/Method`, if the file declares it.
fn methods_of(file: &[u8], service: &str) -> Result<Vec<String>> {
    let file = FileDescriptorProto::decode(file)?;
    let prefix = format!("{}.", file.package());
    let name = service.strip_prefix(&prefix).unwrap_or(service);
    let declared = file.service.iter().filter(|declared| declared.name() == name);
    let methods = declared.flat_map(|declared| &declared.method);
    Ok(methods.map(|method| format!("{service}/{}", method.name())).collect())
}
