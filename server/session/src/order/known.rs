//! Resources that a client learns of from others that it already uses, and asks for only then: routes of its scopes, its virtual hosts.
//!
//! The state of the type does not tell what that was: it may have had something else to send, or belong to a stream that has ended or
//! is to be opened. So the tables of the last plan are remembered: whatever a client was sent since then leads to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use xds_cache::ResourceType;
use xds_cache::status::StreamId;

use super::waiting::Known;
use crate::references;
use crate::stream::Stream;
use crate::target::Target;

/// The resources that the client may have learned of once it is brought up to this.
pub(super) fn known(target: Target<'_>, streams: &BTreeMap<StreamId, Stream>) -> Option<Box<Known>> {
    let is_sent = |of: &ResourceType| streams.values().any(|stream| stream.find(of).is_some());
    let rows = references::ROWS.iter().filter(|row| row.is_used_at_once && is_sent(&row.from));
    let tables = rows.map(|row| (row.to.clone(), Arc::clone(target.table(&row.to))));
    let known: Known = tables.filter(|(_, table)| !table.is_empty()).collect();
    (!known.is_empty()).then(|| Box::new(known))
}
