//! Responses as bytes: everything but the nonce is made once and shared by all streams that send it (D8).
//!
//! Protobuf takes fields in any order. So a message begins with the nonce, the only part that differs between streams,
//! and goes on with a [`Body`] that is common to them (`frames`).

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use xds_cache::{Name, Resource, ResourceType};
use xds_session::{Contents, Entries, Entry, Form};

use crate::grpc::wire::{
    ANY_TYPE_URL, ANY_VALUE, any_len, field_len, message, put_field, put_header, put_varint,
};

/// The encoded contents of a response, without gRPC header and nonce.
///
/// Small parts share a segment. Large resources are segments of their own, which share the memory of the resource. No segment is
/// shorter than [`MIN_SEGMENT`] bytes, unless it is the only one.
#[derive(Debug)]
pub struct Body {
    segments: Box<[Bytes]>,
    len: usize,
}

impl Body {
    /// Encodes `contents`; `identifier` is the instance's name (row A13).
    #[must_use]
    pub fn new(contents: &Contents, identifier: &str) -> Self {
        let fields = Fields::of(contents.form);
        let mut segments = Segments::default();
        let type_url = contents.resource_type.type_url();
        segments.put_bytes(fields.version_info, contents.version_info.as_bytes());
        segments.put_bytes(fields.type_url, type_url.as_bytes());
        let control_plane = message(1, identifier.as_bytes());
        segments.put_bytes(fields.control_plane, &control_plane);
        match &contents.entries {
            Entries::Table(table) => {
                for resource in table.resources() {
                    segments.put_full(contents.form, resource);
                }
            }
            Entries::Listed(entries) => {
                for entry in entries {
                    segments.put_entry(contents.form, &contents.resource_type, entry);
                }
            }
        }
        for name in &contents.removed {
            segments.put_bytes(REMOVED_RESOURCES, name.as_bytes());
        }
        for name in &contents.not_found {
            segments.put_bytes(fields.resource_errors, &not_found(name));
        }
        segments.finish()
    }

    /// The number of its bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a body always says its type")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The bytes, in order.
    #[must_use]
    pub fn segments(&self) -> &[Bytes] {
        &self.segments
    }
}

/// A segment that grows, behind the finished ones.
#[derive(Debug, Default)]
struct Segments {
    done: Vec<Bytes>,
    open: BytesMut,
}

impl Segments {
    fn put_entry(&mut self, form: Form, resource_type: &ResourceType, entry: &Entry) {
        match (form, entry) {
            // Only a wrapper can say "unchanged". Without one, the whole resource is sent again.
            (_, Entry::Full(resource)) | (Form::Sotw, Entry::Heartbeat(resource)) => {
                self.put_full(form, resource);
            }
            (Form::SotwWrapped, Entry::Heartbeat(resource)) => {
                self.put_wrapped(&resource_head(resource, resource.ttl(), &[]), None);
            }
            (Form::Delta { .. }, Entry::Heartbeat(resource)) => {
                self.put_bytes(RESOURCES, &resource_head(resource, resource.ttl(), &[]));
            }
            (Form::Delta { .. }, Entry::Unpopulated(name)) => {
                let mut unpopulated = message(RESOURCE_NAME, name.as_bytes());
                unpopulated.extend(message(RESOURCE_ALIASES, name.as_bytes()));
                self.put_bytes(RESOURCES, &unpopulated);
            }
            // State of the World has no resource without a message: its only field is the name.
            (Form::Sotw | Form::SotwWrapped, Entry::Unpopulated(name)) => {
                let named = message(NAME, name.as_bytes());
                self.put_full(form, &Resource::plain(resource_type.clone(), name, named));
            }
        }
    }

    fn put_full(&mut self, form: Form, resource: &Resource) {
        let type_url = resource.resource_type().type_url();
        match form {
            Form::Sotw => {
                self.put_header(RESOURCES, any_len(type_url, resource.n_bytes()));
                self.put_any(type_url, &resource.value());
            }
            Form::SotwWrapped => {
                self.put_wrapped(
                    &resource_head(resource, resource.ttl(), resource.aliases()),
                    Some(resource),
                );
            }
            Form::Delta { with_ttl } => {
                let ttl = resource.ttl().filter(|_| with_ttl);
                let head = resource_head(resource, ttl, resource.aliases());
                self.put_header(RESOURCES, head.len() + field_len(RESOURCE_BODY, body_len(resource)));
                self.put_resource(&head, Some(resource));
            }
        }
    }

