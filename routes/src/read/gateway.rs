//! Gateway: listeners, their TLS, and which routes may attach.

use std::net::IpAddr;

use xds_codec::echo;

use super::backend_ref::{read_local_object, read_secret_object};
use super::context::Context;
use super::fields::{Object, Reader, Value};
use super::meta::{read_group, read_hostname, read_kind, read_map, read_name, read_section_name};
use crate::model::{
    AllowedNamespaces, AllowedRoutes, Gateway, GatewayListener, Kind, LabelSelector, ListenerProtocol,
    ObjectRef, Spec, Spot,
};

/// Reads a Gateway.
pub(crate) fn read_gateway(
    document: &mut Object<'_>,
    context: &Context<'_>,
    reader: &mut Reader,
) -> Option<Spec> {
    let mut spec = document.need("spec", reader)?.object(reader)?;
    let class = spec.need("gatewayClassName", reader);
    let class_spot = class.as_ref().map_or_else(Spot::default, |class| class.spot.clone());
    let class = class.and_then(|class| read_name(&class, reader));
    let listeners = match spec.need("listeners", reader) {
        Some(list) => read_listeners(&list, context, reader),
        None => Vec::new(),
    };
    let addresses = spec.take("addresses").map(|list| read_addresses(&list, reader)).unwrap_or_default();
    for (field, message) in UNSUPPORTED {
        if let Some(value) = spec.take(field) {
            reader.warn("unsupported", &value.spot, message);
        }
    }
    if let Some(tls) = spec.take("tls").and_then(|tls| tls.object(reader)) {
        read_gateway_tls(tls, reader);
    }
    let infrastructure = spec.take("infrastructure").and_then(|infrastructure| infrastructure.object(reader));
    let parameters =
        infrastructure.and_then(|infrastructure| read_parameters(infrastructure, context, reader));
    spec.finish(reader);
    let class = class?.to_string();
    Some(Spec::Gateway(Box::new(Gateway {
        class,
        class_spot,
        parameters,
        address: addresses.first,
        unsupported_address: addresses.unsupported,
        listeners,
    })))
}

/// Reads `spec.infrastructure`. Its labels and annotations are for objects that an operator creates.
fn read_parameters(
    mut infrastructure: Object<'_>,
    context: &Context<'_>,
    reader: &mut Reader,
) -> Option<ObjectRef> {
    let parameters = infrastructure.take("parametersRef").and_then(|parameters| parameters.object(reader));
    infrastructure.ignore(&["labels", "annotations"]);
    infrastructure.finish(reader);
    let mut parameters = parameters?;
    let object = read_local_object(&mut parameters, context, reader);
    parameters.finish(reader);
    object
}

/// Reads `spec.tls`, and reports it: nothing in it is supported.
fn read_gateway_tls(mut tls: Object<'_>, reader: &mut Reader) {
    if let Some(frontend) = tls.take("frontend").filter(|frontend| frontend.tree.entries().len() > 0) {
        reader.error("unsupported", &frontend.spot, NO_CLIENT_CERTIFICATES);
    }
    if let Some(backend) = tls.take("backend") {
        let message = "client certificates are not sent to backends; a backend that requires one rejects the connection";
        reader.warn("unsupported", &backend.spot, message);
    }
    tls.finish(reader);
}

/// Reads `listeners`: 1 to 64, with distinct names. Their conditions report conflicts between them.
fn read_listeners(list: &Value<'_>, context: &Context<'_>, reader: &mut Reader) -> Vec<GatewayListener> {
    let items = list.list_of_some(64, reader);
    let mut listeners: Vec<GatewayListener> = Vec::with_capacity(items.len());
    for value in items {
        let Some(listener) = read_listener(&value, context, reader) else { continue };
        if listeners.iter().any(|other| other.name == listener.name) {
            let message =
                format!("Listener name must be unique within the Gateway: {}", echo(&listener.name));
            reader.error("duplicate-listener", &value.spot, message);
        }
        listeners.push(listener);
    }
    listeners
}

fn read_listener(value: &Value<'_>, context: &Context<'_>, reader: &mut Reader) -> Option<GatewayListener> {
    let mut object = value.object(reader)?;
    let name = object.need("name", reader).and_then(|name| read_section_name(&name, reader));
    let port = object.need("port", reader).and_then(|port| port.port(reader));
    let protocol = object.need("protocol", reader).and_then(|protocol| read_protocol(&protocol, reader));
    let hostname_value = object.take("hostname");
    let hostname = hostname_value.as_ref().and_then(|hostname| read_hostname(hostname, reader));
    let tls = object.take("tls");
    let allowed = object.take("allowedRoutes");
    object.finish(reader);
    let protocol = protocol?;
    if let Some(hostname) = hostname_value.filter(|_| matches!(name_of(&protocol), "TCP" | "UDP")) {
        let message = "hostname must not be specified for protocols ['TCP', 'UDP']";
        reader.error("misplaced-field", &hostname.spot, message);
    }
    let certificates = match &tls {
        Some(tls) => read_tls(tls, name_of(&protocol), context, reader),
        None => Vec::new(),
    };
    if tls.is_none() && name_of(&protocol) == "TLS" {
        reader.error("missing-field", &value.spot, "tls mode must be set for protocol TLS");
    }
    let allowed = match allowed {
        Some(allowed) => read_allowed(&allowed, reader)?,
        None => AllowedRoutes {
            namespaces: AllowedNamespaces::Same,
            kinds: Vec::new(),
            kinds_spot: value.spot.clone(),
        },
    };
    let (name, port, spot) = (name?, port?, value.spot.clone());
    Some(GatewayListener { spot, name, port, protocol, hostname, certificates, allowed })
}

