//! The messages of OTLP, as far as traces need them ([the protocol][otlp]).
//!
//! [otlp]: https://opentelemetry.io/docs/specs/otlp/

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// `opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) resource_spans: Vec<ResourceSpans>,
}

/// `opentelemetry.proto.collector.trace.v1.ExportTraceServiceResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(super) rejected_spans: i64,
    #[prost(string, tag = "2")]
    pub(super) error_message: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub(super) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(super) scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(super) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub(super) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(super) spans: Vec<Span>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Scope {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) version: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) span_id: Vec<u8>,
    /// Empty in the root.
    #[prost(bytes = "vec", tag = "4")]
    pub(super) parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub(super) name: String,
    #[prost(enumeration = "Kind", tag = "6")]
    pub(super) kind: i32,
    #[prost(fixed64, tag = "7")]
    pub(super) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub(super) end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub(super) attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    pub(super) status: Option<Status>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
pub(super) enum Kind {
    Unspecified = 0,
    /// Work in the process.
    Internal = 1,
    /// The server side of something remote.
    Server = 2,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Status {
    #[prost(string, tag = "2")]
    pub(super) message: String,
    #[prost(enumeration = "StatusCode", tag = "3")]
    pub(super) code: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
pub(super) enum StatusCode {
    Unset = 0,
    Ok = 1,
    Error = 2,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(message, optional, tag = "2")]
    pub(super) value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 3")]
    pub(super) value: Option<Value>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
}

/// An attribute with a text, of which at most [`MAX_TEXT_BYTES`] are kept.
pub(super) fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::Text(cut(value).to_owned()))
}

/// The first [`MAX_TEXT_BYTES`] of a text.
pub(super) fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_TEXT_BYTES)).unwrap_or_default()
}

/// An attribute with a number.
pub(super) fn number(key: &str, value: u64) -> KeyValue {
    attribute(key, Value::Number(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

/// A time as spans have it.
pub(super) fn nanos(at: Instant) -> u64 {
    let time = SystemTime::now().checked_sub(at.elapsed()).unwrap_or(UNIX_EPOCH);
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Node ids, summaries and the words of clients can be long.
const MAX_TEXT_BYTES: usize = 1_024;
