//! Listeners of the native form, each of which becomes a Gateway.

use xds_codec::document::TreeValue;

use super::target::{one_or_list, read_qualified};
use crate::model::{
    AllowedNamespaces, AllowedRoutes, Gateway, GatewayListener, Kind, ListenerProtocol, ObjectRef, Spec,
};
use crate::read::address::parse_ip;
use crate::read::context::Context;
use crate::read::fields::{Reader, Value};
use crate::read::meta::read_hostname;

/// Reads a listener: its port, or an object with `port`, `host`, `address` and `tls`.
///
/// It becomes a Gateway with one listener of the same name that accepts routes from every namespace. With `tls` it is HTTPS.
pub(super) fn read_listener(value: &Value<'_>, context: &Context<'_>, reader: &mut Reader) -> Option<Spec> {
    let (mut port, mut hostname, mut address, mut certificates) = (None, None, None, Vec::new());
    if matches!(value.tree.value(), TreeValue::Number(_)) {
        port = value.port(reader);
    } else {
        let mut fields = value.object(reader)?;
        if let Some(number) = fields.need("port", reader) {
            port = number.port(reader);
        }
        if let Some(host) = fields.take("host")
            && host.tree.as_str() != Some("*")
        {
            hostname = read_hostname(&host, reader);
        }
        if let Some(own) = fields.take("address") {
            address = read_address(&own, reader);
        }
        if let Some(tls) = fields.take("tls") {
            certificates = read_certificates(&tls, context, reader);
        }
        fields.finish(reader);
    }
    let spot = value.spot.clone();
    let protocol = if certificates.is_empty() { ListenerProtocol::Http } else { ListenerProtocol::Https };
    let allowed =
        AllowedRoutes { namespaces: AllowedNamespaces::All, kinds: Vec::new(), kinds_spot: spot.clone() };
    let name = context.key.name.to_string();
    let listener =
        GatewayListener { spot: spot.clone(), name, port: port?, protocol, hostname, certificates, allowed };
    Some(Spec::Gateway(Box::new(Gateway {
        class: String::new(),
        class_spot: spot,
        parameters: None,
        address,
        unsupported_address: None,
        listeners: vec![listener],
    })))
}

/// Reads the address to listen on; `None` for all addresses, also if it is `0.0.0.0` or `::`.
fn read_address(value: &Value<'_>, reader: &mut Reader) -> Option<std::net::IpAddr> {
    let text = value.text(reader)?;
    if matches!(text, "0.0.0.0" | "::") {
        return None;
    }
    parse_ip(text).map_err(|message| reader.error("bad-address", &value.spot, message)).ok()
}

/// Reads `tls: name`, or `tls` with `certificate` or `certificates`. These name Secrets.
fn read_certificates(tls: &Value<'_>, context: &Context<'_>, reader: &mut Reader) -> Vec<ObjectRef> {
    let mut values = Vec::new();
    if tls.is_object() {
        let Some(mut fields) = tls.object(reader) else { return Vec::new() };
        match (fields.take("certificate"), fields.take("certificates")) {
            (Some(one), None) => values.push(one),
            (None, Some(list)) => values = one_or_list(&list, MAX_CERTIFICATES, reader),
            (Some(_), Some(_)) => {
                let message = "`certificate` and `certificates` are the same; set only one";
                reader.error("duplicate-field", &tls.spot, message);
            }
            (None, None) => {
                let message = "the field `certificate` is missing; it names a Secret";
                reader.error("missing-field", &tls.spot, message);
            }
        }
        fields.finish(reader);
    } else {
        values.push(tls.clone());
    }
    let mut certificates = Vec::new();
    for value in values {
        let Some((namespace, name)) = read_qualified(&value, context, reader) else { continue };
        let kind = Kind::Secret;
        let (group, kind) = (kind.api_group().into(), kind.as_str().into());
        certificates.push(ObjectRef { spot: value.spot, group, kind, namespace, name, port: None });
    }
    certificates
}

/// The limit of a listener of a Gateway.
const MAX_CERTIFICATES: usize = 64;
