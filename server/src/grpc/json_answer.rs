//! The answer to a poll, written part by part.
//!
//! While it is made, the JSON of a resource takes many times its bytes. So only a few resources are written at once, and the next ones
//! when the client has read these.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value as Json;
use xds_cache::Name;
use xds_codec::MessageError;
use xds_session::{Contents, Entries, Entry};

use crate::grpc::{Grpc, encode};

/// A `DiscoveryResponse` in JSON.
#[derive(Debug)]
pub(crate) struct JsonAnswer {
    grpc: Arc<Grpc>,
    contents: Contents,
    /// The numbers of written entries, and of written names that do not exist.
    n_written: usize,
    n_not_found: usize,
    /// The name of the last written entry.
    last: Option<Name>,
    /// The list that is being written; `None` before the first.
    list: Option<&'static str>,
    n_bytes: usize,
    is_done: bool,
}

impl JsonAnswer {
    /// Nothing is written yet.
    pub(crate) fn new(grpc: Arc<Grpc>, contents: Contents) -> Self {
        Self {
            grpc,
            contents,
            n_written: 0,
            n_not_found: 0,
            last: None,
            list: None,
            n_bytes: 0,
            is_done: false,
        }
    }

    /// Returns `true` if there is no more.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// The next part. The first one has all fields that are no lists.
    ///
    /// # Errors
    ///
    /// A resource cannot be written; only a fault of this program leads here.
    pub(crate) fn next(&mut self) -> Result<Bytes, MessageError> {
        let is_first = self.n_bytes == 0;
        let part = self.encode_part();
        let mut json = self.grpc.codec.message_to_json(DISCOVERY_RESPONSE, &part)?;
        drop(part);
        let mut lists = LISTS.map(|list| json.as_object_mut().and_then(|fields| fields.remove(list)));
        let mut text = String::new();
        if is_first {
            // Without the brace at its end, before which the lists go.
            text = json.to_string();
            text.pop();
        }
        drop(json);
        for (list, items) in LISTS.into_iter().zip(&mut lists) {
            let items = items.take();
            for item in items.iter().filter_map(Json::as_array).flatten() {
                self.begin(list, &mut text);
                // A string takes everything.
                let _ = write!(text, "{item}");
            }
        }
        self.is_done = self.n_written == self.contents.entries.len()
            && self.n_not_found == self.contents.not_found.len();
        if self.is_done {
            text.push_str(if self.list.is_some() { "]}" } else { "}" });
        }
        self.n_bytes += text.len();
        if self.is_done {
            self.grpc.metrics.response(&self.contents.resource_type, self.n_bytes);
        }
        Ok(text.into())
    }

    /// Writes the text before an item of a list.
    fn begin(&mut self, list: &'static str, text: &mut String) {
        let before = match self.list.replace(list) {
            None => format!(",\"{list}\":["),
            Some(current) if current == list => ",".to_owned(),
            Some(_) => format!("],\"{list}\":["),
        };
        text.push_str(&before);
    }

    /// Encodes a response with the next entries, or with the next names that do not exist.
    fn encode_part(&mut self) -> Vec<u8> {
        let entries = self.batch();
        self.n_written += entries.len();
        self.last = entries.last().map(|entry| Arc::clone(entry.name())).or(self.last.take());
        let n_names = if entries.is_empty() { BATCH_BYTES / ENTRY_BYTES } else { 0 };
        let not_found: Vec<_> =
            self.contents.not_found.iter().skip(self.n_not_found).take(n_names).cloned().collect();
        self.n_not_found += not_found.len();
        let part = Contents {
            resource_type: self.contents.resource_type.clone(),
            version_info: Arc::clone(&self.contents.version_info),
            form: self.contents.form,
            entries: Entries::Listed(entries),
            removed: vec![],
            not_found,
        };
        encode::Body::new(&part, &self.grpc.config.identifier).segments().concat()
    }

    /// The next entries, a few of them.
    fn batch(&self) -> Vec<Entry> {
        let mut n_bytes = 0;
        let mut fits = |entry: &Entry| {
            let is_room = n_bytes < BATCH_BYTES;
            n_bytes += match entry {
                Entry::Full(resource) | Entry::Heartbeat(resource) => resource.n_bytes() + ENTRY_BYTES,
                Entry::Unpopulated(_) => ENTRY_BYTES,
            };
            is_room
        };
        match &self.contents.entries {
            Entries::Table(table) => {
                let rest = table.resources_after(self.last.as_deref());
                rest.map(|resource| Entry::Full(Arc::clone(resource))).take_while(fits).collect()
            }
            Entries::Listed(entries) => {
                entries.iter().skip(self.n_written).take_while(|entry| fits(entry)).cloned().collect()
            }
        }
    }
}

/// The fields of a response that have many entries.
const LISTS: [&str; 2] = ["resources", "resource_errors"];
const DISCOVERY_RESPONSE: &str = "envoy.service.discovery.v3.DiscoveryResponse";
/// The bytes of resources that are written at once. Their JSON takes some 20 times as much while it is made.
const BATCH_BYTES: usize = 64 * 1024;
/// The cost of a resource besides its bytes.
const ENTRY_BYTES: usize = 128;
