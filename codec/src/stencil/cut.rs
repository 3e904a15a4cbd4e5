//! One stencil: the bytes of a message, with holes in place of texts.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use prost_reflect::{Kind, MessageDescriptor};
use serde_json::Value as Json;
use xds_cache::wire::{Field, Fields, Value};
use xds_cache::{Origin, Reference, Resource, ResourceDraft, ResourceType};

use super::holes::{self, Hole, Text};
use super::keys::Keys;
use crate::finding::Findings;
use crate::inner::Inner;
use crate::lint;
use crate::message::Message;
use crate::path::Path;
use crate::references;
use crate::resource::name_field;
use crate::wire::Writer;

/// A message with holes for texts, and the other parts of a resource.
///
/// Texts are identified by their index in [`Skeleton::texts`](super::skeleton::Skeleton::texts).
pub(super) struct Stencil {
    resource_type: ResourceType,
    message: MessageDescriptor,
    /// The text that is the resource's name.
    name: usize,
    /// The texts that must not change.
    fixed: Box<[(usize, Box<str>)]>,
    holes: Box<[(usize, Hole)]>,
    pub(super) pieces: Vec<Piece>,
    pub(super) references: Box<[Named]>,
}

/// A part of an encoded message.
#[derive(Debug, PartialEq)]
pub(super) enum Piece {
    /// Bytes that never change.
    Raw(Vec<u8>),
    /// A text field with this number.
    Text(u32, usize),
    /// The beginning of a message field with this number that has holes.
    Open(u32),
    /// The end of such a field.
    Close,
}

/// A reference whose name is a text.
pub(super) struct Named {
    to: ResourceType,
    /// The text; `None` for `*`, which means everything.
    name: Option<usize>,
    pub(super) path: Arc<str>,
}

impl Stencil {
    /// Cuts the stencil of `resource`, which the codec has made from `json`. `None` if the resource depends on texts in a way that a stencil
    /// does not support.
    pub(super) fn cut(inner: &Inner, json: &Json, resource: &Resource) -> Option<Self> {
        let resource_type = resource.resource_type().clone();
        let message = inner.message_of_url(resource_type.type_url())?;
        let is_bare = json.get("@type").and_then(Json::as_str) == Some(resource_type.type_url());
        // Secrets must not be kept.
        if !is_bare || resource_type == ResourceType::Secret {
            return None;
        }
        let texts = holes::texts(inner, &message, json);
        let by_path: HashMap<&str, usize> =
            texts.iter().enumerate().map(|(at, text)| (text.path.as_str(), at)).collect();
        let name = *by_path.get(name_field(&resource_type)?)?;
        if texts.get(name)?.text != &**resource.name() {
            return None;
        }
        let whole = Message::new(message.clone(), resource.value().into_owned());
        let named = |reference: Reference| named(reference, &texts, &by_path);
        let references =
            references::all(inner, &whole).ok()?.into_iter().map(named).collect::<Option<_>>()?;
        let mut cutter = Cutter { inner, texts: &texts, by_path: &by_path, pieces: Vec::new(), n_holes: 0 };
        cutter.message(&message, whole.bytes(), &Path::Root)?;
        let (pieces, n_holes) = (cutter.pieces, cutter.n_holes);
        let (mut fixed, mut holes) = (Vec::new(), Vec::new());
        for (at, text) in texts.into_iter().enumerate() {
            match text.hole {
                Some(hole) => holes.push((at, hole)),
                None => fixed.push((at, text.text.into())),
            }
        }
        let is_whole = n_holes == holes.len();
        let (fixed, holes) = (fixed.into(), holes.into());
        is_whole.then_some(Self { resource_type, message, name, fixed, holes, pieces, references })
    }

    /// Returns `true` if all texts without holes are the same.
    pub(super) fn fits(&self, texts: &[&str]) -> bool {
        self.fixed.iter().all(|(at, text)| texts.get(*at) == Some(&&**text))
    }

    /// The resource with these texts, which must [fit](Self::fits). `None` if a check reports anything, even a warning. Then the codec must
    /// read the message.
    pub(super) fn fill(&self, texts: &[&str], keys: &Keys) -> Option<ResourceDraft> {
        let is_allowed = |(at, hole): &(usize, Hole)| texts.get(*at).is_some_and(|text| hole.allows(text));
        if !self.holes.iter().all(is_allowed) {
            return None;
        }
        let message = Message::new(self.message.clone(), self.write(texts)?);
        let mut findings = Findings::default();
        lint::check(&message, &Path::Root, &mut findings);
        if !findings.is_empty() {
            return None;
        }
        let key = keys.get(&self.resource_type, texts.get(self.name)?);
        let mut references = Vec::with_capacity(self.references.len());
        for Named { to, name, path } in &self.references {
            let name = name.map_or(Some("*"), |at| texts.get(at).copied())?;
            references.push(Reference { to: keys.get(to, name), path: Arc::clone(path) });
        }
        references.retain(|reference| reference.to != key);
        Some(ResourceDraft {
            key,
            // A copy, because the shared bytes have a counter of lookups next to them.
            value: Bytes::copy_from_slice(message.bytes()).into(),
            ttl: None,
            aliases: Box::default(),
            references: references.into_iter().collect(),
            origin: Origin::Api,
            in_wildcard: true,
            host_pattern: false,
        })
    }

