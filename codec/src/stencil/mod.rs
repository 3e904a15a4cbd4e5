//! Resources of the same shape: all but the first two cost only a part of what the codec costs.
//!
//! Generated resources differ mostly in names. So the third message of a shape is not converted, checked and walked again. A [`Stencil`]
//! has the bytes of the second message in pieces, with holes in place of its texts, and is filled with new texts. Nothing else writes
//! messages: a stencil is cut from the bytes that the codec made, by the JSON from which it made them.
//!
//! A filled stencil equals what the codec makes from the same JSON, because everything that the codec reads is the same or is checked
//! again:
//!
//! * The **shape** is the same: keys and their order, types of messages, numbers, which texts are empty ([`skeleton`]), and every text
//!   that is not a field of type `string`: enums, times, base64, `Struct`s, everything in a map ([`holes`]). So the same fields are set.
//! * Each text that fills a hole obeys the **rules** of its field (`validate.rules`). Fields whose rules compare items have no holes.
//! * The **lints** of the resource run again. A message inside it whose lints depend on texts has no holes.
//! * **References** use texts unchanged as their names. If one has a different name, the message has no stencil.
//!
//! If a check reports something, the codec reads the message after all, so its diagnostics do not change. Debug builds compare every
//! filled stencil with what the codec makes.

mod cut;
mod holes;
mod keys;
mod skeleton;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use serde_json::Value as Json;
use xds_cache::{Resource, ResourceDraft};

use crate::assembled::VirtualHost;
use crate::codec::Codec;
use crate::diagnostic::Diagnostic;
use cut::Stencil;
pub use keys::Keys;
use skeleton::Skeleton;

/// Makes resources from JSON like the codec, but faster if many have the same shape.
///
/// Keeps at most [`MAX_KEPT_BYTES`] of shapes, and drops all of them when there are more. Of a shape that was seen once, it keeps only a
/// hash.
pub struct Stencils {
    codec: Codec,
    keys: Arc<Keys>,
    /// By skeleton. Shapes with the same skeleton differ in texts without holes.
    shapes: HashMap<Box<[u8]>, Shapes>,
    /// An estimate of the memory of the shapes in bytes.
    n_bytes: usize,
    /// Hashes of skeletons that were seen once.
    seen: HashSet<u64>,
    /// The buffer for the next skeleton.
    room: Vec<u8>,
}

/// The stencils of a skeleton, at most [`MAX_SHAPES`].
#[derive(Default)]
struct Shapes {
    stencils: Vec<Stencil>,
    /// True if a stencil could not be made. Then no more are tried.
    is_unfit: bool,
}

impl Stencils {
    /// No stencils yet.
    #[must_use]
    pub fn new(codec: &Codec) -> Self {
        Self::with_keys(codec, Arc::default())
    }

    /// No stencils yet. Their resources share `keys` with others.
    #[must_use]
    pub fn with_keys(codec: &Codec, keys: Arc<Keys>) -> Self {
        Self {
            codec: codec.clone(),
            keys,
            shapes: HashMap::new(),
            n_bytes: 0,
            seen: HashSet::new(),
            room: Vec::new(),
        }
    }

    /// The keys of its resources.
    #[must_use]
    pub fn keys(&self) -> &Arc<Keys> {
        &self.keys
    }

    /// The same as [`Codec::resource_from_json`].
    ///
    /// # Errors
    ///
    /// Returns all faults, at least one diagnostic.
    pub fn resource(&mut self, json: &Json) -> Result<ResourceDraft, Vec<Diagnostic>> {
        let Some(skeleton) = Skeleton::of(json, std::mem::take(&mut self.room), MAX_SKELETON_BYTES) else {
            return Ok(self.codec.resource_from_json(json)?.to_draft());
        };
        let known = self.shapes.get(skeleton.bytes.as_slice());
        let fitting =
            known.and_then(|shapes| shapes.stencils.iter().find(|stencil| stencil.fits(&skeleton.texts)));
        let outcome = match (fitting.and_then(|stencil| stencil.fill(&skeleton.texts, &self.keys)), known) {
            (Some(filled), _) => {
                debug_assert!(is_from_codec(&self.codec, json, &filled), "a wrong stencil for {json}");
                Ok(filled)
            }
            (None, Some(shapes)) => {
                let is_wanted = fitting.is_none() && !shapes.is_unfit && shapes.stencils.len() < MAX_SHAPES;
                self.codec.resource_from_json(json).map(|resource| {
                    if is_wanted {
                        self.keep(json, &skeleton.bytes, &resource);
                    }
                    resource.to_draft()
                })
            }
            (None, None) => self.codec.resource_from_json(json).map(|resource| {
                if self.is_second(&skeleton.bytes) {
                    self.keep(json, &skeleton.bytes, &resource);
                }
                resource.to_draft()
            }),
        };
        self.room = skeleton.bytes;
        outcome
    }

    /// The same as [`Codec::virtual_host`].
    ///
    /// # Errors
    ///
    /// Returns all faults, at least one diagnostic.
    pub fn virtual_host(&mut self, json: &Json) -> Result<VirtualHost, Vec<Diagnostic>> {
        let host = self.resource(json)?;
        Ok(self.codec.host_of(&host))
    }

    /// Records a skeleton. Returns `true` if it was seen before.
    fn is_second(&mut self, skeleton: &[u8]) -> bool {
        if self.seen.len() >= MAX_SEEN {
            self.seen.clear();
        }
        !self.seen.insert(self.shapes.hasher().hash_one(skeleton))
    }

    fn keep(&mut self, json: &Json, skeleton: &[u8], resource: &Resource) {
        let stencil = Stencil::cut(&self.codec.inner, json, resource);
        let stencil = stencil.filter(|stencil| stencil.n_bytes() <= MAX_STENCIL_BYTES);
        let n_bytes = skeleton.len() + stencil.as_ref().map_or(0, Stencil::n_bytes);
        if self.n_bytes + n_bytes > MAX_KEPT_BYTES {
            self.shapes.clear();
            self.n_bytes = 0;
        }
        self.n_bytes += n_bytes;
        let shapes = self.shapes.entry(skeleton.into()).or_default();
        match stencil {
            Some(stencil) => shapes.stencils.push(stencil),
            None => shapes.is_unfit = true,
        }
    }
}

impl fmt::Debug for Stencils {
    /// Shows the number of shapes and their memory in bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_shapes: usize = self.shapes.values().map(|shapes| shapes.stencils.len()).sum();
        f.debug_struct("Stencils").field("n_shapes", &n_shapes).field("n_bytes", &self.n_bytes).finish()
    }
}

/// Returns `true` if the codec makes the same from it.
fn is_from_codec(codec: &Codec, json: &Json, filled: &ResourceDraft) -> bool {
    let filled = Resource::new(filled.clone());
    codec.resource_from_json(json).is_ok_and(|made| {
        made == filled && made.value() == filled.value() && made.references() == filled.references()
    })
}

/// The limit for all shapes together. A translation of 10,000 routes has some ten shapes of 2 kB.
const MAX_KEPT_BYTES: usize = 8 << 20;

/// The limit for one stencil.
const MAX_STENCIL_BYTES: usize = 128 << 10;

/// The skeleton of an assignment with 100 endpoints is half as long. Longer ones rarely have the same shape as others.
const MAX_SKELETON_BYTES: usize = 32 << 10;

/// The limit of shapes of one skeleton. They differ in texts without holes: the states of a few endpoints, the times of a few routes.
const MAX_SHAPES: usize = 8;

/// The limit of hashes of skeletons.
const MAX_SEEN: usize = 1 << 16;

#[cfg(test)]
mod tests;
