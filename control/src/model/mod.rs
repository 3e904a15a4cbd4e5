//! The values that describe changes, for requests and for reports. Nothing here knows how changes are made.

pub mod document;
mod event;
mod files;
pub mod group;
mod revision;
pub mod rollouts;
pub mod tag;
mod texts;
mod trace_parent;
pub mod wave;
pub mod weights;
mod write;

pub use event::Event;
pub use files::{Asked, FileLoad, FileObject, FileObjectKey, FileStatus, ReloadOutcome, ServedLoad};
pub use revision::{ChangeKind, ChangeSource, ChangedObject, HistoryEntry};
pub use texts::Texts;
pub use trace_parent::{NoTraceParent, TraceParent};
pub use write::{
    EntityTags, GroupPhases, GroupRequests, RequestName, StepKind, WaveChoice, Write, WriteError,
    WriteOptions, WriteOutcome,
};
