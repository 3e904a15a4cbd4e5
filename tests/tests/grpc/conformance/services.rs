//! Services in all their forms, and the documents that say where their endpoints are (HTTPRouteServiceTypes).

use std::net::{Ipv6Addr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use xds_tests::backend::Backend;
use xds_tests::documents::{World, service};
use xds_tests::rpc::{Ask, Told};
use xds_tests::server::Variant;
use xds_tests::wait::{PATIENCE, wait_for};
use xds_tests::worker::{Calls, Library};

use crate::conformance::support::{Case, ECHO, Expected, ensure_shares, from, web_gateway};

/// A route of the gateway `web` whose path or gRPC service is the name of the Service, with `_` for `-` in the latter, for each
/// of them: port 8080.
fn route(kind: &str, services: &[&str]) -> String {
    let mut rules = String::new();
    for name in services {
        let matches = match kind {
            "HTTPRoute" => format!("path: {{type: PathPrefix, value: /{name}}}"),
            _ => format!("method: {{service: {}}}", name.replace('-', "_")),
        };
        rules += &format!("  - {{matches: [{{{matches}}}], backendRefs: [{{name: {name}, port: 8080}}]}}\n");
    }
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\nmetadata: {{name: r}}\nspec:\n  \
         parentRefs: [{{name: web}}]\n  hostnames: [a.com]\n  rules:\n{rules}---\n"
    )
}

fn call(service: &str) -> Ask {
    Ask::call("a.com", &format!("/{}/Call", service.replace('-', "_")))
}

fn get(service: &str) -> Ask {
    Ask::get("a.com", &format!("/{service}"))
}

/// Services for each of the backends, and a route to those that are `routed`.
async fn start(services: &[&str], kind: &str, documents: &str, routed: &[&str]) -> Result<Case> {
    Case::start(services, &["web"], &(web_gateway() + &route(kind, routed) + documents)).await
}