fn read_protocol(value: &Value<'_>, reader: &mut Reader) -> Option<ListenerProtocol> {
    let text = value.bounded_text(1, 255, reader)?;
    Some(match text {
        "HTTP" => ListenerProtocol::Http,
        "HTTPS" => ListenerProtocol::Https,
        other => ListenerProtocol::Other(other.to_owned()),
    })
}

/// Reads `tls` of a listener. Returns the references to certificates.
fn read_tls(value: &Value<'_>, protocol: &str, context: &Context<'_>, reader: &mut Reader) -> Vec<ObjectRef> {
    if ["HTTP", "TCP", "UDP"].contains(&protocol) {
        let message = "tls must not be specified for protocols ['HTTP', 'TCP', 'UDP']";
        reader.error("misplaced-field", &value.spot, message);
    }
    let Some(mut object) = value.object(reader) else { return Vec::new() };
    let mode = object.take("mode");
    let terminates = match &mode {
        Some(mode) => mode.choice(&["Terminate", "Passthrough"], reader) != Some("Passthrough"),
        None => true,
    };
    if let (Some(mode), "HTTPS", false) = (&mode, protocol, terminates) {
        reader.error("misplaced-field", &mode.spot, "tls mode must be Terminate for protocol HTTPS");
    }
    let list = object.take("certificateRefs");
    let items = list.map_or_else(Vec::new, |list| list.list(64, reader));
    let mut certificates = Vec::with_capacity(items.len());
    for value in &items {
        let Some(mut object) = value.object(reader) else { continue };
        certificates.extend(read_secret_object(&mut object, context, reader));
        object.finish(reader);
    }
    let options = object.take("options");
    if let Some(options) = &options {
        reader.warn("unsupported", &options.spot, "TLS options are not supported and are ignored");
    }
    if let Some(frontend) = object.take("frontendValidation") {
        // Not a warning: a listener that requires certificates must not serve everyone.
        reader.error("unsupported", &frontend.spot, NO_CLIENT_CERTIFICATES);
    }
    let has_options = options.is_some_and(|options| options.tree.entries().len() > 0);
    if terminates && items.is_empty() && !has_options {
        let message = "certificateRefs or options must be specified when mode is Terminate";
        reader.error("missing-field", &value.spot, message);
    }
    object.finish(reader);
    certificates
}

fn read_allowed(value: &Value<'_>, reader: &mut Reader) -> Option<AllowedRoutes> {
    let mut object = value.object(reader)?;
    let namespaces = match object.take("namespaces") {
        Some(namespaces) => read_namespaces(&namespaces, reader),
        None => Some(AllowedNamespaces::Same),
    };
    let list = object.take("kinds");
    let kinds_spot = list.as_ref().map_or_else(|| value.spot.clone(), |list| list.spot.clone());
    let items = list.map_or_else(Vec::new, |list| list.list(8, reader));
    let mut kinds = Vec::with_capacity(items.len());
    for value in items {
        let Some(mut object) = value.object(reader) else { continue };
        let group = match object.take("group") {
            Some(group) => read_group(&group, reader),
            None => Some(Kind::Gateway.api_group().into()),
        };
        let kind = object.need("kind", reader).and_then(|kind| read_kind(&kind, reader));
        object.finish(reader);
        kinds.extend(group.zip(kind).map(|(group, kind)| (group.into_owned(), kind.into_owned())));
    }
    object.finish(reader);
    Some(AllowedRoutes { namespaces: namespaces?, kinds, kinds_spot })
}

fn read_namespaces(value: &Value<'_>, reader: &mut Reader) -> Option<AllowedNamespaces> {
    let mut object = value.object(reader)?;
    let from = match object.take("from") {
        Some(from) => from.choice(&["All", "Selector", "Same", "None"], reader),
        None => Some("Same"),
    };
    let selector_value = object.take("selector");
    let selector = selector_value.as_ref().and_then(|selector| read_selector(selector, reader));
    object.finish(reader);
    Some(match from? {
        "All" => AllowedNamespaces::All,
        "None" => AllowedNamespaces::None,
        "Selector" if selector_value.is_none() => {
            let message = "`from: Selector` without `selector` allows no namespace";
            reader.warn("missing-field", &value.spot, message);
            AllowedNamespaces::None
        }
        "Selector" => AllowedNamespaces::Selector(selector?),
        _ => AllowedNamespaces::Same,
    })
}

