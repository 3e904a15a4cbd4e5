//! The shared base of the codec: the pool, the facts, and the lookup of types by URL.

use bytes::Bytes;
use prost_reflect::{DescriptorPool, MessageDescriptor};

use crate::facts::FactsTable;

/// The parts of a codec that never change.
pub(crate) struct Inner {
    pub(crate) pool: DescriptorPool,
    pub(crate) facts: FactsTable,
    pub(crate) pgv: PgvLevel,
    /// The built-in set and the user's sets. Concatenating their bytes merges them.
    pub(crate) descriptor_set: Bytes,
}

/// How violations of the rules in Envoy's protos (`validate.rules`) are treated.
///
/// A newer client may accept values that the built-in protos forbid (row A220), so this is an option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PgvLevel {
    /// The rules are not checked.
    Off,
    /// A violation is a warning. The resource is served.
    Warn,
    /// A violation is an error. The resource is refused, as Envoy would reject it.
    #[default]
    Error,
}

impl Inner {
    /// The message type with this full name.
    pub(crate) fn message(&self, name: &str) -> Option<MessageDescriptor> {
        self.pool.get_message_by_name(name)
    }

    /// The message type of a type URL. The part before the last slash does not matter.
    pub(crate) fn message_of_url(&self, type_url: &str) -> Option<MessageDescriptor> {
        let (_, name) = type_url.rsplit_once('/')?;
        self.message(name)
    }

    /// The most likely right type URL for a wrong one: the same message in another package, or else the nearest name.
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

/// The limit of messages with the same name, such as `Config`. Among more, the intended one cannot be guessed.
const MAX_NAMESAKES: usize = 4;

/// The beginning of every resource's type URL.
pub(crate) const TYPE_PREFIX: &str = "type.googleapis.com/";

/// The limit of nested `Any`s. Each one restarts the count of nested messages, so without a limit a small input could exhaust the stack.
/// Envoy's deepest filters (composite in a matcher in a connection manager) need 8.
pub(crate) const MAX_ANY_DEPTH: usize = 16;
