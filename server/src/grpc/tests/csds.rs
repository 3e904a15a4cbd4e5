//! Client status, as a tool that asks for it sees it.

use envoy_types::pb::envoy::config::core::v3::{Extension, Node};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
use envoy_types::pb::envoy::service::status::v3::client_config::GenericXdsConfig;
use envoy_types::pb::envoy::service::status::v3::{
    ClientConfig, ClientStatusRequest, ClientStatusResponse, ConfigStatus,
};
use envoy_types::pb::envoy::r#type::matcher::v3 as matcher;
use envoy_types::pb::google::rpc;
use prost::Message;
use serde_json::json;
use tonic::Code;
use tower::Service as _;
use xds_cache::{Resource, ResourceType};

use super::support::*;
use crate::grpc::GrpcConfig;

const FETCH: &str = "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus";
const STREAM: &str = "/envoy.service.status.v3.ClientStatusDiscoveryService/StreamClientStatus";

fn with_client_status() -> GrpcConfig {
    GrpcConfig { client_status: true, ..GrpcConfig::default() }
}

async fn fetch(server: &Server, request: ClientStatusRequest) -> Vec<ClientConfig> {
    let response: ClientStatusResponse = unary(&server.channel().await, FETCH, request).await.unwrap();
    response.config
}

/// The entry of a resource in the only client's status.
async fn config(server: &Server, name: &str) -> GenericXdsConfig {
    let clients = fetch(server, ClientStatusRequest::default()).await;
    let [client] = &clients[..] else { panic!("{} clients", clients.len()) };
    client.generic_xds_configs.iter().find(|config| config.name == name).cloned().unwrap()
}

#[tokio::test]
async fn row_a199_a_client_goes_through_every_status() {
    let server = Server::with(with_client_status()).await;
    server.world.publish([cluster("a", "1")]);
    let mut stream = Sotw::open(&server.channel().await, ADS).await.unwrap();
    stream.send(all_clusters("n"));
    let names = ["nowhere"];
    stream.send(sotw_request(ResourceType::ClusterLoadAssignment.type_url(), &names));
    let first = stream.next().await;
    let stale = config(&server, "a").await;
    assert_eq!(stale.config_status(), ConfigStatus::Stale);
    assert_eq!((stale.client_status, stale.error_state.clone()), (0, None));
    assert_eq!(stale.version_info, first.version_info);
    assert!(stale.last_updated.is_some());
    assert_eq!(stale.xds_config.unwrap(), first.resources[0]);
    let types = |world: &World| world.board.streams()[0].status().types;
    server.world.wait("the other type", |world| types(world).len() == 2).await;
    assert_eq!(config(&server, "nowhere").await.config_status(), ConfigStatus::NotSent);
    stream.send(DiscoveryRequest {
        response_nonce: first.nonce.clone(),
        error_detail: Some(rpc::Status { code: 13, message: "bad".into(), details: vec![] }),
        ..sotw_request(ResourceType::Cluster.type_url(), &[])
    });
    server.world.wait("the NACK", |world| types(world)[&ResourceType::Cluster].is_error).await;
    let rejected = config(&server, "a").await;
    assert_eq!(rejected.config_status(), ConfigStatus::Error);
    let error = rejected.error_state.unwrap();
    assert_eq!((error.details.as_str(), &error.version_info), ("bad", &first.version_info));
    assert_eq!(error.failed_configuration, rejected.xds_config);
    server.world.publish([cluster("a", "2")]);
    let second = stream.next().await;
    stream.ack(&second, &[]);
    server.world.wait("the ACK", |world| !types(world)[&ResourceType::Cluster].is_outstanding).await;
    let synced = config(&server, "a").await;
    assert_eq!((synced.config_status(), synced.error_state), (ConfigStatus::Synced, None));
}

