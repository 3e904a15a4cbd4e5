//! Envoy Gateway's Backend.

use std::collections::BTreeSet;

use xds_cache::DrainPolicy;

use super::address::{read_dns_name, read_ip};
use super::context::Context;
use super::fields::{Object, Reader, Value};
use crate::model::{Backend, BackendLimits, BackendSource, LbPolicy, NativeTls, Spec, StaticEndpoint};

/// Reads a Backend.
///
/// An unsupported field is a warning, except for TLS: requests that should be encrypted are never sent in plaintext.
pub(crate) fn read_backend(
    document: &mut Object<'_>,
    _context: &Context<'_>,
    reader: &mut Reader,
) -> Option<Spec> {
    let mut spec = document.need("spec", reader)?.object(reader)?;
    if let Some(kind) = spec.take("type")
        && kind.choice(&["Endpoints", "DynamicResolver"], reader)? == "DynamicResolver"
    {
        reader.error("unsupported", &kind.spot, "only backends with their own endpoints can be served");
        return None;
    }
    let list = spec.need("endpoints", reader);
    let endpoints = list.map(|list| read_endpoints(&list, reader)).unwrap_or_default();
    let is_http2 = match spec.take("appProtocols") {
        Some(protocols) => read_protocols(&protocols, reader),
        None => false,
    };
    let tls = match spec.take("tls") {
        Some(tls) => read_tls(&tls, &endpoints, reader),
        None => None,
    };
    if let Some(fallback) = spec.take("fallback")
        && fallback.truth(reader) == Some(true)
    {
        let message = "a backend cannot be kept for failures of others, so it always gets its share; use a backend with `fallback`";
        reader.warn("unsupported", &fallback.spot, message);
    }
    spec.finish(reader);
    let source = BackendSource::Endpoints(endpoints);
    Some(Spec::Backend(Box::new(Backend {
        is_http2,
        source,
        tls,
        lb_policy: LbPolicy::default(),
        limits: BackendLimits::default(),
        drain: DrainPolicy::default(),
    })))
}

/// Endpoints, each once: gRPC clients reject an assignment that lists an address twice.
#[derive(Default)]
pub(crate) struct Endpoints {
    /// Those that were added.
    pub(crate) list: Vec<StaticEndpoint>,
    seen: BTreeSet<String>,
    is_mixed: bool,
}

impl Endpoints {
    /// Adds an endpoint that was read from `value`. A duplicate is left out with a warning.
    pub(crate) fn add(&mut self, endpoint: StaticEndpoint, value: &Value<'_>, reader: &mut Reader) {
        let address = match &endpoint {
            StaticEndpoint::Ip { address, port, .. } => format!("{address}#{port}"),
            StaticEndpoint::Dns { host, port } => format!("{host}#{port}"),
            StaticEndpoint::Unix { path } => path.clone(),
        };
        if !self.seen.insert(address) {
            reader.warn(
                "duplicate-endpoint",
                &value.spot,
                "the endpoint appears twice; the first one is used",
            );
            return;
        }
        self.refuse_mixture(&endpoint, value, reader);
        self.list.push(endpoint);
    }

    /// Refuses Unix sockets next to host names, and reports it once: a cluster of Envoy that resolves names cannot have sockets.
    fn refuse_mixture(&mut self, endpoint: &StaticEndpoint, value: &Value<'_>, reader: &mut Reader) {
        let is_apart = |other: &StaticEndpoint| {
            matches!(
                (endpoint, other),
                (StaticEndpoint::Dns { .. }, StaticEndpoint::Unix { .. })
                    | (StaticEndpoint::Unix { .. }, StaticEndpoint::Dns { .. })
            )
        };
        if !self.is_mixed && self.list.iter().any(is_apart) {
            self.is_mixed = true;
            let message = "a backend cannot have host names and Unix sockets together; write one backend for each, and give \
                           both to a route with weights, or to a backend with `fallback`";
            reader.error("mixed-endpoints", &value.spot, message);
        }
    }
}

