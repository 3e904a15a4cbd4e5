//! Values that are nearly always empty.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A value that is nearly always empty and then takes only a pointer. Copies share it.
#[derive(Clone)]
pub(crate) struct Rare<T>(Option<Arc<T>>);

/// A type with an empty value.
pub(crate) trait Silent: Clone + PartialEq + 'static {
    /// The empty value.
    const SILENT: &Self;
}

impl<T> Default for Rare<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Silent> From<T> for Rare<T> {
    fn from(value: T) -> Self {
        Self((value != *T::SILENT).then(|| Arc::new(value)))
    }
}

impl<T: Silent> Deref for Rare<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::SILENT)
    }
}

impl<T: Silent> DerefMut for Rare<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(self.0.get_or_insert_with(|| Arc::new(T::SILENT.clone())))
    }
}

impl<T: Silent> PartialEq for Rare<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Silent + Hash> Hash for Rare<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<T: Silent + fmt::Debug> fmt::Debug for Rare<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
