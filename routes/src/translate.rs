//! Translates all documents together, into resources and conditions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use xds_cache::{DiffItem, GroupName, Profile};
use xds_codec::Codec;

pub use xds_cache::layer::{Generated, GeneratedGroup};

use crate::conditions::{Conditions, GrpcFeature};
use crate::encode::REFUSED;
use crate::input::{Bounds, Documents, Options, Stopped};
use crate::memo::{Delta, Diagnostics, Memo, Outputs, Work};

/// The resources and conditions that documents give.
#[derive(Clone, Default)]
pub struct Translation {
    /// The resources by group. A group that exists only because of consumer routes has its definition here.
    pub groups: Generated,
    /// The conditions of every object.
    pub conditions: Conditions,
    /// The warnings about several documents together, in the order of files and lines. None of them is an error, because a bad object never
    /// affects another.
    pub diagnostics: Diagnostics,
    /// The number of rules with features that gRPC clients do not support, by feature. Never 0.
    pub grpc_unsupported: BTreeMap<GrpcFeature, usize>,
    /// The differences from the previous translation.
    pub delta: Delta,
    /// The work that the translation took.
    pub work: Work,
    options: Options,
    memo: Memo,
}

impl Translation {
    /// Describes how this differs from another translation of the same documents; `None` if they are equal. Compares everything.
    ///
    /// If the codec refuses a resource, its last version stays, which depends on the history. Then nothing is compared.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<String> {
        if self.diagnostics.iter().any(|found| found.code == REFUSED) {
            return None;
        }
        let names: BTreeSet<&GroupName> = self.groups.keys().chain(other.groups.keys()).collect();
        names
            .into_iter()
            .find_map(|name| group_difference(name, self.groups.get(name), other.groups.get(name)))
            .or_else(|| {
                let item = self.conditions.objects.diff(&other.conditions.objects).next()?;
                Some(format!("the conditions of {}", changed_key(&item)))
            })
            .or_else(|| {
                (self.diagnostics != other.diagnostics).then(|| "the warnings of documents".to_owned())
            })
            .or_else(|| {
                let is_other = self.grpc_unsupported != other.grpc_unsupported;
                is_other.then(|| "the number of rules that gRPC clients do not support".to_owned())
            })
    }
}

fn group_difference(
    name: &GroupName,
    one: Option<&GeneratedGroup>,
    other: Option<&GeneratedGroup>,
) -> Option<String> {
    let (Some(one), Some(other)) = (one, other) else { return Some(format!("the node group {name}")) };
    if one.definition != other.definition {
        return Some(format!("the definition of the node group {name}"));
    }
    Profile::ALL.into_iter().find_map(|profile| {
        let of = |group: &GeneratedGroup| group.profiles.get(&profile).cloned().unwrap_or_default();
        let (one, other) = (of(one), of(other));
        let item = one.diff(&other).next()?;
        Some(format!("{} of the node group {name} for {profile} clients", changed_key(&item)))
    })
}

fn changed_key<'i, K, V>(item: &'i DiffItem<'_, '_, K, V>) -> &'i K {
    match item {
        DiffItem::Add(key, _) | DiffItem::Remove(key, _) => key,
        DiffItem::Update { new: (key, _), .. } => key,
    }
}

impl fmt::Debug for Translation {
    /// Shows only numbers, because the content may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { groups, conditions, diagnostics, .. } = self;
        let n_objects = conditions.objects.len();
        write!(f, "{} groups, {n_objects} objects, {} diagnostics", groups.len(), diagnostics.len())
    }
}

/// Translates all documents.
///
/// The cost is that of the differences from the documents of `previous`. Unchanged resources stay the same shared values, so views compare
/// them at once.
#[must_use]
pub fn translate(
    codec: &Codec,
    documents: &Documents,
    options: &Options,
    previous: Option<&Translation>,
) -> Translation {
    translate_within(codec, documents, options, previous, Bounds::SERVING).unwrap_or_default()
}

/// Like [`translate`], within bounds.
///
/// # Errors
///
/// The bound at which it was stopped.
pub fn translate_within(
    codec: &Codec,
    documents: &Documents,
    options: &Options,
    previous: Option<&Translation>,
    bounds: Bounds<'_>,
) -> Result<Translation, Stopped> {
    let same = previous.filter(|previous| previous.options == *options);
    let memo = same.map(|previous| &previous.memo);
    let (memo, delta) = memo.unwrap_or(&Memo::default()).next(codec, documents, options, bounds)?;
    let Outputs { groups, conditions, diagnostics, unsupported, .. } = memo.outputs().clone();
    Ok(Translation {
        groups,
        conditions,
        diagnostics,
        grpc_unsupported: unsupported,
        delta,
        work: memo.work(),
        options: options.clone(),
        memo,
    })
}