fn read_endpoints(list: &Value<'_>, reader: &mut Reader) -> Vec<StaticEndpoint> {
    let items = list.list(MAX_ENDPOINTS, reader);
    if items.is_empty() && list.is_list() {
        reader.error("missing-field", &list.spot, "a backend needs at least one endpoint");
    }
    let mut endpoints = Endpoints::default();
    endpoints.list.reserve_exact(items.len());
    for item in &items {
        if let Some(endpoint) = read_endpoint(item, reader) {
            endpoints.add(endpoint, item, reader);
        }
    }
    endpoints.list
}

fn read_endpoint(value: &Value<'_>, reader: &mut Reader) -> Option<StaticEndpoint> {
    let mut fields = value.object(reader)?;
    let (ip, fqdn, unix) = (fields.take("ip"), fields.take("fqdn"), fields.take("unix"));
    let zone = match fields.take("zone") {
        Some(zone) => Some((zone.bounded_text(0, 253, reader)?.to_owned(), zone.spot)),
        None => None,
    };
    fields.finish(reader);
    let endpoint = match (ip, fqdn, unix) {
        (Some(ip), None, None) => {
            let mut ip = ip.object(reader)?;
            let address = ip.need("address", reader).and_then(|address| read_ip(&address, reader));
            let port = ip.need("port", reader).and_then(|port| port.port(reader));
            ip.finish(reader);
            let zone = zone.map(|(zone, _)| zone).unwrap_or_default();
            return Some(StaticEndpoint::Ip { address: address?, port: port?, zone, weight: None });
        }
        (None, Some(fqdn), None) => {
            let mut fqdn = fqdn.object(reader)?;
            let host = fqdn.need("hostname", reader).and_then(|host| read_dns_name(&host, reader));
            let port = fqdn.need("port", reader).and_then(|port| port.port(reader));
            fqdn.finish(reader);
            StaticEndpoint::Dns { host: host?, port: port? }
        }
        (None, None, Some(unix)) => {
            let mut unix = unix.object(reader)?;
            let path = unix.need("path", reader).and_then(|path| read_unix_path(&path, reader));
            unix.finish(reader);
            StaticEndpoint::Unix { path: path? }
        }
        _ => {
            reader.error(
                "bad-endpoint",
                &value.spot,
                "an endpoint is exactly one of `ip`, `fqdn` and `unix`",
            );
            return None;
        }
    };
    if let Some((_, spot)) = zone {
        reader.warn("unsupported", &spot, "only endpoints with an address have a zone");
    }
    Some(endpoint)
}

/// The path of a Unix socket: absolute, and short enough for `sockaddr_un`.
pub(crate) fn read_unix_path(value: &Value<'_>, reader: &mut Reader) -> Option<String> {
    let text = value.bounded_text(2, 107, reader)?;
    if !text.starts_with('/') || text.len() > 107 || text.contains(char::is_control) {
        let message = "the path of a socket begins with `/` and has at most 107 bytes";
        reader.error("bad-path", &value.spot, message);
        return None;
    }
    Some(text.to_owned())
}

/// Reads the protocols. Returns `true` if HTTP/2 is one of them.
fn read_protocols(value: &Value<'_>, reader: &mut Reader) -> bool {
    let mut is_http2 = false;
    for item in value.list(16, reader) {
        match item.text(reader) {
            Some("gateway.envoyproxy.io/h2c" | "kubernetes.io/h2c") => is_http2 = true,
            Some("gateway.envoyproxy.io/ws" | "gateway.envoyproxy.io/wss" | "kubernetes.io/ws") | None => {}
            Some(_) => {
                reader.warn("unsupported", &item.spot, "the protocol is unknown and has no effect");
            }
        }
    }
    is_http2
}

