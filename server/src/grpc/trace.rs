//! The conversation with a client, message by message, in the log: `--log-level info,xds_server::grpc=trace`.
//!
//! Names and versions only: what a resource says is in no log.

use std::fmt;

use tracing::trace;
use xds_cache::ResourceType;
use xds_cache::status::StreamId;
use xds_session::{Nonce, Request, Response};

use crate::grpc::kinds::request_kind;

/// Logs a request of a client.
pub(crate) fn request(node: Option<&str>, stream: StreamId, resource_type: &ResourceType, request: &Request) {
    let kind = request_kind(request);
    let resource_type = resource_type.type_url();
    match request {
        Request::Sotw(request) => trace!(
            node, %stream, resource_type, ?kind, nonce = %AsText(request.response_nonce),
            version_info = request.version_info, resource_names = %Names::of(&request.resource_names),
            "request",
        ),
        Request::Delta(request) => trace!(
            node, %stream, resource_type, ?kind, nonce = %AsText(request.response_nonce),
            subscribe = %Names::of(&request.resource_names_subscribe),
            unsubscribe = %Names::of(&request.resource_names_unsubscribe),
            initial = %Names::of(request.initial_resource_versions.keys()),
            "request",
        ),
    }
}

/// Logs a response to a client.
pub(crate) fn response(node: Option<&str>, stream: StreamId, response: &Response) {
    let contents = &response.contents;
    trace!(
        node, %stream, resource_type = contents.resource_type.type_url(),
        nonce = Nonce::text(response.nonce), version_info = &*contents.version_info,
        resources = %Names::of(contents.entries.names()), removed = %Names::of(&contents.removed),
        not_found = %Names::of(&contents.not_found),
        "response",
    );
}

/// The first few names, and how many there are.
struct Names<I>(I);

impl<I: Iterator + Clone> Names<I> {
    fn of(names: impl IntoIterator<IntoIter = I>) -> Self {
        Self(names.into_iter())
    }
}

impl<I> fmt::Display for Names<I>
where
    I: Iterator<Item: AsRef<str>> + Clone,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = self.0.clone();
        f.write_str("[")?;
        for (i, name) in names.by_ref().take(MAX_NAMES).enumerate() {
            write!(f, "{}{}", if i > 0 { ", " } else { "" }, name.as_ref())?;
        }
        match names.count() {
            0 => f.write_str("]"),
            n_more => write!(f, ", … {n_more} more]"),
        }
    }
}

struct AsText(Nonce);

impl fmt::Display for AsText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Nonce::None => Ok(()),
            Nonce::Ours(nonce) => f.write_str(&Nonce::text(nonce)),
            Nonce::Foreign => f.write_str("foreign"),
        }
    }
}

/// The most names in a line, so that it stays readable and no client can make it grow.
const MAX_NAMES: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_names_a_line_shows_the_first() {
        let names: Vec<String> = (0..23).map(|i| format!("c{i}")).collect();
        assert_eq!(Names::of(&names[..2]).to_string(), "[c0, c1]");
        assert_eq!(Names::of(&names[..0]).to_string(), "[]");
        assert!(Names::of(&names).to_string().ends_with("c19, … 3 more]"));
    }
}