#[tokio::test]
async fn rows_a197_a198_a202_a203_requests_are_answered_one_by_one() {
    let server = Server::with(with_client_status()).await;
    server.world.publish([cluster("a", "1")]);
    let channel = server.channel().await;
    let extension = Extension { name: "envoy.filters.http.router".into(), ..Default::default() };
    let mut streams = Vec::new();
    for id in ["edge-1", "edge-2", "other"] {
        let node = Node { id: id.into(), extensions: vec![extension.clone()], ..Default::default() };
        let mut stream = Sotw::open(&channel, ADS).await.unwrap();
        stream.send(DiscoveryRequest { node: Some(node), ..all_clusters(id) });
        stream.next().await;
        streams.push(stream);
    }
    let mut status =
        ClientStream::<ClientStatusRequest, ClientStatusResponse>::open(&channel, STREAM).await.unwrap();
    status.send(ClientStatusRequest::default());
    assert_eq!(status.next().await.config.len(), 3);
    server.world.publish([cluster("a", "2")]);
    let prefix = matcher::string_matcher::MatchPattern::Prefix("edge".into());
    let by_id = matcher::StringMatcher { ignore_case: false, match_pattern: Some(prefix) };
    let request = ClientStatusRequest {
        node_matchers: vec![matcher::NodeMatcher { node_id: Some(by_id), node_metadatas: vec![] }],
        exclude_resource_contents: true,
        ..Default::default()
    };
    status.send(request);
    let clients = status.next().await.config;
    assert_eq!(clients.len(), 2, "the answer to the second request, not one to the change");
    for client in clients {
        assert_eq!(client.node.unwrap().extensions, std::slice::from_ref(&extension));
        let [config] = &client.generic_xds_configs[..] else { panic!("not one resource") };
        assert_eq!(config.xds_config, None);
        assert!(!config.version_info.is_empty());
    }
    let nothing = matcher::NodeMatcher { node_id: Some(Default::default()), node_metadatas: vec![] };
    status.send(ClientStatusRequest { node_matchers: vec![nothing], ..Default::default() });
    assert_eq!(status.end().await.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_client_with_much_is_told_in_several_parts() {
    let server = Server::with(with_client_status()).await;
    let text = "x".repeat(50_000);
    server.world.publish((0..20).map(|i| cluster(&format!("c{i:02}"), &text)));
    let channel = server.channel().await;
    let mut streams = Vec::new();
    for id in ["a", "b"] {
        let mut stream = Sotw::open(&channel, ADS).await.unwrap();
        stream.send(all_clusters(id));
        stream.next().await;
        streams.push(stream);
    }
    let mut status =
        ClientStream::<ClientStatusRequest, ClientStatusResponse>::open(&channel, STREAM).await.unwrap();
    status.send(ClientStatusRequest::default());
    status.requests = None;
    let mut told: Vec<(String, String)> = Vec::new();
    let mut n_parts = 0;
    while let Some(part) = within("a part", status.responses.message()).await.unwrap() {
        n_parts += 1;
        assert!(part.encoded_len() < 400_000, "{} bytes", part.encoded_len());
        for client in part.config {
            let id = client.node.unwrap().id;
            told.extend(client.generic_xds_configs.into_iter().map(|config| (id.clone(), config.name)));
        }
    }
    let expected: Vec<_> = ["a", "b"]
        .iter()
        .flat_map(|id| (0..20).map(move |i| ((*id).to_owned(), format!("c{i:02}"))))
        .collect();
    assert!(n_parts > 5, "{n_parts} parts");
    assert_eq!(told, expected);
    let whole = fetch(&server, ClientStatusRequest::default()).await;
    let n_resources: Vec<_> = whole.iter().map(|client| client.generic_xds_configs.len()).collect();
    assert_eq!(n_resources, [20, 20], "one entry each");
}

#[tokio::test]
async fn without_being_told_to_the_xds_port_has_no_client_status() {
    let server = Server::start().await;
    let channel = server.channel().await;
    let refused: Result<ClientStatusResponse, _> =
        unary(&channel, FETCH, ClientStatusRequest::default()).await;
    let status = refused.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains("admin port"), "{status}");
    assert!(!listed_services(&server).await.iter().any(|name| name.contains("ClientStatus")));
    let told = Server::with(with_client_status()).await;
    assert!(listed_services(&told).await.iter().any(|name| name.contains("ClientStatus")));
}

async fn listed_services(server: &Server) -> Vec<String> {
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    let mut client = ServerReflectionClient::new(server.channel().await);
    let list = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut responses = client.server_reflection_info(tokio_stream::once(list)).await.unwrap().into_inner();
    let listed = within("the list", responses.message()).await.unwrap().unwrap();
    match listed.message_response {
        Some(MessageResponse::ListServicesResponse(listed)) => {
            listed.service.into_iter().map(|service| service.name).collect()
        }
        other => panic!("no list: {other:?}"),
    }
}

#[tokio::test]
async fn row_a204_pitfall_68_secrets_are_not_shown() {
    use envoy_types::pb::envoy::config::core::v3::{DataSource, data_source::Specifier};
    let inline = |text: &str| {
        Some(DataSource { specifier: Some(Specifier::InlineString(text.into())), ..Default::default() })
    };
    let certificate = tls::TlsCertificate {
        certificate_chain: inline("public part"),
        private_key: inline("hush-hush"),
        ..Default::default()
    };
    let secret =
        tls::Secret { name: "s".into(), r#type: Some(tls::secret::Type::TlsCertificate(certificate)) };
    let server = Server::with(with_client_status()).await;
    server.world.publish([Resource::plain(ResourceType::Secret, "s", secret.encode_to_vec())]);
    let mut stream = Sotw::open(&server.channel().await, ADS).await.unwrap();
    let request = sotw_request(ResourceType::Secret.type_url(), &["s"]);
    stream.send(DiscoveryRequest { node: node("n"), ..request });
    let contains = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(contains(&stream.next().await.encode_to_vec(), "hush-hush"), "the client gets it");
    let shown = fetch(&server, ClientStatusRequest::default()).await;
    let shown = shown[0].encode_to_vec();
    assert!(!contains(&shown, "hush-hush") && contains(&shown, "public part"));
}

#[tokio::test]
async fn row_a196_status_is_told_in_json_too() {
    let server = Server::with(with_client_status()).await;
    server.world.publish([cluster("a", "1")]);
    let mut stream = Sotw::open(&server.channel().await, ADS).await.unwrap();
    stream.send(all_clusters("n"));
    stream.next().await;
    let request =
        http::Request::post("/v3/discovery:client_status").body(axum::body::Body::from("{}")).unwrap();
    let response = server.world.grpc.admin_routes().call(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let config = &body["config"][0]["generic_xds_configs"][0];
    assert_eq!((&config["name"], &config["config_status"]), (&json!("a"), &json!("STALE")), "{body}");
}

#[tokio::test]
async fn services_are_listed_by_reflection() {
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    let server = Server::with(with_client_status()).await;
    let mut client = ServerReflectionClient::new(server.channel().await);
    let list = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let symbol = "envoy.service.discovery.v3.AggregatedDiscoveryService".to_owned();
    let find = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::FileContainingSymbol(symbol.clone())),
    };
    let requests = tokio_stream::iter([list, find]);
    let mut responses = client.server_reflection_info(requests).await.unwrap().into_inner();
    let listed = within("the list", responses.message()).await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(listed)) = listed.message_response else {
        panic!("no list")
    };
    let names: Vec<String> = listed.service.into_iter().map(|service| service.name).collect();
    assert!(names.contains(&symbol) && names.contains(&"grpc.health.v1.Health".to_owned()), "{names:?}");
    let found = within("the file", responses.message()).await.unwrap().unwrap();
    assert!(matches!(found.message_response, Some(MessageResponse::FileDescriptorResponse(_))));
}