/// Reads TLS that trusts the certificates of the system. Other certificates need a BackendTLSPolicy or the native form.
fn read_tls(value: &Value<'_>, endpoints: &[StaticEndpoint], reader: &mut Reader) -> Option<NativeTls> {
    let mut fields = value.object(reader)?;
    let mut can_be_done = true;
    for field in ["caCertificateRefs", "clientCertificateRef"] {
        if let Some(references) = fields.take(field) {
            let message =
                format!("`{field}` is not supported here; a backend of the native form takes `tls.ca`");
            reader.error("unsupported", &references.spot, message);
            can_be_done = false;
        }
    }
    if let Some(skips) = fields.take("insecureSkipVerify")
        && skips.truth(reader)?
    {
        reader.error("unsupported", &skips.spot, "certificates of backends are always verified");
        can_be_done = false;
    }
    let sni = match fields.take("sni") {
        Some(sni) => Some(read_dns_name(&sni, reader)?),
        None => single_host(endpoints),
    };
    let system = if can_be_done {
        fields.need("wellKnownCACertificates", reader)
    } else {
        fields.take("wellKnownCACertificates")
    };
    if let Some(system) = system {
        system.choice(&["System"], reader)?;
    }
    for field in ["minVersion", "maxVersion", "ciphers", "ecdhCurves", "signatureAlgorithms", "alpnProtocols"]
    {
        if let Some(setting) = fields.take(field) {
            reader.warn(
                "unsupported",
                &setting.spot,
                format!("`{field}` is not supported and has no effect"),
            );
        }
    }
    fields.finish(reader);
    let Some(sni) = sni else {
        let message = "the certificate cannot be verified without a name; set `sni`";
        reader.error("missing-field", &value.spot, message);
        return None;
    };
    can_be_done.then(|| NativeTls { spot: value.spot.clone(), sni, ca_pem: None })
}

/// The host name, if all endpoints have the same one.
pub(crate) fn single_host(endpoints: &[StaticEndpoint]) -> Option<String> {
    let mut hosts = endpoints.iter().map(|endpoint| match endpoint {
        StaticEndpoint::Dns { host, .. } => Some(host),
        StaticEndpoint::Ip { .. } | StaticEndpoint::Unix { .. } => None,
    });
    let first = hosts.next()??;
    hosts.all(|host| host == Some(first)).then(|| first.clone())
}

/// The limit of Envoy Gateway.
const MAX_ENDPOINTS: usize = 256;

#[cfg(test)]
#[expect(clippy::panic, reason = "helpers of tests")]
mod tests {
    use super::*;
    use crate::read::testing::{clean, findings};

    fn backend(spec: &str) -> String {
        format!(
            "{{apiVersion: gateway.envoyproxy.io/v1alpha1, kind: Backend, metadata: {{name: b}}, spec: {spec}}}"
        )
    }

    fn read(spec: &str) -> Backend {
        let Spec::Backend(backend) = clean(&backend(spec)) else { panic!("no Backend") };
        *backend
    }

    const IP: &str = "{ip: {address: 10.0.0.5, port: 50051}}";