/// Services whose endpoints were written by hand: `manual`, `headless`, `headless-manual`, `families`, `numberless`.
const SERVICE_TYPES: &str = "
apiVersion: v1
kind: Service
metadata: {name: manual}
spec: {ports: [{name: first-port, port: 8080, protocol: TCP, targetPort: 3000}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: manual-ip4, labels: {kubernetes.io/service-name: manual}}
addressType: IPv4
ports: [{name: first-port, protocol: TCP, port: {v1}}, {name: second-port, protocol: TCP, port: 1}]
endpoints: [{addresses: [127.0.0.1], conditions: {ready: true}}]
---
apiVersion: v1
kind: Service
metadata: {name: headless}
spec: {clusterIP: None, selector: {app: any}, ports: [{port: 8080, targetPort: 3000}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: headless-xyz12, labels: {kubernetes.io/service-name: headless}}
addressType: IPv4
ports: [{name: '', port: {v2}}]
endpoints: [{addresses: [127.0.0.1], conditions: {ready: true, serving: true, terminating: false}, nodeName: n1}]
---
apiVersion: v1
kind: Service
metadata: {name: headless-manual}
spec: {clusterIP: None, ports: [{name: main, port: 8080, targetPort: main}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: by-hand, labels: {kubernetes.io/service-name: headless-manual}}
addressType: IPv4
ports: [{name: main, port: {v3}}]
endpoints: [{addresses: [127.0.0.1]}]
---
apiVersion: v1
kind: Service
metadata: {name: families}
spec: {ipFamilyPolicy: PreferDualStack, ports: [{name: main, port: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: families-4, labels: {kubernetes.io/service-name: families}}
addressType: IPv4
ports: [{name: main, port: {v1}}]
endpoints: [{addresses: [127.0.0.1]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: families-6, labels: {kubernetes.io/service-name: families}}
addressType: IPv6
ports: [{name: main, port: {v1}}]
endpoints: []
---
apiVersion: v1
kind: Service
metadata: {name: numberless}
spec: {ports: [{name: main, port: 8080, targetPort: {v2}}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: numberless-1, labels: {kubernetes.io/service-name: numberless}}
addressType: IPv4
ports: [{name: main}]
endpoints: [{addresses: [127.0.0.1]}]
";

const TYPES: [(&str, &str); 5] = [
    ("manual", "v1"),
    ("headless", "v2"),
    ("headless-manual", "v3"),
    ("families", "v1"),
    ("numberless", "v2"),
];

/// Conformance: HTTPRouteServiceTypes.
#[tokio::test]
async fn http_route_service_types() -> Result<()> {
    let names = TYPES.map(|(name, _)| name);
    let case = start(&["v1", "v2", "v3"], "HTTPRoute", SERVICE_TYPES, &names).await?;
    case.check("web", &TYPES.map(|(name, backend)| (get(name), from(backend)))).await
}

#[tokio::test]
async fn grpc_route_service_types() -> Result<()> {
    let names = TYPES.map(|(name, _)| name);
    let case = start(&["v1", "v2", "v3"], "GRPCRoute", SERVICE_TYPES, &names).await?;
    let requests = TYPES.map(|(name, backend)| (call(name), from(backend)));
    case.check("web", &requests).await?;
    case.check_proxyless("web", &requests).await
}

#[tokio::test]
async fn slices_are_joined_and_an_address_counts_once() -> Result<()> {
    let documents = "
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {ports: [{name: main, port: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: one, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
ports: [{name: main, port: {v1}}]
endpoints: [{addresses: [127.0.0.1]}, {addresses: [127.0.0.1]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: two, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
ports: [{name: main, port: {v2}}]
endpoints: [{addresses: [127.0.0.1]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: three, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
ports: [{name: main, port: {v1}}]
endpoints: [{addresses: [127.0.0.1]}]
";
    let case = start(&["v1", "v2"], "GRPCRoute", documents, &["shop"]).await?;
    expect_shares(&case, &call("shop"), &[("v1", 50), ("v2", 50)]).await?;
    expect_shares_of_grpc_clients(&case, &[("v1", 50), ("v2", 50)]).await
}

/// Asks until the shares are as expected: connections of some endpoints may come later.
async fn expect_shares(case: &Case, ask: &Ask, shares: &[(&str, usize)]) -> Result<()> {
    wait_for("the shares", PATIENCE, async || ensure_shares(&case.shares("web", ask, 200).await?, shares))
        .await
}

/// The same requests by proxyless clients, which call the Service `shop`.
async fn expect_shares_of_grpc_clients(case: &Case, shares: &[(&str, usize)]) -> Result<()> {
    for library in Library::ALL {
        let Some(worker) = case.world.worker(library).await? else { continue };
        let channel = worker.open("xds:///a.com").await?;
        let mut calls = Calls::new(400);
        calls.method = call("shop").path;
        wait_for("the shares", PATIENCE, async || {
            let counts = channel.call(&calls).await?;
            counts.ensure_no_errors()?;
            for (backend, percent) in shares {
                let n = counts.n_of(backend);
                let expected = u64::try_from(*percent)? * 4;
                ensure!(
                    n.abs_diff(expected) <= 60,
                    "{library}: {backend} has {n}, not {expected}: {counts:?}"
                );
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// Three endpoints of a Service, with these conditions.
fn with_conditions(conditions: [&str; 3]) -> String {
    let mut text =
        "apiVersion: v1\nkind: Service\nmetadata: {name: shop}\nspec: {ports: [{port: 8080}]}\n---\n"
            .to_owned();
    for (backend, conditions) in ["v1", "v2", "v3"].into_iter().zip(conditions) {
        text += &format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {backend}, labels: \
             {{kubernetes.io/service-name: shop}}}}\naddressType: IPv4\nports: [{{port: {{{backend}}}}}]\n\
             endpoints: [{{addresses: [127.0.0.1], conditions: {{{conditions}}}}}]\n---\n"
        );
    }
    text
}

#[tokio::test]
async fn what_is_not_ready_gets_nothing_and_what_goes_away_the_last_requests() -> Result<()> {
    const READY: &str = "ready: true";
    const NOT_READY: &str = "ready: false";
    const DRAINING: &str = "ready: false, serving: true, terminating: true";
    let case = start(&["v1", "v2", "v3"], "HTTPRoute", "", &["shop"]).await?;
    let world = &case.world;
    let ask = get("shop");
    world.write("shop.yaml", &with_conditions([READY, NOT_READY, DRAINING]))?;
    expect_shares(&case, &ask, &[("v1", 100)]).await?;
    world.write("shop.yaml", &with_conditions([NOT_READY, "", DRAINING]))?;
    expect_shares(&case, &ask, &[("v2", 100)]).await?;
    // When nothing else is left, what goes away still serves, as in Kubernetes.
    world.write("shop.yaml", &with_conditions([NOT_READY, NOT_READY, DRAINING]))?;
    expect_shares(&case, &ask, &[("v3", 100)]).await?;
    world.write("shop.yaml", &with_conditions([NOT_READY, NOT_READY, NOT_READY]))?;
    expect_shares(&case, &ask, &[("503", 100)]).await
}

#[tokio::test]
async fn ports_are_joined_by_name_and_target_ports_may_have_names() -> Result<()> {
    let documents = "
apiVersion: v1
kind: Service
metadata: {name: shop}
spec:
  ports:
  - {name: web, port: 8080, targetPort: http-alt}
  - {name: admin, port: 9090, targetPort: 9999}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop-1, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
ports: [{name: admin, port: {v2}}, {name: web, port: {v1}}, {name: web-udp, protocol: UDP, port: 53}]
endpoints: [{addresses: [127.0.0.1]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: admin}
spec:
  parentRefs: [{name: web}]
  hostnames: [a.com]
  rules: [{matches: [{path: {type: PathPrefix, value: /admin}}], backendRefs: [{name: shop, port: 9090}]}]
";
    let case = start(&["v1", "v2"], "HTTPRoute", documents, &["shop"]).await?;
    case.check("web", &[(get("shop"), from("v1")), (get("admin"), from("v2"))]).await?;
    // Only the name counts: what is called otherwise is no endpoint of the port.
    case.world.config.edit("case.yaml", "}, {name: web, ", "}, {name: other, ")?;
    case.check("web", &[(get("shop"), Expected::Code(503)), (get("admin"), from("v2"))]).await
}

/// Returns `true` if the backend was spoken to by HTTP/2: there, the host is no header.
fn is_http2(told: &Told) -> Result<bool> {
    Ok(told.request_header("host")?.is_none())
}

#[tokio::test]
async fn http_route_backend_protocol_h2c() -> Result<()> {
    let case = start(&["v1"], "HTTPRoute", "", &["shop", "h2c", "named"]).await?;
    let slice = |name: &str| {
        format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}, labels: \
             {{kubernetes.io/service-name: {name}}}}}\naddressType: IPv4\nports: [{{name: main, port: {{v1}}}}]\n\
             endpoints: [{{addresses: [127.0.0.1]}}]\n---\n"
        )
    };
    let service = |name: &str, port: &str| {
        let service = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{name: main, port: 8080{port}}}]}}\n---\n"
        );
        service + &slice(name)
    };
    let documents = service("shop", "")
        + &service("h2c", ", appProtocol: kubernetes.io/h2c")
        + &service("named", ", appProtocol: http");
    case.world.write("services-by-protocol.yaml", &documents)?;
    for (name, expected) in [("shop", false), ("h2c", true), ("named", false)] {
        let told = case.world.expect_from("web", &get(name), "v1").await?;
        assert_eq!(is_http2(&told)?, expected, "{name}");
    }
    // Trailers come through, so that gRPC does.
    case.world.expect_from("web", &Ask::call("a.com", "/h2c/Call"), "v1").await.map(drop)
}

#[tokio::test]
async fn a_grpc_route_speaks_http2_to_any_backend() -> Result<()> {
    let case = start(&["v1"], "GRPCRoute", "", &["v1"]).await?;
    let told = case.world.expect_from("web", &call("v1"), "v1").await?;
    ensure!(is_http2(&told)?, "{told:?}");
    let call = Ask::call("a.com", &format!("/{ECHO}/Echo"));
    case.world.expect_code("web", &call, xds_tests::rpc::UNIMPLEMENTED).await.map(drop)
}

#[tokio::test]
async fn zones_are_localities_and_endpoints_of_all_zones_get_as_much() -> Result<()> {
    let documents = "
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {ports: [{port: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop-1, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
ports: [{port: {v1}}]
endpoints: [{addresses: [127.0.0.1], zone: north, hints: {forZones: [{name: north}]}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop-2, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
ports: [{port: {v2}}]
endpoints: [{addresses: [127.0.0.1], zone: south}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop-3, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
ports: [{port: {v3}}]
endpoints: [{addresses: [127.0.0.1], zone: south}]
";
    let case = start(&["v1", "v2", "v3"], "GRPCRoute", documents, &["shop"]).await?;
    let shares = [("v1", 33), ("v2", 33), ("v3", 33)];
    expect_shares(&case, &call("shop"), &shares).await?;
    let zones = zones_of(&case.envoy.config_dump().await?.0, "default/shop/8080")?;
    assert_eq!(zones, [("north".to_owned(), 1), ("south".to_owned(), 2)]);
    expect_shares_of_grpc_clients(&case, &shares).await
}

/// The zones of a cluster's endpoints, and how many each has.
fn zones_of(dump: &Value, cluster: &str) -> Result<Vec<(String, usize)>> {
    let configs = dump["configs"].as_array().context("no configs")?;
    let mut endpoints = configs.iter().flat_map(|config| {
        let list = config["dynamic_endpoint_configs"].as_array();
        list.into_iter().flatten().map(|entry| &entry["endpoint_config"])
    });
    let found = endpoints.rfind(|one| one["cluster_name"] == cluster);
    let found = found.with_context(|| format!("no endpoints of {cluster}"))?;
    let localities = found["endpoints"].as_array().context("no localities")?;
    let mut zones = Vec::new();
    for locality in localities {
        let zone = locality["locality"]["zone"].as_str().unwrap_or_default().to_owned();
        zones.push((zone, locality["lb_endpoints"].as_array().map_or(0, Vec::len)));
    }
    zones.sort();
    Ok(zones)
}

#[tokio::test]
async fn endpoints_of_old_are_read_unless_there_are_slices() -> Result<()> {
    let documents = "
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {ports: [{name: main, port: 8080}]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: shop}
subsets:
- addresses: [{ip: 127.0.0.1}]
  ports: [{name: main, port: {v1}, protocol: TCP}]
- notReadyAddresses: [{ip: 127.0.0.1}]
  ports: [{name: main, port: {v2}, protocol: TCP}]
";
    let case = start(&["v1", "v2", "v3"], "HTTPRoute", documents, &["shop"]).await?;
    expect_shares(&case, &get("shop"), &[("v1", 100)]).await?;
    let slice = "
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop-1, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
ports: [{name: main, port: {v3}}]
endpoints: [{addresses: [127.0.0.1]}]
";
    case.world.write("slice.yaml", slice)?;
    expect_shares(&case, &get("shop"), &[("v3", 100)]).await
}

#[tokio::test]
async fn endpoints_may_have_addresses_of_ipv6() -> Result<()> {
    let Ok(six) = Backend::start_at("six", SocketAddr::from((Ipv6Addr::LOCALHOST, 0))).await else {
        // The machine has no IPv6: nothing could be reached.
        return Ok(());
    };
    let mut world = World::start(&[]).await?;
    world.ports(&["web"])?;
    let documents = web_gateway()
        + &route("GRPCRoute", &["shop"])
        + &service("default", "shop", 8080, six.addr())
            .replace("addressType: IPv4", "addressType: IPv6")
            .replace("[::1]", "['::1']");
    world.write("case.yaml", &documents)?;
    world.backends.insert("six".to_owned(), six);
    let _envoy = world.envoy(Variant::Sotw).await?;
    world.expect_from("web", &call("shop"), "six").await?;
    for library in Library::ALL {
        let Some(worker) = world.worker(library).await? else { continue };
        let mut calls = Calls::new(3);
        calls.method = call("shop").path;
        let counts = worker.open("xds:///a.com").await?.call(&calls).await?;
        assert_eq!(counts.n_of("six"), 3, "{library}: {counts:?}");
    }
    Ok(())
}
