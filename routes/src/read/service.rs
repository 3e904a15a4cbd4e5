//! Core Service.

use std::collections::BTreeSet;
use std::net::IpAddr;

use xds_codec::document::TreeValue;
use xds_codec::echo;

use super::address::{parse_port, read_dns_name};
use super::context::Context;
use super::fields::{Object, Reader, Value};
use crate::model::{Service, ServicePort, Spec, TargetPort, is_dns_label};

/// Reads a Service.
///
/// Only the fields that routing needs are read. All other fields of Kubernetes are accepted, so the output of `kubectl get -o yaml`
/// gives no warnings.
pub(crate) fn read_service(
    document: &mut Object<'_>,
    context: &Context<'_>,
    reader: &mut Reader,
) -> Option<Spec> {
    check_names(document, context, reader);
    let mut spec = document.need("spec", reader)?.object(reader)?;
    let is_external = match spec.take("type") {
        Some(kind) => kind.choice(&TYPES, reader) == Some("ExternalName"),
        None => false,
    };
    let external_name = match is_external {
        true => spec.need("externalName", reader).and_then(|name| read_dns_name(&name, reader)),
        false => None,
    };
    let cluster_ip = spec.take("clusterIP");
    let (is_headless, has_cluster_ip) =
        cluster_ip.map_or((false, false), |value| read_cluster_ip(&value, reader));
    let ports = spec.take("ports");
    let is_empty =
        ports.as_ref().is_none_or(|ports| ports.tree.as_list().is_some_and(|items| items.len() == 0));
    if is_empty && !is_external && !is_headless {
        reader.error("missing-field", spec.spot(), "a service needs at least one port under `ports`");
    }
    let ports = ports.map(|ports| read_ports(&ports, reader)).unwrap_or_default();
    spec.ignore(&["externalName"]);
    spec.ignore(&KUBERNETES_FIELDS);
    spec.finish(reader);
    Some(Spec::Service(Service { ports, external_name, has_cluster_ip }))
}

/// Checks that name and namespace are DNS labels, as in Kubernetes. Clients of the mesh call a service `name.namespace.svc`, so other
/// names could be patterns of hosts, or the same for two services.
fn check_names(document: &mut Object<'_>, context: &Context<'_>, reader: &mut Reader) {
    let Some(mut metadata) = document.take("metadata").and_then(|metadata| metadata.object(reader)) else {
        return;
    };
    for (field, text) in [("name", &context.key.name), ("namespace", &context.key.namespace)] {
        if !is_dns_label(text) || text.len() > MAX_LABEL {
            let spot = metadata.take(field).map_or_else(|| document.spot().clone(), |value| value.spot);
            let message = format!(
                "{} is not a {field} of a Service: 1 to {MAX_LABEL} lower-case letters, digits and `-` are allowed",
                echo(text)
            );
            reader.error("bad-name", &spot, message);
        }
    }
}

/// Returns whether the service is headless, and whether it has an address.
fn read_cluster_ip(value: &Value<'_>, reader: &mut Reader) -> (bool, bool) {
    match value.text(reader) {
        Some("None") => (true, false),
        Some("") | None => (false, false),
        Some(text) => {
            if text.parse::<IpAddr>().is_err() {
                let message = format!("{} is neither an address nor `None`", echo(text));
                reader.error("bad-address", &value.spot, message);
            }
            (false, true)
        }
    }
}

fn read_ports(value: &Value<'_>, reader: &mut Reader) -> Vec<ServicePort> {
    let items = value.list(MAX_PORTS, reader);
    let needs_names = items.len() > 1;
    let mut ports: Vec<ServicePort> = Vec::with_capacity(items.len());
    let mut names = BTreeSet::new();
    for item in items {
        let Some((port, is_tcp)) = read_port(&item, reader) else { continue };
        if needs_names && port.name.is_empty() {
            reader.error("missing-field", &item.spot, "a service with more than one port must name them");
        }
        if !port.name.is_empty() && !names.insert(port.name.clone()) {
            let message = format!("another port has the name {}", echo(&port.name));
            reader.error("duplicate-name", &item.spot, message);
        }
        if !is_tcp {
            continue;
        }
        if ports.iter().any(|other| other.port == port.port) {
            let message = format!("the port {} appears twice", port.port);
            reader.error("duplicate-port", &item.spot, message);
        }
        ports.push(port);
    }
    ports
}

