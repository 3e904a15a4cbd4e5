//! References from one document to another.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Kind, Spot};

/// A reference to an object.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectRef {
    /// Where it is.
    pub spot: Spot,
    /// The API group, with its default filled in; empty for core kinds.
    pub group: Cow<'static, str>,
    /// The kind, with its default filled in.
    pub kind: Cow<'static, str>,
    /// The namespace, with that of the referring object filled in.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
    /// The port, if the kind has ports.
    pub port: Option<u16>,
}

impl ObjectRef {
    /// The kind of backend that it names, if it names one.
    pub(crate) fn backend_kind(&self) -> Option<Kind> {
        [Kind::Service, Kind::Backend].into_iter().find(|kind| kind.is_named(&self.group, &self.kind))
    }
}
