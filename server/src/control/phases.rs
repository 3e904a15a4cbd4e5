//! In which phases clients would get a change, for dry runs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use xds_api::acks::view_key_of_group;
use xds_api::phases::GroupPhases;
use xds_cache::{AHEAD, GroupName, Groups, Phase, Profile, Publisher, ViewKey};
use xds_session::Limits;

/// The phases in which the clients of each group get from what is served to `after`: of the groups that differ, the first
/// [`MAX_TOLD`]. Every kind of client that a group can have is told of by itself, unless it gets nothing.
pub(crate) fn phases(
    publisher: &Publisher,
    limits: &Limits,
    after: &Groups,
    now: Instant,
) -> Vec<GroupPhases> {
    let (_, before) = publisher.groups();
    let cohort = if publisher.behind().is_some() { AHEAD } else { 0 };
    let differs = |name: &&GroupName| before.get(*name).map(Arc::as_ptr) != after.get(*name).map(Arc::as_ptr);
    let names: BTreeSet<&GroupName> = before.keys().chain(after.keys()).filter(differs).collect();
    let profiles =
        |name: &GroupName| after.get(name).or_else(|| before.get(name)).map(|group| group.profiles());
    let kinds =
        names.iter().flat_map(|name| profiles(name).unwrap_or_default().iter().map(|of| (*name, *of)));
    let told = kinds.filter_map(|(group, profile): (&GroupName, Profile)| {
        let key = ViewKey { cohort, ..view_key_of_group(group, profile) };
        let phases = phases_of(publisher, limits, (&key, after), now)?;
        (!phases.is_empty()).then(|| GroupPhases { group: group.clone(), profile, phases })
    });
    told.take(MAX_TOLD).collect()
}

fn phases_of(
    publisher: &Publisher,
    limits: &Limits,
    (key, after): (&ViewKey, &Groups),
    now: Instant,
) -> Option<Vec<Phase>> {
    let preview = publisher.preview(key, after, now)?;
    let mut phases = xds_session::phases(&preview.before, &preview.after, limits, now);
    if let Some((drain, drained)) = preview.drained {
        let mut last = xds_session::phases(&preview.after, &drained, limits, now);
        if let Some(first) = last.first_mut() {
            first.after = Some(drain);
        }
        phases.extend(last);
    }
    Some(phases)
}

/// How many kinds of clients of how many groups are told: each is a client played from its beginning.
const MAX_TOLD: usize = 16;
