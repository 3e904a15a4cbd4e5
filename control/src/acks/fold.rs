//! The answer of a client to a change: a fold over its streams, types and resources.

use std::sync::Arc;

use xds_cache::status::{StreamEntry, TypeAnswer, TypeStatus};
use xds_cache::{Name, ResourceType, Revision};

use super::changed::ConcernedStream;
use super::report::{NodeNack, Sight};

/// What a client makes of a change.
#[derive(Clone, Debug, PartialEq)]
pub enum AckState {
    /// It has not answered everything yet.
    Pending,
    /// Pending, because it is not known yet which resources of a rejected response the client rejects, or whether it subscribes to
    /// something of the change.
    Unknown,
    /// It uses everything of the change.
    Acked {
        /// True if it accepted some of that as part of a newer response.
        by_newer: bool,
    },
    /// It rejects something of the change.
    Nacked(Rejected),
    /// It has no stream any more.
    Gone,
}

/// A client's rejection of something that was changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejected {
    pub(super) resource_type: ResourceType,
    /// `None` if it is not known which resource it is.
    pub(super) resource: Option<Name>,
    pub(super) message: Arc<str>,
    /// It was rejected before the change, too.
    pub failed_before: bool,
}

/// The answers of a client's streams so far.
#[derive(Debug, Default)]
pub struct Fold {
    n_open: usize,
    is_pending: bool,
    is_unknown: bool,
    by_newer: bool,
    rejected: Option<Rejected>,
}

impl Fold {
    /// Counts a stream of the client; without any, it is gone.
    pub fn count(&mut self) {
        self.n_open += 1;
    }

    /// Reads the answers of a stream to what a revision changed. A rejection of which `was_there` is true counts as older than that.
    pub fn read(
        &mut self,
        entry: &StreamEntry,
        stream: &ConcernedStream,
        revision: Revision,
        was_there: impl Fn(&ResourceType, Option<&str>) -> bool,
    ) {
        if stream.is_in_doubt() {
            (self.is_pending, self.is_unknown) = (true, true);
        }
        entry.with(|status| {
            for resource_type in &stream.types {
                let Some(of_type) = status.types.get(resource_type) else {
                    self.is_pending = true;
                    continue;
                };
                match of_type.answer(revision, |name| stream.has(resource_type, name)) {
                    TypeAnswer::Pending => self.is_pending = true,
                    TypeAnswer::Unknown => (self.is_pending, self.is_unknown) = (true, true),
                    TypeAnswer::Uses => self.by_newer |= is_newer(of_type, revision),
                    TypeAnswer::Rejects { resource, message, failed_before } => {
                        let failed_before = failed_before || was_there(resource_type, resource.as_deref());
                        if self.rejected.as_ref().is_none_or(|rejected| rejected.failed_before) {
                            let resource_type = resource_type.clone();
                            self.rejected =
                                Some(Rejected { resource_type, resource, message, failed_before });
                        }
                    }
                }
            }
        });
    }

    /// What the client makes of the change.
    #[must_use]
    pub fn state(self) -> AckState {
        let Self { n_open, is_pending, is_unknown, by_newer, rejected } = self;
        match rejected {
            _ if n_open == 0 => AckState::Gone,
            // A resource that was rejected before does not end the wait for the others.
            Some(rejected) if !(rejected.failed_before && is_pending) => AckState::Nacked(rejected),
            Some(_) | None if is_unknown => AckState::Unknown,
            Some(_) | None if is_pending => AckState::Pending,
            Some(_) | None => AckState::Acked { by_newer },
        }
    }
}

impl Rejected {
    /// The rejection as that of a node.
    #[must_use]
    pub fn of_node(&self, node: String, sight: Sight) -> NodeNack {
        let resource = self.resource.as_ref().filter(|_| sight == Sight::Words);
        NodeNack {
            node,
            message: sight.words(&self.message),
            type_url: Some(self.resource_type.type_url().to_owned()),
            resource: resource.map(|name| name.to_string()),
        }
    }
}

fn is_newer(status: &TypeStatus, revision: Revision) -> bool {
    status.acked.as_ref().is_some_and(|acked| acked.revision > revision)
}
