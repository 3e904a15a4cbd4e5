//! The nodes that a changed node group selects.

use std::sync::Arc;

use xds_access::Scope;
use xds_cache::layer::EffectiveGroup;
use xds_cache::{Groups, NodeGroup, Selector};

use crate::model::WriteError;

/// Refuses a definition that takes nodes from groups out of scope. `before` are all groups before the change.
///
/// A group in scope may select nodes that another one in scope selects already, with no better rank over groups out of scope than that
/// one, and nodes that no group out of scope serves anything. Selectors are compared as such: the nodes that are connected now do not
/// matter. A comparison that takes too long is refused.
///
/// # Errors
///
/// [`WriteError::OutOfScope`]; no group out of scope is named.
pub(super) fn check_definition(
    scope: &Scope,
    before: &Groups,
    old: Option<&Arc<EffectiveGroup>>,
    new: Option<&Arc<EffectiveGroup>>,
) -> Result<(), WriteError> {
    let Some(new) = new.map(|group| &group.definition) else { return Ok(()) };
    if old.is_some_and(|old| old.definition == *new) {
        return Ok(());
    }
    let parts = new.selector.by_node_id();
    if parts.len().saturating_mul(before.len()) > MAX_COMPARED {
        let what = format!(
            "a selector with {} patterns, which are too many to compare with all groups,",
            parts.len()
        );
        return Err(WriteError::OutOfScope { what });
    }
    for selector in parts {
        let part = NodeGroup { selector, ..new.clone() };
        // The group itself is the likeliest, and the cheapest to find.
        let own = old.map(|old| &old.definition);
        let others = || before.values().map(|group| &group.definition).filter(|group| is_in(scope, group));
        let is_good = own.into_iter().chain(others()).any(|group| covers(scope, before, group, &part))
            || is_free(scope, before, &part.selector);
        if !is_good {
            let what = format!(
                "a selector or priority of the group {} that takes nodes from groups out of scope",
                new.name
            );
            return Err(WriteError::OutOfScope { what });
        }
    }
    Ok(())
}

/// Returns `true` if every node of `part` is one of `group` already, and gets nothing of `part` that `group` could not give it.
fn covers(scope: &Scope, before: &Groups, group: &NodeGroup, part: &NodeGroup) -> bool {
    if !part.selector.is_within(&group.selector) {
        return false;
    }
    let has_identity = |identity| group.identities.contains(identity);
    if group.is_guarded() && (!part.is_guarded() || !part.identities.iter().all(has_identity)) {
        return false;
    }
    let mut shared = outside(scope, before).filter(|other| other.selector.meets(&part.selector));
    shared.all(|other| {
        (wins(group, other) || !wins(part, other))
            && part.identities == group.identities
            && part.client.is_none_or(|client| group.client == Some(client))
    })
}

/// Returns `true` if no group out of scope serves anything to a node of `selector`.
fn is_free(scope: &Scope, before: &Groups, selector: &Selector) -> bool {
    let is_apart = || outside(scope, before).all(|other| !other.selector.meets(selector));
    let mut default = before.values().filter(|group| group.definition.name.is_default());
    let serves = |group: &EffectiveGroup| {
        !group.resources.is_empty() || group.generated.values().any(|resources| !resources.is_empty())
    };
    default.all(|default| is_in(scope, &default.definition) || !serves(default)) && is_apart()
}

/// The groups out of scope except for the default group, which every node has and every other group wins over.
fn outside<'g>(scope: &'g Scope, groups: &'g Groups) -> impl Iterator<Item = &'g NodeGroup> {
    let all = groups.values().map(|group| &group.definition);
    all.filter(|group| !group.name.is_default() && !is_in(scope, group))
}

fn is_in(scope: &Scope, group: &NodeGroup) -> bool {
    scope.has_group(group.name.as_str())
}

/// Returns `true` if the resources of `one` are served in place of those of `other`.
fn wins(one: &NodeGroup, other: &NodeGroup) -> bool {
    !one.name.is_default() && (one.priority, &other.name) > (other.priority, &one.name)
}

/// How many patterns and groups are compared: some hundred milliseconds.
const MAX_COMPARED: usize = 1_000_000;
