//! The encoded message of a resource: present, or assembled when it is first needed.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::host_sum::{self, HostSum};
use crate::resource_type::ResourceType;
use crate::version::VersionHasher;
use crate::work::{self, Work};

/// An encoded message. A copy shares its bytes.
#[derive(Clone)]
pub struct Encoded(Form);

#[derive(Clone)]
enum Form {
    Whole(Bytes),
    Assembled(Arc<Assembled>),
}

/// A RouteConfiguration of virtual hosts that are encoded one by one.
struct Assembled {
    parts: RouteConfigParts,
    bytes: OnceLock<Bytes>,
}

/// The parts from which a RouteConfiguration is assembled.
pub struct RouteConfigParts {
    /// The fields before the virtual hosts. Not one of these fields is a virtual host, and neither are those after them.
    pub before: Bytes,
    /// The fields after them.
    pub after: Bytes,
    /// The sum over the virtual hosts.
    pub hosts: HostSum,
    /// How many bytes they have together.
    pub n_bytes: usize,
    /// Writes them: at least one, all different, with key and length.
    pub write: Box<dyn Fn(&mut BytesMut) + Send + Sync>,
}

impl Encoded {
    /// A RouteConfiguration that is assembled when its bytes are first needed, once for all copies.
    #[must_use]
    pub fn assembled(parts: RouteConfigParts) -> Self {
        Self(Form::Assembled(Arc::new(Assembled { parts, bytes: OnceLock::new() })))
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        match &self.0 {
            Form::Whole(bytes) => bytes,
            Form::Assembled(assembled) => assembled.bytes.get_or_init(|| assembled.parts.assemble()),
        }
    }

    /// How many bytes it has.
    #[must_use]
    pub fn n_bytes(&self) -> usize {
        match &self.0 {
            Form::Whole(bytes) => bytes.len(),
            Form::Assembled(assembled) => assembled.parts.n_bytes(),
        }
    }

    /// Returns `true` if the bytes have not been needed yet, so they are not in memory.
    #[must_use]
    pub fn is_to_be_assembled(&self) -> bool {
        match &self.0 {
            Form::Whole(_) => false,
            Form::Assembled(assembled) => assembled.bytes.get().is_none(),
        }
    }

    /// Adds the message to a hash. Equal bytes add the same, however they were made.
    pub(crate) fn hash(&self, resource_type: &ResourceType, hasher: &mut VersionHasher) {
        if *resource_type == ResourceType::RouteConfiguration
            && let Some(content) = self.content()
        {
            return host_sum::hash(content, hasher);
        }
        hasher.update(self.bytes());
    }

    fn content(&self) -> Option<host_sum::Content<'_>> {
        match &self.0 {
            Form::Whole(bytes) => host_sum::content(bytes),
            Form::Assembled(assembled) => Some(assembled.parts.content()),
        }
    }
}

impl RouteConfigParts {
    fn n_bytes(&self) -> usize {
        self.before.len() + self.n_bytes + self.after.len()
    }

    fn content(&self) -> host_sum::Content<'_> {
        (&self.before, self.hosts, &self.after)
    }

    fn assemble(&self) -> Bytes {
        work::count(Work::Copied, self.n_bytes());
        let mut bytes = BytesMut::with_capacity(self.n_bytes());
        bytes.put_slice(&self.before);
        (self.write)(&mut bytes);
        bytes.put_slice(&self.after);
        let bytes = bytes.freeze();
        debug_assert_eq!(bytes.len(), self.n_bytes(), "as long as was said");
        debug_assert_eq!(host_sum::content(&bytes), Some(self.content()), "the hash is that of the bytes");
        bytes
    }
}

impl fmt::Debug for RouteConfigParts {
    /// Without its bytes, which may not exist yet.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {:?}", self.n_bytes(), self.hosts)
    }
}

impl From<Bytes> for Encoded {
    fn from(bytes: Bytes) -> Self {
        Self(Form::Whole(bytes))
    }
}

impl From<Vec<u8>> for Encoded {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl PartialEq for Encoded {
    /// Equal bytes.
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::host_sum::HostHash;
    use crate::resource::{Resource, ResourceDraft};
    use crate::wire::put_bytes;

    fn host(content: &str) -> Vec<u8> {
        let mut field = Vec::new();
        put_bytes(&mut field, 2, content.as_bytes());
        field
    }

    /// A RouteConfiguration of these hosts, and how often it was assembled.
    fn assembled(hosts: &[&str]) -> (Resource, Arc<AtomicUsize>) {
        let n_made = Arc::new(AtomicUsize::new(0));
        let (mut sum, mut last) = (HostSum::default(), None);
        for host in hosts {
            let hash = HostHash::of(&self::host(host));
            sum.insert(hash, [last, None]);
            last = Some(hash);
        }
        let fields: Vec<u8> = hosts.iter().flat_map(|content| host(content)).collect();
        let counted = Arc::clone(&n_made);
        let parts = RouteConfigParts {
            before: Bytes::from_static(b"\x0a\x01r"),
            after: Bytes::from_static(b"\x2a\x01x"),
            hosts: sum,
            n_bytes: fields.len(),
            write: Box::new(move |bytes| {
                counted.fetch_add(1, Ordering::Relaxed);
                bytes.put_slice(&fields);
            }),
        };
        let draft = Resource::plain(ResourceType::RouteConfiguration, "r", "").to_draft();
        (Resource::new(ResourceDraft { value: Encoded::assembled(parts), ..draft }), n_made)
    }

    #[test]
    fn bytes_that_are_put_together_have_the_version_of_those_that_are_there() {
        for hosts in [&["a"][..], &["a", "b"], &["b", "a"], &["a", "b", "c"]] {
            let (assembled, n_made) = assembled(hosts);
            let (version, n_bytes) = (assembled.version(), assembled.n_bytes());
            assert_eq!(n_made.load(Ordering::Relaxed), 0, "nobody asked");
            let value = assembled.value().into_owned();
            let written = Resource::plain(ResourceType::RouteConfiguration, "r", value.clone());
            assert_eq!((written.version(), written.n_bytes()), (version, n_bytes), "{hosts:?}");
            assert_eq!(assembled.clone().value().as_ptr(), value.as_ptr());
            assert_eq!(n_made.load(Ordering::Relaxed), 1, "once for all");
        }
    }
}