/// Reads one port, and whether it is TCP. Other ports carry no HTTP, and are left out.
fn read_port(value: &Value<'_>, reader: &mut Reader) -> Option<(ServicePort, bool)> {
    let mut fields = value.object(reader)?;
    let name = read_port_name(&mut fields, reader);
    let port = fields.need("port", reader).and_then(|port| port.port(reader));
    let target = match fields.take("targetPort") {
        Some(target) => read_target(&target, reader),
        None => port.map(TargetPort::Number),
    };
    let is_tcp = read_protocol(&mut fields, reader);
    let app_protocol =
        fields.take("appProtocol").and_then(|protocol| protocol.text(reader)).map(str::to_owned);
    fields.ignore(&["nodePort"]);
    fields.finish(reader);
    let spot = value.spot.clone();
    Some((ServicePort { spot, name, port: port?, target: target?, app_protocol }, is_tcp))
}

/// Reads a number, or the name of a container's port. A number in quotes is a number too, because no name is all digits.
fn read_target(value: &Value<'_>, reader: &mut Reader) -> Option<TargetPort> {
    if !matches!(value.tree.value(), TreeValue::String(_)) {
        return value.port(reader).map(TargetPort::Number);
    }
    let text = value.bounded_text(1, 63, reader)?;
    if text.bytes().any(|byte| byte.is_ascii_alphabetic()) {
        return Some(TargetPort::Name(text.to_owned()));
    }
    match parse_port(text) {
        Ok(port) => {
            reader.warn("quoted-number", &value.spot, "the port is a number in quotes; remove the quotes");
            Some(TargetPort::Number(port))
        }
        Err(message) => {
            reader.error("bad-port", &value.spot, message);
            None
        }
    }
}

/// Reads the name of a port; empty if there is none.
pub(crate) fn read_port_name(port: &mut Object<'_>, reader: &mut Reader) -> String {
    port.take("name").and_then(|name| name.text(reader)).unwrap_or_default().to_owned()
}

/// Reads the protocol of a port. Returns `true` for TCP, the default.
pub(crate) fn read_protocol(port: &mut Object<'_>, reader: &mut Reader) -> bool {
    let protocol = port.take("protocol");
    protocol.is_none_or(|protocol| protocol.choice(&["TCP", "UDP", "SCTP"], reader) == Some("TCP"))
}

/// The longest label of the DNS.
const MAX_LABEL: usize = 63;

/// The types of services.
const TYPES: [&str; 4] = ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"];

/// Kubernetes has no limit for Services; its slices hold 100 ports.
pub(crate) const MAX_PORTS: usize = 1_000;

/// Fields of `spec` that do not affect routing.
const KUBERNETES_FIELDS: [&str; 17] = [
    "selector",
    "clusterIPs",
    "sessionAffinity",
    "sessionAffinityConfig",
    "ipFamilies",
    "ipFamilyPolicy",
    "internalTrafficPolicy",
    "externalTrafficPolicy",
    "externalIPs",
    "loadBalancerIP",
    "loadBalancerSourceRanges",
    "loadBalancerClass",
    "allocateLoadBalancerNodePorts",
    "healthCheckNodePort",
    "publishNotReadyAddresses",
    "trafficDistribution",
    "topologyKeys",
];

#[cfg(test)]
#[expect(clippy::panic, reason = "helpers of tests")]
mod tests {
    use super::*;
    use crate::read::testing::{clean, findings};

    fn service(spec: &str) -> String {
        format!("{{apiVersion: v1, kind: Service, metadata: {{name: s}}, spec: {spec}}}")
    }

    fn read(spec: &str) -> Service {
        let Spec::Service(service) = clean(&service(spec)) else { panic!("no Service") };
        service
    }

