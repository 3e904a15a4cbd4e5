//! Requests as they come over the wire, as the session takes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use xds_cache::Node;
use xds_cache::status::Variant;
use xds_cache::wire::{Field, Fields, WireError};
use xds_session::{DeltaRequest, Limits, Nonce, Request, SessionError, SotwRequest};

use crate::grpc::load_report::ReportError;
use crate::grpc::node::{NodeError, NodeParts, check_text};
use crate::grpc::subscriptions::NoRoom;

/// A request, and the node as it came; the session's request holds what of it the server decides by.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) request: Request,
    /// `None` if the request has none, or is not the first one of its stream.
    pub(crate) node: Option<SentNode>,
}

/// A node as it came, with what the server decides by.
#[derive(Clone, Debug)]
pub(crate) struct SentNode {
    pub(crate) node: Arc<Node>,
    /// The encoded node; a part of the message that it came in.
    pub(crate) encoded: Bytes,
    /// How many entries of its metadata are too long, too deep or too many to be selected by.
    pub(crate) n_left_out: usize,
}

/// A request that cannot be taken in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    /// The bytes are no request.
    #[error("malformed {message}: {error}")]
    Malformed {
        /// The type of the message.
        message: &'static str,
        /// The fault.
        error: WireError,
    },
    /// The node, or another text, passes a limit.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// A load report is malformed, or passes a limit.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// There are too many names.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// There is no room for what the client subscribes to.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
}

impl Incoming {
    /// Reads the first message of a stream of this variant, with its node.
    ///
    /// # Errors
    ///
    /// [`RequestError`] if it is malformed, or passes a limit.
    pub(crate) fn first(variant: Variant, message: &Bytes, limits: &Limits) -> Result<Self, RequestError> {
        let (request, node) = read(variant, message, limits)?;
        let node = node.map(|node| SentNode::read(message.slice_ref(node))).transpose()?;
        Ok(Self { request: with_node(request, node.as_ref()), node })
    }

    /// Reads a later message. Its node is not looked at: the first one said whose the stream is (row A15).
    ///
    /// # Errors
    ///
    /// As for the first.
    pub(crate) fn later(variant: Variant, message: &Bytes, limits: &Limits) -> Result<Self, RequestError> {
        let (request, _) = read(variant, message, limits)?;
        Ok(Self { request, node: None })
    }
}

impl SentNode {
    /// Reads an encoded node.
    ///
    /// # Errors
    ///
    /// [`NodeError`] if it is malformed, or passes a limit.
    pub(crate) fn read(encoded: Bytes) -> Result<Self, NodeError> {
        let (node, n_left_out) = NodeParts::read(&encoded)?.check()?;
        Ok(Self { node: Arc::new(node), encoded, n_left_out })
    }
}

fn with_node(mut request: Request, sent: Option<&SentNode>) -> Request {
    let node = sent.map(|sent| Arc::clone(&sent.node));
    match &mut request {
        Request::Sotw(request) => request.node = node,
        Request::Delta(request) => request.node = node,
    }
    request
}

type Read<'a, T> = Result<(T, Option<&'a [u8]>), RequestError>;

fn read<'a>(variant: Variant, message: &'a [u8], limits: &Limits) -> Read<'a, Request> {
    match variant {
        Variant::Sotw => read_sotw(message, limits).map(|(request, node)| (request.into(), node)),
        Variant::Delta => read_delta(message, limits).map(|(request, node)| (request.into(), node)),
    }
}

/// Reads an `envoy.service.discovery.v3.DiscoveryRequest`, and where its node is.
pub(crate) fn read_sotw<'a>(message: &'a [u8], limits: &Limits) -> Read<'a, SotwRequest> {
    let malformed = |error| RequestError::Malformed { message: "DiscoveryRequest", error };
    let (mut request, mut node) = (SotwRequest::default(), None);
    for field in Fields::of(message) {
        let field = field.map_err(malformed)?;
        let mut take = || -> Result<(), WireError> {
            match field.number {
                1 => field.text()?.clone_into(&mut request.version_info),
                2 => node = Some(field.bytes()?),
                3 => request.resource_names.push(field.text()?.to_owned()),
                4 => field.text()?.clone_into(&mut request.type_url),
                5 => request.response_nonce = Nonce::parse(field.text()?),
                6 => request.error_detail = Some(text_in(&field, ERROR_MESSAGE)?.to_owned()),
                7 => request.resource_names.push(locator(&field)?),
                _ => {}
            }
            Ok(())
        };
        take().map_err(malformed)?;
        check_number(request.resource_names.len(), limits)?;
    }
    check_text("type_url", request.type_url.len())?;
    Ok((request, node))
}

