//! Outlines: documents without the parts that change often, which are weights, endpoints and the content of secrets.
//!
//! Most units read only outlines, so they need not run again when only these parts change.

use std::borrow::Cow;
use std::sync::Arc;

use super::cost::length_class;
use super::tls::{has_pem, is_certificate, is_private_key};
use crate::input::Placed;
use crate::model::{ConfigMap, Document, Kind, Secret, Spec};

/// A document without the parts that change often. To save memory, the outline of a route is its document, but outlines that differ only
/// in weights are equal, and their readers read no weights.
#[derive(Clone, Debug)]
pub(crate) struct Outline(pub(crate) Placed);

impl PartialEq for Outline {
    /// Compares texts only by their length class.
    fn eq(&self, other: &Self) -> bool {
        let (Self(one), Self(other)) = (self, other);
        let (document, others) = (&*one.document, &*other.document);
        let length = |document: &Document| length_class(document.source.text().len());
        one.group == other.group
            && one.was_split == other.was_split
            && one.withholds_secrets == other.withholds_secrets
            && (Arc::ptr_eq(&one.document, &other.document)
                || document.key == others.key
                    && document.place == others.place
                    && document.meta == others.meta
                    && length(document) == length(others)
                    && *without_weights(&document.spec) == *without_weights(&others.spec))
    }
}

impl Outline {
    /// The outline of a document; `None` if no unit reads outlines of its kind.
    pub(crate) fn of(placed: &Placed) -> Option<Self> {
        let document = match &placed.document.spec {
            Spec::EndpointSlice(_) | Spec::Endpoints(_) | Spec::RouteTest { .. } => return None,
            Spec::Secret(secret) => {
                let data = secret.data.iter().filter_map(|(key, value)| {
                    let stand_in = stand_in(key, str::from_utf8(value).ok()?)?;
                    Some((key.clone(), stand_in.as_bytes().to_vec()))
                });
                with_spec(&placed.document, Spec::Secret(Secret { data: data.collect() }))
            }
            Spec::ConfigMap(map) => {
                let stand_in =
                    |(key, value): &(String, String)| Some((key.clone(), stand_in(key, value)?.to_owned()));
                let data = map.data.iter().filter_map(stand_in).collect();
                with_spec(&placed.document, Spec::ConfigMap(ConfigMap { data }))
            }
            Spec::GatewayClass { .. }
            | Spec::Gateway(_)
            | Spec::Route(_)
            | Spec::ReferenceGrant(_)
            | Spec::BackendTlsPolicy(_)
            | Spec::Backend(_)
            | Spec::Service(_)
            | Spec::Namespace(_)
            | Spec::TrafficSplit(_)
            | Spec::HttpRouteGroup(_)
            | Spec::Policy(_) => Arc::clone(&placed.document),
        };
        Some(Self(Placed { document, generation: 0, ..placed.clone() }))
    }
}

/// The same content, with every weight of a route replaced by 0 or 1.
fn without_weights(spec: &Spec) -> Cow<'_, Spec> {
    let mut spec = Cow::Borrowed(spec);
    if let Spec::Route(_) = &*spec
        && let Spec::Route(route) = spec.to_mut()
    {
        for backend in route.rules.iter_mut().flat_map(|rule| &mut rule.backends) {
            backend.weight = backend.weight.min(1);
        }
    }
    spec
}

fn with_spec(document: &Document, spec: Spec) -> Arc<Document> {
    let Document { key, place, meta, source, spec: _ } = document;
    let (key, place, meta, source) = (key.clone(), place.clone(), meta.clone(), Arc::clone(source));
    Arc::new(Document { key, place, meta, spec, source })
}

/// A placeholder for a PEM text, if it is of the kind that the key requires.
fn stand_in(key: &str, text: &str) -> Option<&'static str> {
    match key {
        "tls.crt" | "ca.crt" if has_pem(text, is_certificate) => Some(CERTIFICATE),
        "tls.key" if has_pem(text, is_private_key) => Some(PRIVATE_KEY),
        _ => None,
    }
}

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
const PRIVATE_KEY: &str = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";

/// Returns `true` if documents of the kind are routes.
pub(crate) fn is_route(kind: Kind) -> bool {
    super::lookup::ROUTES.contains(&kind)
}
