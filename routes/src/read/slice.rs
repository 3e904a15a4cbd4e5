//! EndpointSlices, and Endpoints, which are read as slices.

use std::collections::BTreeSet;
use std::net::IpAddr;

use xds_codec::document::Node;
use xds_codec::echo;

use super::address::{parse_dns_name, parse_ip, read_ip};
use super::context::Context;
use super::fields::{Object, Reader, Value};
use super::service::{MAX_PORTS, read_port_name, read_protocol};
use crate::model::{AddressType, EndpointSlice, SliceEndpoint, SlicePort, Spec};

/// Reads an EndpointSlice.
pub(crate) fn read_endpoint_slice(
    document: &mut Object<'_>,
    _context: &Context<'_>,
    reader: &mut Reader,
) -> Option<Spec> {
    let service = service_label(document);
    let (ports, list) = (document.take("ports"), document.take("endpoints"));
    let family = document.need("addressType", reader).and_then(|family| family.choice(&FAMILIES, reader));
    let ports = ports.map(|ports| read_ports(&ports, Ports::OfSlice, reader)).unwrap_or_default();
    let family = Family::of_name(family?);
    let items = list.map(|list| list.list(MAX_ENDPOINTS, reader)).unwrap_or_default();
    let mut endpoints = Vec::with_capacity(items.len());
    endpoints.extend(items.iter().filter_map(|item| read_endpoint(item, family, reader)));
    if service.is_none() {
        let message = format!("the label {SERVICE_LABEL} is missing, so the slice belongs to no service");
        reader.warn("no-service", document.spot(), message);
    } else if ports.is_empty() && !endpoints.is_empty() {
        reader.warn(
            "no-ports",
            document.spot(),
            "the slice has no ports, so it serves no port of its service",
        );
    }
    let address_type = if family == Family::Fqdn { AddressType::Fqdn } else { AddressType::Ip };
    Some(Spec::EndpointSlice(EndpointSlice { service, address_type, ports, endpoints }))
}

/// Reads an Endpoints object: each subset becomes a slice of the service with the same name.
pub(crate) fn read_endpoints(
    document: &mut Object<'_>,
    context: &Context<'_>,
    reader: &mut Reader,
) -> Option<Spec> {
    let mut slices = Vec::new();
    let subsets = document.take("subsets").map(|subsets| subsets.list(MAX_SUBSETS, reader));
    for item in subsets.unwrap_or_default() {
        let Some(mut subset) = item.object(reader) else { continue };
        let ports = match subset.take("ports") {
            Some(ports) => read_ports(&ports, Ports::OfSubset, reader),
            None => Vec::new(),
        };
        let mut endpoints = Vec::new();
        for (field, is_ready) in [("addresses", true), ("notReadyAddresses", false)] {
            let Some(list) = subset.take(field) else { continue };
            let items = list.list(MAX_ENDPOINTS, reader);
            endpoints.reserve_exact(items.len());
            endpoints.extend(items.iter().filter_map(|item| read_subset_address(item, is_ready, reader)));
        }
        subset.finish(reader);
        let service = Some(context.key.name.to_string());
        slices.push(EndpointSlice { service, address_type: AddressType::Ip, ports, endpoints });
    }
    Some(Spec::Endpoints(slices))
}

/// Reads the service of a slice from its labels. Errors in labels are reported when the metadata is read.
fn service_label(document: &mut Object<'_>) -> Option<String> {
    let metadata = document.take("metadata")?;
    let label = metadata.tree.get("labels")?.get(SERVICE_LABEL).and_then(Node::as_str)?;
    Some(label.to_owned()).filter(|label| !label.is_empty())
}