    fn write(&self, texts: &[&str]) -> Option<Bytes> {
        let (mut writer, mut open) = (Writer::default(), Vec::with_capacity(16));
        for piece in &self.pieces {
            match piece {
                Piece::Raw(bytes) => writer.raw(bytes),
                Piece::Text(number, at) => writer.bytes_field(*number, texts.get(*at)?.as_bytes()),
                Piece::Open(number) => open.push(writer.open(*number)),
                Piece::Close => writer.close(open.pop()?),
            }
        }
        Some(writer.finish())
    }

    /// An estimate of its memory in bytes.
    pub(super) fn n_bytes(&self) -> usize {
        let of_piece = |piece: &Piece| if let Piece::Raw(bytes) = piece { bytes.len() } else { 0 };
        let raw: usize = self.pieces.iter().map(of_piece).sum();
        let fixed: usize = self.fixed.iter().map(|(_, text)| text.len()).sum();
        let paths: usize = self.references.iter().map(|named| named.path.len()).sum();
        let n_parts = self.pieces.len() + self.fixed.len() + self.holes.len() + 2 * self.references.len();
        raw + fixed + paths + n_parts * size_of::<Piece>() + size_of::<Self>()
    }
}

/// The reference by the index of its text; `None` if its name is not an unchanged text.
fn named(reference: Reference, texts: &[Text<'_>], by_path: &HashMap<&str, usize>) -> Option<Named> {
    let Reference { to: key, path } = reference;
    let to = key.resource_type.clone();
    let at = by_path.get(&*path).copied();
    let is_at = |at: usize| texts.get(at).is_some_and(|text| text.text == &*key.name);
    match at {
        Some(at) if is_at(at) => Some(Named { to, name: Some(at), path }),
        None if &*key.name == "*" => Some(Named { to, name: None, path }),
        Some(_) | None => None,
    }
}

struct Cutter<'c> {
    inner: &'c Inner,
    texts: &'c [Text<'c>],
    by_path: &'c HashMap<&'c str, usize>,
    pieces: Vec<Piece>,
    n_holes: usize,
}

impl Cutter<'_> {
    fn message(&mut self, descriptor: &MessageDescriptor, bytes: &[u8], path: &Path<'_>) -> Option<()> {
        if descriptor.full_name() == "google.protobuf.Any" {
            return self.any(bytes, path);
        }
        let (mut last, mut index) = (0, 0);
        for field in Fields::of(bytes) {
            let field = field.ok()?;
            index = if field.number == last { index + 1 } else { 0 };
            last = field.number;
            let Some(descriptor) = descriptor.get_field(field.number).filter(|field| !field.is_map()) else {
                self.raw(field.raw);
                continue;
            };
            let path = path.field(descriptor.name());
            let item = path.index(index);
            let path = if descriptor.is_list() { &item } else { &path };
            match (descriptor.kind(), field.value) {
                (Kind::String, Value::Bytes(_)) => self.text(&field, path),
                (Kind::Message(nested), Value::Bytes(content)) => {
                    self.nested(&field, &nested, content, path)?;
                }
                (_, _) => self.raw(field.raw),
            }
        }
        Some(())
    }

    /// The content has the path of the `Any`, as in JSON.
    fn any(&mut self, any: &[u8], path: &Path<'_>) -> Option<()> {
        let mut content = None;
        for field in Fields::of(any) {
            let field = field.ok()?;
            match (&content, field.number) {
                (Some(content), 2) => self.nested(&field, content, field.bytes().ok()?, path)?,
                (_, number) => {
                    if number == 1 {
                        content = self.inner.message_of_url(field.text().ok()?);
                    }
                    self.raw(field.raw);
                }
            }
        }
        Some(())
    }

    fn nested(
        &mut self,
        field: &Field<'_>,
        descriptor: &MessageDescriptor,
        content: &[u8],
        path: &Path<'_>,
    ) -> Option<()> {
        let (n_pieces, n_holes) = (self.pieces.len(), self.n_holes);
        self.pieces.push(Piece::Open(field.number));
        self.message(descriptor, content, path)?;
        if self.n_holes > n_holes {
            self.pieces.push(Piece::Close);
        } else {
            self.pieces.truncate(n_pieces);
            self.raw(field.raw);
        }
        Some(())
    }

    fn text(&mut self, field: &Field<'_>, path: &Path<'_>) {
        let at = self.by_path.get(path.to_string().as_str()).copied();
        let hole = at.filter(|at| self.texts.get(*at).is_some_and(|text| text.hole.is_some()));
        match hole {
            Some(at) => {
                self.pieces.push(Piece::Text(field.number, at));
                self.n_holes += 1;
            }
            None => self.raw(field.raw),
        }
    }

    fn raw(&mut self, bytes: &[u8]) {
        match self.pieces.last_mut() {
            Some(Piece::Raw(before)) => before.extend_from_slice(bytes),
            Some(Piece::Text(..) | Piece::Open(_) | Piece::Close) | None => {
                self.pieces.push(Piece::Raw(bytes.to_vec()));
            }
        }
    }
}