    #[test]
    fn what_kubectl_prints_is_read_without_a_warning() {
        let text = "
apiVersion: v1
kind: Service
metadata:
  annotations: {kubectl.kubernetes.io/last-applied-configuration: '{}'}
  creationTimestamp: '2024-05-01T12:00:00Z'
  labels: {app: greeter}
  name: greeter
  namespace: prod
  resourceVersion: '17'
  uid: 0f7c
spec:
  allocateLoadBalancerNodePorts: true
  clusterIP: 10.96.0.7
  clusterIPs: [10.96.0.7]
  externalTrafficPolicy: Cluster
  internalTrafficPolicy: Cluster
  ipFamilies: [IPv4]
  ipFamilyPolicy: SingleStack
  ports:
  - {name: grpc, nodePort: 30000, port: 50051, protocol: TCP, targetPort: grpc, appProtocol: kubernetes.io/h2c}
  - {name: dns, port: 53, protocol: UDP, targetPort: 53}
  - {name: dns-tcp, port: 53, protocol: TCP, targetPort: 53}
  - {name: rest, port: 9090}
  selector: {app: greeter}
  sessionAffinity: None
  type: LoadBalancer
status: {loadBalancer: {}}
";
        let Spec::Service(service) = clean(text) else { panic!("no Service") };
        assert!(service.has_cluster_ip);
        let ports: Vec<_> = service.ports.iter().map(|port| (&*port.name, port.port, &port.target)).collect();
        let expected = [
            ("grpc", 50_051, &TargetPort::Name("grpc".to_owned())),
            ("dns-tcp", 53, &TargetPort::Number(53)),
            ("rest", 9_090, &TargetPort::Number(9_090)),
        ];
        assert_eq!(ports, expected);
        assert_eq!(service.ports[0].app_protocol.as_deref(), Some("kubernetes.io/h2c"));
        assert_eq!(service.ports[2].spot.path.to_string(), "spec.ports[3]");
    }

    #[test]
    fn a_service_is_headless_external_or_has_ports() {
        let headless = read("{clusterIP: None}");
        assert_eq!((headless.has_cluster_ip, headless.ports.len()), (false, 0));
        assert!(!read("{clusterIP: '', ports: [{port: 1}]}").has_cluster_ip);
        assert!(read("{clusterIP: 'fd00::7', ports: [{port: 1}]}").has_cluster_ip);
        let external = read("{type: ExternalName, externalName: DB.example.com}");
        assert_eq!(external.external_name.as_deref(), Some("db.example.com"));
        assert_eq!(read("{externalName: left.over, ports: [{port: 1}]}").external_name, None);
    }

    #[test]
    fn the_name_of_a_service_is_a_label_because_it_is_called_by_it() {
        let named = |name: &str, namespace: &str| {
            format!(
                "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: {namespace}}}, spec: {{ports: [{{port: 1}}]}}}}"
            )
        };
        for (name, namespace) in [("greeter", "prod"), ("a-1", "'1'"), ("1a", "x")] {
            assert!(findings(&named(name, namespace)).is_empty(), "{name} {namespace}");
        }
        let long = "a".repeat(64);
        for name in ["'*'", "a.b", "A", "a_b", "-a", "a:80", &long] {
            assert_eq!(findings(&named(name, "prod")), ["error[bad-name] metadata.name"], "{name}");
            assert_eq!(findings(&named("a", name)), ["error[bad-name] metadata.namespace"], "{name}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_service_is_said_where_it_is() {
        let table = [
            ("{}", "error[missing-field] spec"),
            ("{ports: []}", "error[missing-field] spec"),
            ("{type: ExternalName}", "error[missing-field] spec"),
            ("{type: ExternalName, externalName: 10.0.0.1}", "error[bad-address] spec.externalName"),
            ("{type: clusterip, ports: [{port: 1}]}", "error[unknown-value] spec.type"),
            ("{clusterIP: none, ports: [{port: 1}]}", "error[bad-address] spec.clusterIP"),
            ("{ports: [{name: a}]}", "error[missing-field] spec.ports[0]"),
            ("{ports: [{port: 0}]}", "error[out-of-range] spec.ports[0].port"),
            ("{ports: [{port: 65536}]}", "error[out-of-range] spec.ports[0].port"),
            ("{ports: [{port: '80'}]}", "error[wrong-type] spec.ports[0].port"),
            ("{ports: [{port: 80, targetPort: '8080'}]}", "warning[quoted-number] spec.ports[0].targetPort"),
            ("{ports: [{port: 80, targetPort: '99999'}]}", "error[bad-port] spec.ports[0].targetPort"),
            ("{ports: [{port: 80, protocol: tcp}]}", "error[unknown-value] spec.ports[0].protocol"),
            ("{ports: [{port: 80, name: a}, {port: 81}]}", "error[missing-field] spec.ports[1]"),
            ("{ports: [{port: 80, name: a}, {port: 81, name: a}]}", "error[duplicate-name] spec.ports[1]"),
            ("{ports: [{port: 80, name: a}, {port: 80, name: b}]}", "error[duplicate-port] spec.ports[1]"),
            ("{ports: [{port: 80}], selectr: {a: b}}", "error[unknown-field] spec.selectr"),
            ("[]", "error[wrong-type] spec"),
        ];
        for (spec, expected) in table {
            assert_eq!(findings(&service(spec)), [expected], "{spec}");
        }
    }
}