fn read_endpoint(value: &Value<'_>, family: Family, reader: &mut Reader) -> Option<SliceEndpoint> {
    let mut fields = value.object(reader)?;
    let mut addresses = Vec::new();
    if let Some(list) = fields.need("addresses", reader) {
        let items = list.list(MAX_ADDRESSES, reader);
        if items.is_empty() && list.is_list() {
            reader.error("missing-field", &list.spot, "an endpoint needs at least one address");
        }
        addresses.reserve_exact(items.len());
        addresses.extend(items.iter().filter_map(|item| read_address(item, family, reader)));
    }
    let (is_ready, is_serving, is_terminating) = match fields.take("conditions") {
        Some(conditions) => read_conditions(&conditions, reader)?,
        None => (true, true, false),
    };
    let zone = fields.take("zone").and_then(|zone| zone.bounded_text(0, MAX_ZONE, reader));
    let zone = zone.unwrap_or_default().to_owned();
    fields.ignore(&["hostname", "nodeName", "targetRef", "deprecatedTopology", "hints"]);
    fields.finish(reader);
    Some(SliceEndpoint { addresses, is_ready, is_serving, is_terminating, zone })
}

/// Reads ready, serving and terminating. Without them, an endpoint is ready, serves if it is ready, and does not terminate.
fn read_conditions(value: &Value<'_>, reader: &mut Reader) -> Option<(bool, bool, bool)> {
    let mut fields = value.object(reader)?;
    let mut read = |name| fields.take(name).and_then(|value| value.truth(reader));
    let (ready, serving, terminating) = (read("ready"), read("serving"), read("terminating"));
    fields.finish(reader);
    let is_ready = ready.unwrap_or(true);
    Some((is_ready, serving.unwrap_or(is_ready), terminating.unwrap_or(false)))
}

/// Reads an address in its canonical form.
fn read_address(value: &Value<'_>, family: Family, reader: &mut Reader) -> Option<String> {
    let text = value.text(reader)?;
    let parsed = match family {
        Family::V4 | Family::V6 => parse_ip(text).and_then(|address| match (address, family) {
            (IpAddr::V4(_), Family::V4) | (IpAddr::V6(_), Family::V6) => Ok(address.to_string()),
            _ => Err(format!("{address} is not an address of the slice's `addressType`")),
        }),
        Family::Fqdn => parse_dns_name(text),
    };
    parsed.map_err(|message| reader.error("bad-address", &value.spot, message)).ok()
}

fn read_subset_address(value: &Value<'_>, is_ready: bool, reader: &mut Reader) -> Option<SliceEndpoint> {
    let mut fields = value.object(reader)?;
    let address = read_ip(&fields.need("ip", reader)?, reader)?;
    fields.ignore(&["hostname", "nodeName", "targetRef"]);
    fields.finish(reader);
    Some(SliceEndpoint {
        addresses: vec![address.to_string()],
        is_ready,
        is_serving: is_ready,
        is_terminating: false,
        zone: String::new(),
    })
}

/// Reads the TCP ports; other ports carry no HTTP.
fn read_ports(value: &Value<'_>, ports_of: Ports, reader: &mut Reader) -> Vec<SlicePort> {
    let items = value.list(MAX_PORTS, reader);
    let mut ports: Vec<SlicePort> = Vec::with_capacity(items.len());
    let mut names = BTreeSet::new();
    for item in items {
        let Some((port, is_tcp)) = read_port(&item, ports_of, reader) else { continue };
        if !names.insert(port.name.clone()) {
            let message = format!("another port has the name {}", echo(&port.name));
            reader.error("duplicate-name", &item.spot, message);
        }
        if is_tcp {
            ports.push(port);
        }
    }
    ports
}

fn read_port(value: &Value<'_>, ports_of: Ports, reader: &mut Reader) -> Option<(SlicePort, bool)> {
    let mut fields = value.object(reader)?;
    let name = read_port_name(&mut fields, reader);
    let number = match ports_of {
        Ports::OfSlice => fields.take("port"),
        Ports::OfSubset => fields.need("port", reader),
    };
    let port = number.and_then(|number| number.port(reader));
    let is_tcp = read_protocol(&mut fields, reader);
    fields.ignore(&["appProtocol"]);
    fields.finish(reader);
    Some((SlicePort { name, port }, is_tcp))
}

