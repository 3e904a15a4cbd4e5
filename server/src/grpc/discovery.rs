//! The discovery services: one table of methods, one way to serve them.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use http::StatusCode;
use tonic::Status;
use xds_cache::ResourceType;
use xds_cache::status::Variant;

use crate::grpc::body::DiscoveryBody;
use crate::grpc::call::{answer, is_grpc, no_call, refusal};
use crate::grpc::gate::Caller;
use crate::grpc::kinds::StreamKind;
use crate::grpc::receive::Meter;
use crate::grpc::requests::{RequestFrames, Rules};
use crate::grpc::{Grpc, csds, fetch};

/// One method of a discovery service.
#[derive(Debug)]
struct Method {
    service: &'static str,
    name: &'static str,
    call: Call,
    /// `None` for ADS.
    resource_type: Option<ResourceType>,
}

/// How a method is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Stream(Variant),
    /// One request, one response.
    Fetch,
}

const SOTW: Call = Call::Stream(Variant::Sotw);
const DELTA: Call = Call::Stream(Variant::Delta);

/// All of them (rows A1 to A5). VHDS and LEDS are delta only.
static METHODS: [Method; 28] = [
    ads("StreamAggregatedResources", SOTW),
    ads("DeltaAggregatedResources", DELTA),
    method(LDS, "StreamListeners", SOTW, ResourceType::Listener),
    method(LDS, "DeltaListeners", DELTA, ResourceType::Listener),
    method(LDS, "FetchListeners", Call::Fetch, ResourceType::Listener),
    method(RDS, "StreamRoutes", SOTW, ResourceType::RouteConfiguration),
    method(RDS, "DeltaRoutes", DELTA, ResourceType::RouteConfiguration),
    method(RDS, "FetchRoutes", Call::Fetch, ResourceType::RouteConfiguration),
    method(SRDS, "StreamScopedRoutes", SOTW, ResourceType::ScopedRouteConfiguration),
    method(SRDS, "DeltaScopedRoutes", DELTA, ResourceType::ScopedRouteConfiguration),
    method(SRDS, "FetchScopedRoutes", Call::Fetch, ResourceType::ScopedRouteConfiguration),
    method(VHDS, "DeltaVirtualHosts", DELTA, ResourceType::VirtualHost),
    method(CDS, "StreamClusters", SOTW, ResourceType::Cluster),
    method(CDS, "DeltaClusters", DELTA, ResourceType::Cluster),
    method(CDS, "FetchClusters", Call::Fetch, ResourceType::Cluster),
    method(EDS, "StreamEndpoints", SOTW, ResourceType::ClusterLoadAssignment),
    method(EDS, "DeltaEndpoints", DELTA, ResourceType::ClusterLoadAssignment),
    method(EDS, "FetchEndpoints", Call::Fetch, ResourceType::ClusterLoadAssignment),
    method(LEDS, "DeltaLocalityEndpoints", DELTA, ResourceType::LbEndpoint),
    method(SDS, "StreamSecrets", SOTW, ResourceType::Secret),
    method(SDS, "DeltaSecrets", DELTA, ResourceType::Secret),
    method(SDS, "FetchSecrets", Call::Fetch, ResourceType::Secret),
    method(RTDS, "StreamRuntime", SOTW, ResourceType::Runtime),
    method(RTDS, "DeltaRuntime", DELTA, ResourceType::Runtime),
    method(RTDS, "FetchRuntime", Call::Fetch, ResourceType::Runtime),
    method(ECDS, "StreamExtensionConfigs", SOTW, ResourceType::ExtensionConfig),
    method(ECDS, "DeltaExtensionConfigs", DELTA, ResourceType::ExtensionConfig),
    method(ECDS, "FetchExtensionConfigs", Call::Fetch, ResourceType::ExtensionConfig),
];

/// Adds all methods to `router`.
pub(crate) fn add_to(mut router: Router, grpc: &Arc<Grpc>) -> Router {
    for method in &METHODS {
        let grpc = Arc::clone(grpc);
        let serve = move |request| {
            let grpc = Arc::clone(&grpc);
            async move { serve(grpc, method, request).await.unwrap_or_else(|status| refusal(&status)) }
        };
        router = router.route(&format!("/{}/{}", method.service, method.name), any(serve));
    }
    router
}