/// Reads an `envoy.service.discovery.v3.DeltaDiscoveryRequest`, and where its node is.
fn read_delta<'a>(message: &'a [u8], limits: &Limits) -> Read<'a, DeltaRequest> {
    let malformed = |error| RequestError::Malformed { message: "DeltaDiscoveryRequest", error };
    let (mut request, mut node) = (DeltaRequest::default(), None);
    for field in Fields::of(message) {
        let field = field.map_err(malformed)?;
        let mut take = || -> Result<(), WireError> {
            match field.number {
                1 => node = Some(field.bytes()?),
                2 => field.text()?.clone_into(&mut request.type_url),
                3 => request.resource_names_subscribe.push(field.text()?.to_owned()),
                4 => request.resource_names_unsubscribe.push(field.text()?.to_owned()),
                5 => read_version(&field, &mut request.initial_resource_versions)?,
                6 => request.response_nonce = Nonce::parse(field.text()?),
                7 => request.error_detail = Some(text_in(&field, ERROR_MESSAGE)?.to_owned()),
                8 => request.resource_names_subscribe.push(locator(&field)?),
                9 => request.resource_names_unsubscribe.push(locator(&field)?),
                _ => {}
            }
            Ok(())
        };
        take().map_err(malformed)?;
        check_number(request.resource_names_subscribe.len(), limits)?;
        check_number(request.resource_names_unsubscribe.len(), limits)?;
        check_number(request.initial_resource_versions.len(), limits)?;
    }
    check_text("type_url", request.type_url.len())?;
    Ok((request, node))
}

/// Refuses more names than a stream may have before they take memory.
fn check_number(n_names: usize, limits: &Limits) -> Result<(), SessionError> {
    let limit = limits.max_names_per_type;
    if n_names > limit { Err(SessionError::TooManyNames { limit }) } else { Ok(()) }
}

/// A server without variants of resources takes a locator as its name (row A161).
fn locator(field: &Field<'_>) -> Result<String, WireError> {
    text_in(field, LOCATOR_NAME).map(ToOwned::to_owned)
}

/// A text in a message; the last one, if there are several.
fn text_in<'a>(field: &Field<'a>, number: u32) -> Result<&'a str, WireError> {
    let mut text = "";
    for field in Fields::of(field.bytes()?) {
        let field = field?;
        if field.number == number {
            text = field.text()?;
        }
    }
    Ok(text)
}

fn read_version(field: &Field<'_>, versions: &mut BTreeMap<String, String>) -> Result<(), WireError> {
    let name = text_in(field, 1)?.to_owned();
    versions.insert(name, text_in(field, 2)?.to_owned());
    Ok(())
}