    /// An `Any` that holds a `Resource` of these parts (row A136).
    fn put_wrapped(&mut self, head: &[u8], body: Option<&Resource>) {
        let n_body = body.map_or(0, |resource| field_len(RESOURCE_BODY, body_len(resource)));
        let n_resource = head.len() + n_body;
        self.put_header(RESOURCES, any_len(RESOURCE_TYPE_URL, n_resource));
        self.put_bytes(ANY_TYPE_URL, RESOURCE_TYPE_URL.as_bytes());
        self.put_header(ANY_VALUE, n_resource);
        self.put_resource(head, body);
    }

    /// The fields of a `Resource`.
    fn put_resource(&mut self, head: &[u8], body: Option<&Resource>) {
        self.open.put_slice(head);
        if let Some(resource) = body {
            self.put_header(RESOURCE_BODY, body_len(resource));
            self.put_any(resource.resource_type().type_url(), &resource.value());
        }
    }

    /// The fields of an `Any`.
    fn put_any(&mut self, type_url: &str, value: &Bytes) {
        self.put_bytes(ANY_TYPE_URL, type_url.as_bytes());
        if !value.is_empty() {
            self.put_header(ANY_VALUE, value.len());
            self.put_value(value);
        }
    }

    /// Chains a large value. Its ends are copied, so that no segment becomes short.
    fn put_value(&mut self, value: &Bytes) {
        if value.len() < MIN_CHAINED {
            self.open.put_slice(value);
            return;
        }
        let begin = MIN_SEGMENT.saturating_sub(self.open.len());
        let end = value.len() - MIN_SEGMENT;
        self.open.put_slice(&value[..begin]);
        self.done.push(self.open.split().freeze());
        self.done.push(value.slice(begin..end));
        self.open.put_slice(&value[end..]);
    }

    /// A length-delimited field. An empty one is left out, as in proto3.
    fn put_bytes(&mut self, field: u32, value: &[u8]) {
        put_field(&mut self.open, field, value);
    }

    fn put_header(&mut self, field: u32, len: usize) {
        put_header(&mut self.open, field, len);
    }

    fn finish(mut self) -> Body {
        self.done.push(self.open.freeze());
        let len = self.done.iter().map(Bytes::len).sum();
        Body { segments: self.done.into(), len }
    }
}

/// The field numbers of the two messages, where they differ.
struct Fields {
    version_info: u32,
    type_url: u32,
    control_plane: u32,
    resource_errors: u32,
}

impl Fields {
    fn of(form: Form) -> Self {
        match form {
            Form::Sotw | Form::SotwWrapped => {
                Self { version_info: 1, type_url: 4, control_plane: 6, resource_errors: 7 }
            }
            Form::Delta { .. } => Self { version_info: 1, type_url: 4, control_plane: 7, resource_errors: 9 },
        }
    }
}

/// A `Resource` without its body.
fn resource_head(resource: &Resource, ttl: Option<Duration>, aliases: &[Name]) -> Vec<u8> {
    let mut head = message(RESOURCE_VERSION, resource.version().to_string().as_bytes());
    put_field(&mut head, RESOURCE_NAME, resource.name().as_bytes());
    for alias in aliases {
        put_field(&mut head, RESOURCE_ALIASES, alias.as_bytes());
    }
    if let Some(ttl) = ttl {
        let mut duration = Vec::new();
        put_varint(&mut duration, DURATION_SECONDS, ttl.as_secs());
        put_varint(&mut duration, DURATION_NANOS, u64::from(ttl.subsec_nanos()));
        put_header(&mut head, RESOURCE_TTL, duration.len());
        head.extend(duration);
    }
    head
}

/// A `ResourceError` that says that a name does not exist.
fn not_found(name: &str) -> Vec<u8> {
    let mut error = message(1, &message(1, name.as_bytes()));
    let mut status = Vec::new();
    put_varint(&mut status, 1, NOT_FOUND);
    put_field(&mut status, 2, b"the resource does not exist");
    put_field(&mut error, 2, &status);
    error
}

fn body_len(resource: &Resource) -> usize {
    any_len(resource.resource_type().type_url(), resource.n_bytes())
}

/// Values of this size and more are chained, because a copy would cost more than a frame.
const MIN_CHAINED: usize = 16 * 1024;
/// Clients built on h2 count data frames below 256 bytes, and close a connection with many unread ones.
pub(crate) const MIN_SEGMENT: usize = 512;

