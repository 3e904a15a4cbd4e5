//! The shared base of all parts of the codec: the pool, the facts, and the lookup of types by URL.

use bytes::Bytes;
use prost_reflect::{DescriptorPool, MessageDescriptor};

use crate::facts::FactsTable;

/// The parts that never change once a codec is made.
pub(crate) struct Inner {
    pub(crate) pool: DescriptorPool,
    pub(crate) facts: FactsTable,
    pub(crate) pgv: PgvLevel,
    /// The built-in set and the user's, concatenated, which is how protobuf joins them.
    pub(crate) descriptor_set: Bytes,
}

/// The consequence of breaking the rules in Envoy's protos (`validate.rules`).
///
/// A client that is newer than our protos may accept values that they forbid (row A220), so there is a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PgvLevel {
    /// The rules are not looked at.
    Off,
    /// A warning; the resource is served.
    Warn,
    /// An error; the resource is refused, as Envoy would refuse it.
    #[default]
    Error,
}

impl Inner {
    /// The message type of that full name.
    pub(crate) fn message(&self, name: &str) -> Option<MessageDescriptor> {
        self.pool.get_message_by_name(name)
    }

    /// The message type that a type URL names, whatever is before its last slash.
    pub(crate) fn message_of_url(&self, type_url: &str) -> Option<MessageDescriptor> {
        let (_, name) = type_url.rsplit_once('/')?;
        self.message(name)
    }

    /// The type URL that a wrong one most likely means: the same message in another package, else the nearest name.
    pub(crate) fn suggest_type_url(&self, type_url: &str) -> Option<String> {
        let name = type_url.rsplit('/').next().unwrap_or(type_url);
        if name.len() > 200 || name.is_empty() {
            return None;
        }
        let last = |name: &str| name.rsplit('.').next().unwrap_or(name).to_lowercase();
        let wanted = last(name);
        let messages: Vec<_> = self.pool.all_messages().filter(|message| !message.is_map_entry()).collect();
        let distance = |candidate: &str| strsim::damerau_levenshtein(candidate, name);
        let same_last = messages.iter().map(MessageDescriptor::full_name);
        let same_last: Vec<_> = same_last.filter(|candidate| last(candidate) == wanted).collect();
        let same_last = same_last
            .iter()
            .filter(|_| same_last.len() <= MAX_NAMESAKES)
            .min_by_key(|candidate| (distance(candidate), candidate.len()));
        let near = || {
            let candidates = messages.iter().map(MessageDescriptor::full_name);
            let near = candidates.map(|candidate| (distance(candidate), candidate));
            near.filter(|(distance, _)| *distance <= 6.min(name.len() / 3))
                .min()
                .map(|(_, candidate)| candidate)
        };
        same_last.copied().or_else(near).map(|name| format!("{TYPE_PREFIX}{name}"))
    }
}

/// Names of several messages, such as `Config`, do not say which was meant.
const MAX_NAMESAKES: usize = 4;

/// The beginning of every resource's type URL.
pub(crate) const TYPE_PREFIX: &str = "type.googleapis.com/";

/// How deep `Any`s are entered. Each one starts a new count of nested messages, so without a bound a small input could
/// exhaust the stack. Envoy's deepest filters (composite in a matcher in a connection manager) need 8.
pub(crate) const MAX_ANY_DEPTH: usize = 16;