/// `google.rpc.Status.message`.
const ERROR_MESSAGE: u32 = 2;
/// `envoy.service.discovery.v3.ResourceLocator.name`.
const LOCATOR_NAME: u32 = 1;

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3 as core;
    use envoy_types::pb::envoy::service::discovery::v3 as proto;
    use envoy_types::pb::google::rpc;
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    fn first(variant: Variant, message: &impl Message) -> Result<Incoming, RequestError> {
        Incoming::first(variant, &message.encode_to_vec().into(), &Limits::default())
    }

    fn sotw(request: &proto::DiscoveryRequest) -> SotwRequest {
        match first(Variant::Sotw, request).unwrap().request {
            Request::Sotw(request) => request,
            Request::Delta(_) => panic!("not SotW"),
        }
    }

    fn delta(request: &proto::DeltaDiscoveryRequest) -> DeltaRequest {
        match first(Variant::Delta, request).unwrap().request {
            Request::Delta(request) => request,
            Request::Sotw(_) => panic!("not delta"),
        }
    }

    #[test]
    fn every_field_is_read() {
        let locator = |name: &str| proto::ResourceLocator { name: name.into(), ..Default::default() };
        let error_detail = || Some(rpc::Status { code: 3, message: "bad".into(), details: vec![] });
        let node = || Some(core::Node { id: "n".into(), ..Default::default() });
        let request = sotw(&proto::DiscoveryRequest {
            version_info: "v".into(),
            node: node(),
            resource_names: vec!["a".into()],
            resource_locators: vec![locator("b")],
            type_url: "t".into(),
            response_nonce: "2a".into(),
            error_detail: error_detail(),
        });
        assert_eq!(request.node.unwrap().id, "n");
        assert_eq!(request.resource_names, ["a", "b"]);
        assert_eq!((request.version_info.as_str(), request.type_url.as_str()), ("v", "t"));
        assert_eq!((request.response_nonce, request.error_detail), (Nonce::Ours(42), Some("bad".into())));
        let request = delta(&proto::DeltaDiscoveryRequest {
            node: node(),
            type_url: "t".into(),
            resource_names_subscribe: vec!["a".into()],
            resource_names_unsubscribe: vec!["c".into()],
            resource_locators_subscribe: vec![locator("b")],
            resource_locators_unsubscribe: vec![locator("d")],
            initial_resource_versions: [("x".to_owned(), "1".to_owned())].into(),
            response_nonce: "foreign".into(),
            error_detail: error_detail(),
        });
        assert_eq!((request.node.unwrap().id.as_str(), request.type_url.as_str()), ("n", "t"));
        assert_eq!(request.resource_names_subscribe, ["a", "b"]);
        assert_eq!(request.resource_names_unsubscribe, ["c", "d"]);
        assert_eq!(request.initial_resource_versions, [("x".to_owned(), "1".to_owned())].into());
        assert_eq!((request.response_nonce, request.error_detail), (Nonce::Foreign, Some("bad".into())));
    }

    proptest! {
        /// Whatever the library takes is taken, with the same meaning; nothing makes it panic.
        #[test]
        fn bytes_mean_what_the_library_says(bytes in proptest::collection::vec(any::<u8>(), 0..64), at in 0_usize..64) {
            let request = proto::DiscoveryRequest {
                node: Some(core::Node { id: "n".into(), cluster: "c".into(), ..Default::default() }),
                resource_names: vec!["a".into(), "b".into()],
                type_url: "t".into(),
                ..Default::default()
            };
            let mut mutated = request.encode_to_vec();
            let at = at.min(mutated.len());
            mutated.splice(at..(at + bytes.len() / 8).min(mutated.len()), bytes.iter().copied().take(8));
            for message in [bytes.clone(), mutated] {
                let _ = Incoming::first(Variant::Delta, &message.clone().into(), &Limits::default());
                let ours = Incoming::first(Variant::Sotw, &message.clone().into(), &Limits::default());
                let Ok(theirs) = proto::DiscoveryRequest::decode(&*message) else { continue };
                let Ok(Incoming { request: Request::Sotw(ours), .. }) = ours else {
                    return Err(TestCaseError::fail(format!("{message:?} is {theirs:?}")));
                };
                prop_assert_eq!(ours.type_url, theirs.type_url);
                prop_assert_eq!(ours.version_info, theirs.version_info);
                let locators = theirs.resource_locators.into_iter().map(|locator| locator.name);
                let names: Vec<_> = theirs.resource_names.into_iter().chain(locators).collect();
                prop_assert_eq!(ours.resource_names.len(), names.len());
            }
        }
    }

    #[test]
    fn the_node_of_a_later_request_is_not_looked_at() {
        let node = Some(core::Node { id: "x".repeat(5000), ..Default::default() });
        let request = proto::DiscoveryRequest { node, type_url: "t".into(), ..Default::default() };
        assert!(matches!(first(Variant::Sotw, &request), Err(RequestError::Node(_))));
        let later =
            Incoming::later(Variant::Sotw, &request.encode_to_vec().into(), &Limits::default()).unwrap();
        assert!(later.node.is_none() && later.request.node().is_none());
    }

    #[test]
    fn what_passes_a_limit_is_refused_while_it_is_read() {
        let limits = Limits { max_names_per_type: 2, ..Limits::default() };
        let names = || vec!["a".to_owned(); 3];
        let too_many = RequestError::Session(SessionError::TooManyNames { limit: 2 });
        let refused = |variant, message: Vec<u8>| {
            Incoming::later(variant, &message.into(), &limits).map(|_| ()).unwrap_err()
        };
        let message = proto::DiscoveryRequest { resource_names: names(), ..Default::default() };
        assert_eq!(refused(Variant::Sotw, message.encode_to_vec()), too_many);
        for message in [
            proto::DeltaDiscoveryRequest { resource_names_subscribe: names(), ..Default::default() },
            proto::DeltaDiscoveryRequest { resource_names_unsubscribe: names(), ..Default::default() },
            proto::DeltaDiscoveryRequest {
                initial_resource_versions: (0..3).map(|i| (i.to_string(), String::new())).collect(),
                ..Default::default()
            },
        ] {
            assert_eq!(refused(Variant::Delta, message.encode_to_vec()), too_many);
        }
        let type_url = "t".repeat(4097);
        let message = proto::DiscoveryRequest { type_url, ..Default::default() }.encode_to_vec();
        let error = refused(Variant::Sotw, message);
        assert_eq!(error.to_string(), "`type_url` has 4097 bytes; at most 4096 are allowed");
        assert_eq!(
            refused(Variant::Delta, vec![0x12, 0x05]).to_string(),
            "malformed DeltaDiscoveryRequest: a field cannot be read"
        );
    }
}