/// `resources` of both messages.
const RESOURCES: u32 = 2;
/// `removed_resources` of `DeltaDiscoveryResponse`.
const REMOVED_RESOURCES: u32 = 6;
/// `name` of most types of resources, and `ClusterLoadAssignment.cluster_name`.
const NAME: u32 = 1;
const RESOURCE_VERSION: u32 = 1;
const RESOURCE_BODY: u32 = 2;
const RESOURCE_NAME: u32 = 3;
const RESOURCE_ALIASES: u32 = 4;
const RESOURCE_TTL: u32 = 6;
const DURATION_SECONDS: u32 = 1;
const DURATION_NANOS: u32 = 2;
const RESOURCE_TYPE_URL: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";
/// `google.rpc.Code.NOT_FOUND`.
const NOT_FOUND: u64 = 5;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use envoy_types::pb::envoy::config::core::v3::ControlPlane;
    use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
    use envoy_types::pb::envoy::service::discovery::v3 as proto;
    use envoy_types::pb::google::protobuf::{Any, Duration as ProtoDuration};
    use envoy_types::pb::google::rpc::Status;
    use prost::Message;
    use xds_cache::TypeTable;
    use xds_session::Response;

    use super::*;
    use crate::grpc::frames::Frames;

    fn resource(name: &str, n_bytes: usize) -> Arc<Resource> {
        let value: Vec<u8> = (0..n_bytes).map(|i| (i % 251) as u8).collect();
        let mut draft = Resource::plain(ResourceType::Cluster, name, value).to_draft();
        draft.ttl = Some(Duration::new(1, 500_000_000));
        draft.aliases = [Name::from(format!("{name}.alias"))].into();
        Arc::new(Resource::new(draft))
    }

    fn contents(form: Form, entries: Entries) -> Contents {
        Contents {
            resource_type: ResourceType::Cluster,
            version_info: "v1".into(),
            form,
            entries,
            removed: vec![],
            not_found: vec![],
        }
    }

    fn bytes_of(contents: &Contents, nonce: u64) -> Vec<u8> {
        let frames: Vec<Bytes> = Frames::new(nonce, Arc::new(Body::new(contents, "me"))).collect();
        let bytes = frames.concat();
        assert_eq!(bytes[0], 0);
        assert_eq!(u32::from_be_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]) as usize, bytes.len() - 5);
        for (i, frame) in frames.iter().enumerate() {
            assert!(frame.len() >= 256 || frames.len() == 1, "frame {i} has {} bytes", frame.len());
        }
        bytes[5..].to_vec()
    }

    fn any(resource: &Resource) -> Any {
        Any { type_url: resource.resource_type().type_url().into(), value: resource.value().to_vec() }
    }

    fn wrapped(resource: &Resource, with_ttl: bool, with_body: bool) -> proto::Resource {
        proto::Resource {
            name: resource.name().to_string(),
            version: resource.version().to_string(),
            aliases: if with_body { vec![resource.aliases()[0].to_string()] } else { vec![] },
            resource: with_body.then(|| any(resource)),
            ttl: with_ttl.then_some(ProtoDuration { seconds: 1, nanos: 500_000_000 }),
            ..Default::default()
        }
    }

    fn any_of(resource: &proto::Resource) -> Any {
        Any { type_url: RESOURCE_TYPE_URL.into(), value: resource.encode_to_vec() }
    }

    fn error(name: &str) -> proto::ResourceError {
        proto::ResourceError {
            resource_name: Some(proto::ResourceName { name: name.into(), ..Default::default() }),
            error_detail: Some(Status {
                code: 5,
                message: "the resource does not exist".into(),
                details: vec![],
            }),
        }
    }

    fn sotw(resources: Vec<Any>) -> proto::DiscoveryResponse {
        proto::DiscoveryResponse {
            version_info: "v1".into(),
            type_url: ResourceType::Cluster.type_url().into(),
            nonce: "abc".into(),
            control_plane: Some(ControlPlane { identifier: "me".into() }),
            resources,
            ..Default::default()
        }
    }

    /// Empty, small, one byte below and at the size from which values are chained, and large.
    fn many() -> Vec<Arc<Resource>> {
        [
            ("a", 0),
            ("b", 100),
            ("c", MIN_CHAINED - 1),
            ("d", MIN_CHAINED),
            ("e", 100_000),
            ("f", 1),
            ("g", 16_400),
        ]
        .map(|(name, n_bytes)| resource(name, n_bytes))
        .into()
    }

    #[test]
    fn sotw_equals_what_prost_makes() {
        let table = Arc::new(TypeTable::new(many()));
        for size in 0..many().len() {
            let listed = Entries::Listed(many().into_iter().take(size).map(Entry::Full).collect());
            let mut contents = contents(Form::Sotw, listed);
            contents.not_found = vec!["nope".into()];
            let expected = proto::DiscoveryResponse {
                resource_errors: vec![error("nope")],
                ..sotw(many().iter().take(size).map(|resource| any(resource)).collect())
            };
            let decoded = proto::DiscoveryResponse::decode(&*bytes_of(&contents, 0xabc)).unwrap();
            assert_eq!(decoded, expected, "{size} resources");
        }
        let whole = contents(Form::Sotw, Entries::Table(table));
        let decoded = proto::DiscoveryResponse::decode(&*bytes_of(&whole, 0xabc)).unwrap();
        assert_eq!(decoded, sotw(many().iter().map(|resource| any(resource)).collect()));
    }

    #[test]
    fn wrapped_sotw_equals_what_prost_makes() {
        let mut entries: Vec<Entry> = many().into_iter().map(Entry::Full).collect();
        entries.push(Entry::Heartbeat(resource("h", 100)));
        let mut expected: Vec<Any> = many().iter().map(|r| any_of(&wrapped(r, true, true))).collect();
        expected.push(any_of(&wrapped(&resource("h", 100), true, false)));
        let contents = contents(Form::SotwWrapped, Entries::Listed(entries));
        let decoded = proto::DiscoveryResponse::decode(&*bytes_of(&contents, 0xabc)).unwrap();
        assert_eq!(decoded.type_url, sotw(vec![]).type_url);
        let resources = |anys: &[Any]| -> Vec<proto::Resource> {
            anys.iter().map(|any| proto::Resource::decode(&*any.value).unwrap()).collect()
        };
        assert_eq!(resources(&decoded.resources), resources(&expected));
        assert!(decoded.resources.iter().all(|any| any.type_url == RESOURCE_TYPE_URL));
    }

    #[test]
    fn endpoints_that_do_not_exist_are_an_assignment_without_any() {
        let mut contents = contents(Form::Sotw, Entries::Listed(vec![Entry::Unpopulated("nope".into())]));
        contents.resource_type = ResourceType::ClusterLoadAssignment;
        let decoded = proto::DiscoveryResponse::decode(&*bytes_of(&contents, 0xabc)).unwrap();
        let [any] = &decoded.resources[..] else { panic!("{decoded:?}") };
        assert_eq!(any.type_url, decoded.type_url);
        let expected = ClusterLoadAssignment { cluster_name: "nope".into(), ..Default::default() };
        assert_eq!(ClusterLoadAssignment::decode(&*any.value).unwrap(), expected);
    }

    #[test]
    fn delta_equals_what_prost_makes() {
        for with_ttl in [false, true] {
            let mut entries: Vec<Entry> = many().into_iter().map(Entry::Full).collect();
            entries.push(Entry::Heartbeat(resource("h", 100)));
            entries.push(Entry::Unpopulated("rc/nope".into()));
            let mut resources: Vec<_> = many().iter().map(|r| wrapped(r, with_ttl, true)).collect();
            resources.push(wrapped(&resource("h", 100), true, false));
            resources.push(proto::Resource {
                name: "rc/nope".into(),
                aliases: vec!["rc/nope".into()],
                ..Default::default()
            });
            let mut contents = contents(Form::Delta { with_ttl }, Entries::Listed(entries));
            contents.removed = vec!["x".into(), "y".into()];
            contents.not_found = vec!["nope".into()];
            let expected = proto::DeltaDiscoveryResponse {
                system_version_info: "v1".into(),
                resources,
                type_url: ResourceType::Cluster.type_url().into(),
                removed_resources: vec!["x".into(), "y".into()],
                nonce: "abc".into(),
                control_plane: Some(ControlPlane { identifier: "me".into() }),
                resource_errors: vec![error("nope")],
                ..Default::default()
            };
            let decoded = proto::DeltaDiscoveryResponse::decode(&*bytes_of(&contents, 0xabc)).unwrap();
            assert_eq!(decoded, expected);
        }
    }

    #[test]
    fn large_resources_are_not_copied() {
        let large = resource("e", 100_000);
        let listed = Entries::Listed(vec![Entry::Full(Arc::clone(&large))]);
        let body = Body::new(&contents(Form::Sotw, listed), "me");
        let inside = large.value().as_ptr_range();
        assert!(body.segments.iter().any(|segment| inside.contains(&segment.as_ptr())));
        assert_eq!(body.len(), body.segments().iter().map(Bytes::len).sum::<usize>());
    }

    #[test]
    fn the_length_that_is_told_is_the_length_that_is_sent() {
        let contents = contents(Form::Sotw, Entries::Listed(many().into_iter().map(Entry::Full).collect()));
        let body = Arc::new(Body::new(&contents, "me"));
        let response = Response { nonce: 0x1234, contents };
        let n_sent: usize = Frames::new(response.nonce, Arc::clone(&body)).map(|frame| frame.len()).sum();
        assert_eq!(n_sent, Frames::message_len(&response, &body));
    }
}