/// Reads a selector of labels; an empty one selects everything.
pub(super) fn read_selector(value: &Value<'_>, reader: &mut Reader) -> Option<LabelSelector> {
    let mut object = value.object(reader)?;
    let mut selector = LabelSelector::default();
    if let Some(labels) = object.take("matchLabels") {
        let labels = read_map(&labels, reader);
        selector.values.extend(labels.into_iter().map(|(key, value)| (key, vec![value], true)));
    }
    if let Some(list) = object.take("matchExpressions") {
        for value in list.list(MAX_EXPRESSIONS, reader) {
            read_expression(&value, &mut selector, reader);
        }
    }
    object.finish(reader);
    Some(selector)
}

fn read_expression(value: &Value<'_>, selector: &mut LabelSelector, reader: &mut Reader) {
    let Some(mut object) = value.object(reader) else { return };
    let key = object.need("key", reader).and_then(|key| key.bounded_text(1, 317, reader));
    let operator = object.need("operator", reader);
    let operator =
        operator.and_then(|operator| operator.choice(&["In", "NotIn", "Exists", "DoesNotExist"], reader));
    let list = object.take("values");
    object.finish(reader);
    let items = list.map_or_else(Vec::new, |list| list.list(MAX_EXPRESSIONS, reader));
    let values: Vec<_> = items.iter().filter_map(|item| item.text(reader)).map(str::to_owned).collect();
    let (Some(key), Some(operator)) = (key, operator) else { return };
    let takes_values = matches!(operator, "In" | "NotIn");
    if takes_values == items.is_empty() {
        let needs = if takes_values { "needs" } else { "takes no" };
        reader.error("bad-selector", &value.spot, format!("the operator {operator} {needs} `values`"));
        return;
    }
    if takes_values {
        selector.values.push((key.to_owned(), values, operator == "In"));
    } else {
        selector.keys.push((key.to_owned(), operator == "Exists"));
    }
}

/// The addresses of a Gateway, as far as they count.
#[derive(Default)]
struct Addresses {
    /// The first IP address, because a listener has only one.
    first: Option<IpAddr>,
    /// The spot and the type of the first address of another type.
    unsupported: Option<(Spot, String)>,
}

/// Reads `addresses`, at most 16.
fn read_addresses(list: &Value<'_>, reader: &mut Reader) -> Addresses {
    let mut addresses: Vec<IpAddr> = Vec::new();
    let mut unsupported = None;
    for value in list.list(16, reader) {
        let Some(mut object) = value.object(reader) else { continue };
        let kind = object.take("type").map(|kind| kind.text(reader).map(str::to_owned));
        let text = object.take("value").filter(|text| text.tree.as_str() != Some(""));
        object.finish(reader);
        match kind {
            Some(None) => continue,
            Some(Some(kind)) if kind != "IPAddress" => {
                unsupported.get_or_insert_with(|| (value.spot.clone(), xds_codec::echo_name(&kind)));
                continue;
            }
            Some(Some(_)) | None => {}
        }
        let Some(text) = text else {
            reader.warn("unsupported", &value.spot, "addresses cannot be assigned; set one as `value`");
            continue;
        };
        let Some(address) = text.text(reader) else { continue };
        let Ok(address) = address.parse() else {
            reader.error("bad-address", &text.spot, format!("{} is not an IP address", echo(address)));
            continue;
        };
        if addresses.contains(&address) {
            reader.error("duplicate-address", &text.spot, "IPAddress values must be unique");
        } else if !addresses.is_empty() {
            reader.warn("unsupported", &value.spot, "a listener has one address; only the first one is used");
        }
        addresses.push(address);
    }
    Addresses { first: addresses.first().copied(), unsupported }
}

/// The name of a protocol in documents.
fn name_of(protocol: &ListenerProtocol) -> &str {
    match protocol {
        ListenerProtocol::Http => "HTTP",
        ListenerProtocol::Https => "HTTPS",
        ListenerProtocol::Other(name) => name,
    }
}

const NO_CLIENT_CERTIFICATES: &str = "listeners cannot require client certificates; remove this only if anyone who can reach the port may be served";

/// Unsupported fields of a Gateway, and the consequence.
const UNSUPPORTED: [(&str, &str); 2] = [
    ("allowedListeners", "ListenerSets are not read"),
    ("defaultScope", "default Gateways are not supported; name the Gateway in `parentRefs`"),
];

/// The limit of requirements and values; more are hardly intended.
const MAX_EXPRESSIONS: usize = 1_000;