/// The answer for a path that nobody serves: `UNIMPLEMENTED` to gRPC (row A11, pitfall 64), else 404.
pub(crate) async fn unknown(request: Request) -> Response {
    if !is_grpc(request.headers()) {
        return (StatusCode::NOT_FOUND, "not found\n").into_response();
    }
    let path = request.uri().path();
    if path.split('/').nth(1) == Some(csds::SERVICE) {
        return refusal(&Status::unimplemented(
            "client status shows everything about every client, so it is served on the admin port, which needs a token; --xds-client-status serves it here too",
        ));
    }
    refusal(&Status::unimplemented(format!("{path:.200} is not served here; only xDS v3 is")))
}

/// The paths of all methods.
#[cfg(test)]
pub(crate) fn paths() -> Vec<&'static str> {
    let path = |method: &Method| format!("/{}/{}", method.service, method.name);
    METHODS.iter().map(|method| &*path(method).leak()).collect()
}

/// The names of the discovery services.
pub(crate) fn service_names() -> Vec<&'static str> {
    let mut names: Vec<_> = METHODS.iter().map(|method| method.service).collect();
    names.dedup();
    names
}

async fn serve(grpc: Arc<Grpc>, method: &'static Method, request: Request) -> Result<Response, Status> {
    let (parts, body) = request.into_parts();
    if let Some(answer) = no_call(&parts) {
        return Ok(answer);
    }
    let caller = Caller::of(&parts.extensions);
    let node_field = match method.call {
        Call::Stream(Variant::Delta) => DELTA_NODE,
        Call::Stream(Variant::Sotw) | Call::Fetch => SOTW_NODE,
    };
    let max_message_bytes = grpc.config.max_message_bytes;
    let rules = Rules { max_message_bytes, node_field: Some(node_field) };
    let mut requests = RequestFrames::new(body, rules, Meter::new(&grpc.receiving, caller.peer().clone()));
    match (method.call, &method.resource_type) {
        (Call::Stream(variant), service) => {
            let open = grpc.gate.open(&grpc.streams, &caller)?;
            let kind = StreamKind { variant, service: service.clone() };
            Ok(answer(Body::new(DiscoveryBody::new(grpc, open, kind, caller, requests))))
        }
        (Call::Fetch, Some(service)) => {
            let body = fetch::unary(&grpc, service, &caller, &mut requests).await?;
            Ok(answer(Body::new(body)))
        }
        (Call::Fetch, None) => Err(Status::unimplemented("there is no aggregated fetch")),
    }
}

const fn ads(name: &'static str, call: Call) -> Method {
    let service = "envoy.service.discovery.v3.AggregatedDiscoveryService";
    Method { service, name, call, resource_type: None }
}

const fn method(
    service: &'static str,
    name: &'static str,
    call: Call,
    resource_type: ResourceType,
) -> Method {
    Method { service, name, call, resource_type: Some(resource_type) }
}

const LDS: &str = "envoy.service.listener.v3.ListenerDiscoveryService";
const RDS: &str = "envoy.service.route.v3.RouteDiscoveryService";
/// With an s, unlike on the protocol page (row A3).
const SRDS: &str = "envoy.service.route.v3.ScopedRoutesDiscoveryService";
const VHDS: &str = "envoy.service.route.v3.VirtualHostDiscoveryService";
const CDS: &str = "envoy.service.cluster.v3.ClusterDiscoveryService";
const EDS: &str = "envoy.service.endpoint.v3.EndpointDiscoveryService";
const LEDS: &str = "envoy.service.endpoint.v3.LocalityEndpointDiscoveryService";
const SDS: &str = "envoy.service.secret.v3.SecretDiscoveryService";
const RTDS: &str = "envoy.service.runtime.v3.RuntimeDiscoveryService";
const ECDS: &str = "envoy.service.extension.v3.ExtensionConfigDiscoveryService";

/// `node` of a `DiscoveryRequest`, and of a `DeltaDiscoveryRequest`.
const SOTW_NODE: u32 = 2;
const DELTA_NODE: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_methods_of_the_protos() {
        let set = xds_codec::Codec::new().unwrap();
        for service in service_names() {
            let descriptor = set.pool().get_service_by_name(service).expect(service);
            let expected: Vec<_> = descriptor.methods().map(|method| method.name().to_owned()).collect();
            let mut served: Vec<_> =
                METHODS.iter().filter(|m| m.service == service).map(|m| m.name.to_owned()).collect();
            served.sort();
            let mut expected_sorted = expected;
            expected_sorted.sort();
            assert_eq!(served, expected_sorted, "{service}");
        }
    }
}