    #[test]
    fn a_backend_has_addresses_names_and_sockets() {
        let backend = read(
            "{type: Endpoints, appProtocols: [gateway.envoyproxy.io/h2c], fallback: false, endpoints: [
                {ip: {address: 10.0.0.5, port: 50051}, zone: a}, {fqdn: {hostname: A.example.com, port: 443}}]}",
        );
        assert!(backend.is_http2 && backend.tls.is_none());
        let expected = [
            StaticEndpoint::Ip {
                address: [10, 0, 0, 5].into(),
                port: 50_051,
                zone: "a".to_owned(),
                weight: None,
            },
            StaticEndpoint::Dns { host: "a.example.com".to_owned(), port: 443 },
        ];
        assert_eq!(backend.source, BackendSource::Endpoints(expected.to_vec()));
        let backend = read(&format!("{{endpoints: [{{unix: {{path: /run/x.sock}}}}, {IP}]}}"));
        let BackendSource::Endpoints(endpoints) = backend.source else { panic!("no endpoints") };
        assert_eq!(endpoints[0], StaticEndpoint::Unix { path: "/run/x.sock".to_owned() });
        assert!(read(&format!("{{endpoints: [{IP}], appProtocols: [kubernetes.io/h2c]}}")).is_http2);
        assert!(!read(&format!("{{endpoints: [{IP}], appProtocols: [gateway.envoyproxy.io/ws]}}")).is_http2);
    }

    #[test]
    fn tls_is_done_or_the_backend_is_refused() {
        let named = "endpoints: [{fqdn: {hostname: a.example.com, port: 443}}]";
        let tls = read(&format!("{{{named}, tls: {{wellKnownCACertificates: System}}}}")).tls;
        assert_eq!(tls.map(|tls| (tls.sni, tls.ca_pem)), Some(("a.example.com".to_owned(), None)));
        let tls =
            read(&format!("{{endpoints: [{IP}], tls: {{wellKnownCACertificates: System, sni: b.c}}}}")).tls;
        assert_eq!(tls.map(|tls| tls.sni).as_deref(), Some("b.c"));
        let table = [
            ("{wellKnownCACertificates: System}", "error[missing-field] spec.tls"),
            ("{sni: a}", "error[missing-field] spec.tls"),
            ("{sni: a, caCertificateRefs: [{name: x}]}", "error[unsupported] spec.tls.caCertificateRefs"),
            (
                "{sni: a, wellKnownCACertificates: System, clientCertificateRef: {name: x}}",
                "error[unsupported] spec.tls.clientCertificateRef",
            ),
            ("{sni: a, insecureSkipVerify: true}", "error[unsupported] spec.tls.insecureSkipVerify"),
            (
                "{sni: a, wellKnownCACertificates: System, minVersion: '1.3'}",
                "warning[unsupported] spec.tls.minVersion",
            ),
        ];
        for (tls, expected) in table {
            assert_eq!(
                findings(&backend(&format!("{{endpoints: [{IP}], tls: {tls}}}"))),
                [expected],
                "{tls}"
            );
        }
    }

    #[test]
    fn what_is_wrong_with_a_backend_is_said_where_it_is() {
        let many = format!("{{endpoints: [{}]}}", vec![IP; 257].join(", "));
        assert!(findings(&backend(&many)).contains(&"error[too-many-items] spec.endpoints".to_owned()));
        let table = [
            ("{}".to_owned(), "error[missing-field] spec"),
            ("{endpoints: []}".to_owned(), "error[missing-field] spec.endpoints"),
            ("{type: DynamicResolver}".to_owned(), "error[unsupported] spec.type"),
            (format!("{{endpoints: [{IP}], fallback: true}}"), "warning[unsupported] spec.fallback"),
            (
                format!("{{endpoints: [{IP}], appProtocols: [x]}}"),
                "warning[unsupported] spec.appProtocols[0]",
            ),
            (format!("{{endpoints: [{IP}, {IP}]}}"), "warning[duplicate-endpoint] spec.endpoints[1]"),
            ("{endpoints: [{}]}".to_owned(), "error[bad-endpoint] spec.endpoints[0]"),
            (
                "{endpoints: [{ip: {address: 10.0.0.5}}]}".to_owned(),
                "error[missing-field] spec.endpoints[0].ip",
            ),
            (
                "{endpoints: [{ip: {address: a.b, port: 1}}]}".to_owned(),
                "error[bad-address] spec.endpoints[0].ip.address",
            ),
            (
                "{endpoints: [{fqdn: {hostname: '*.b', port: 1}}]}".to_owned(),
                "error[bad-address] spec.endpoints[0].fqdn.hostname",
            ),
            (
                "{endpoints: [{unix: {path: run/x}}]}".to_owned(),
                "error[bad-path] spec.endpoints[0].unix.path",
            ),
            (
                "{endpoints: [{unix: {path: /x}}, {fqdn: {hostname: a.b, port: 1}}, {unix: {path: /y}}]}"
                    .to_owned(),
                "error[mixed-endpoints] spec.endpoints[1]",
            ),
            (
                "{endpoints: [{unix: {path: /x}, zone: a}]}".to_owned(),
                "warning[unsupported] spec.endpoints[0].zone",
            ),
        ];
        for (spec, expected) in table {
            assert_eq!(findings(&backend(&spec)), [expected], "{spec}");
        }
    }
}