/// The owner of ports: only those of a slice can omit the number.
#[derive(Clone, Copy)]
enum Ports {
    OfSlice,
    OfSubset,
}

/// `addressType`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
    Fqdn,
}

impl Family {
    fn of_name(name: &str) -> Self {
        match name {
            "IPv4" => Self::V4,
            "IPv6" => Self::V6,
            _ => Self::Fqdn,
        }
    }
}

const FAMILIES: [&str; 3] = ["IPv4", "IPv6", "FQDN"];

/// The label with the name of a slice's service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// Kubernetes allows 1,000 in a slice, but files written by hand may join slices, and Endpoints have no limit.
const MAX_ENDPOINTS: usize = 10_000;

/// The limit of Kubernetes.
const MAX_ADDRESSES: usize = 100;

/// There is one subset for each set of ports, and pods have few different sets.
const MAX_SUBSETS: usize = 1_000;

/// The limit of names.
const MAX_ZONE: usize = 253;

#[cfg(test)]
#[expect(clippy::panic, reason = "helpers of tests")]
mod tests {
    use super::*;
    use crate::read::testing::{clean, documents, findings};

    const HEAD: &str = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: s-1, labels: {kubernetes.io/service-name: s}}\n";

    fn read(body: &str) -> EndpointSlice {
        let Spec::EndpointSlice(slice) = clean(&format!("{HEAD}{body}")) else { panic!("no EndpointSlice") };
        slice
    }

    #[test]
    fn what_kubectl_prints_is_read_without_a_warning() {
        let slice = read(
            "addressType: IPv6
ports: [{appProtocol: grpc, name: grpc, port: 50051, protocol: TCP}, {name: dns, port: 53, protocol: UDP}]
endpoints:
- addresses: ['2001:DB8::0:1']
  conditions: {ready: true, serving: true, terminating: false}
  hints: {forZones: [{name: a}]}
  nodeName: n1
  targetRef: {kind: Pod, name: p1}
  zone: a
",
        );
        assert_eq!(slice.service.as_deref(), Some("s"));
        assert_eq!(slice.address_type, AddressType::Ip);
        assert_eq!(slice.ports, [SlicePort { name: "grpc".to_owned(), port: Some(50_051) }]);
        let [endpoint] = slice.endpoints.as_slice() else { panic!("one endpoint") };
        assert_eq!((endpoint.addresses.as_slice(), &*endpoint.zone), (&["2001:db8::1".to_owned()][..], "a"));
    }

    #[test]
    fn an_endpoint_that_does_not_say_is_ready_and_serves_if_it_is_ready() {
        let table = [
            ("", (true, true, false)),
            ("conditions: {}", (true, true, false)),
            ("conditions: {ready: null}", (true, true, false)),
            ("conditions: {ready: false}", (false, false, false)),
            ("conditions: {ready: false, serving: true, terminating: true}", (false, true, true)),
            ("conditions: {ready: true, serving: false}", (true, false, false)),
        ];
        for (conditions, expected) in table {
            let slice = read(&format!(
                "addressType: IPv4\nports: [{{port: 1}}]\nendpoints: [{{addresses: [10.0.0.1], {conditions}}}]"
            ));
            let SliceEndpoint { is_ready, is_serving, is_terminating, .. } = slice.endpoints[0];
            assert_eq!((is_ready, is_serving, is_terminating), expected, "{conditions}");
        }
    }

    #[test]
    fn a_slice_may_have_names_every_port_or_nothing() {
        let named = read("addressType: FQDN\nports: [{}]\nendpoints: [{addresses: [Db.example.com]}]");
        assert_eq!(named.address_type, AddressType::Fqdn);
        assert_eq!(named.ports, [SlicePort { name: String::new(), port: None }]);
        assert_eq!(named.endpoints[0].addresses, ["db.example.com"]);
        let empty = read("addressType: IPv4\nports: null\nendpoints: null");
        assert_eq!((empty.ports.len(), empty.endpoints.len()), (0, 0));
    }

    #[test]
    fn what_is_wrong_with_a_slice_is_said_where_it_is() {
        let endpoint = |text: &str| format!("addressType: IPv4\nports: [{{port: 1}}]\nendpoints: [{text}]");
        let table = [
            ("endpoints: []".to_owned(), "error[missing-field] "),
            ("addressType: IPv5".to_owned(), "error[unknown-value] addressType"),
            (endpoint("{}"), "error[missing-field] endpoints[0]"),
            (endpoint("{addresses: []}"), "error[missing-field] endpoints[0].addresses"),
            (endpoint("{addresses: ['::1']}"), "error[bad-address] endpoints[0].addresses[0]"),
            (endpoint("{addresses: [10.0.0.1, 10.0.0.256]}"), "error[bad-address] endpoints[0].addresses[1]"),
            (endpoint("{addresses: [10.0.0.1/8]}"), "error[bad-address] endpoints[0].addresses[0]"),
            (endpoint("{addresses: [0.0.0.0]}"), "error[bad-address] endpoints[0].addresses[0]"),
            (endpoint("{addresses: [db]}"), "error[bad-address] endpoints[0].addresses[0]"),
            (
                endpoint("{addresses: [10.0.0.1], conditions: {ready: 'no'}}"),
                "error[wrong-type] endpoints[0].conditions.ready",
            ),
            (endpoint("{addresses: [10.0.0.1], weight: 2}"), "error[unknown-field] endpoints[0].weight"),
            ("addressType: IPv4\nendpoints: [{addresses: [10.0.0.1]}]".to_owned(), "warning[no-ports] "),
            ("addressType: IPv4\nports: [{port: 1}, {port: 2}]".to_owned(), "error[duplicate-name] ports[1]"),
            (
                "addressType: IPv6\nports: [{port: 1}]\nendpoints: [{addresses: [10.0.0.1]}]".to_owned(),
                "error[bad-address] endpoints[0].addresses[0]",
            ),
            (
                "addressType: FQDN\nports: [{port: 1}]\nendpoints: [{addresses: ['10.0.0.1']}]".to_owned(),
                "error[bad-address] endpoints[0].addresses[0]",
            ),
        ];
        for (body, expected) in table {
            assert_eq!(findings(&format!("{HEAD}{body}")), [expected], "{body}");
        }
        let orphan = HEAD.replace("kubernetes.io/service-name", "app");
        assert_eq!(findings(&format!("{orphan}addressType: IPv4")), ["warning[no-service] "]);
    }

    #[test]
    fn endpoints_are_slices_of_the_service_of_the_same_name() {
        let text = "
apiVersion: v1
kind: Endpoints
metadata: {name: greeter}
subsets:
- addresses: [{ip: 10.0.0.1, hostname: a, nodeName: n, targetRef: {kind: Pod}}, {ip: '2001:db8::1'}]
  notReadyAddresses: [{ip: 10.0.0.2}]
  ports: [{name: grpc, port: 50051, protocol: TCP, appProtocol: grpc}]
";
        let Spec::Endpoints(slices) = clean(text) else { panic!("no Endpoints") };
        let [slice] = slices.as_slice() else { panic!("one subset") };
        assert_eq!(slice.service.as_deref(), Some("greeter"));
        let found: Vec<_> =
            slice.endpoints.iter().map(|one| (&*one.addresses[0], one.is_ready, one.is_serving)).collect();
        let expected = [("10.0.0.1", true, true), ("2001:db8::1", true, true), ("10.0.0.2", false, false)];
        assert_eq!(found, expected);
        assert_eq!(documents("{apiVersion: v1, kind: Endpoints, metadata: {name: e}}").len(), 1);
        let bad = "{apiVersion: v1, kind: Endpoints, metadata: {name: e}, subsets: [{addresses: [{ip: x}], ports: [{name: a}]}]}";
        let expected =
            ["error[missing-field] subsets[0].ports[0]", "error[bad-address] subsets[0].addresses[0].ip"];
        let mut found = findings(bad);
        found.sort();
        assert_eq!(found, [expected[1], expected[0]]);
    }
}
