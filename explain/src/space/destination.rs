//! Where lists of routes send their requests, and how they treat them.

use std::collections::BTreeMap;
use std::fmt::Debug;

use envoy_types::pb::envoy::config::route::v3 as proto;
use envoy_types::pb::envoy::config::route::v3::redirect_action::PathRewriteSpecifier;
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;
use envoy_types::pb::envoy::config::route::v3::weighted_cluster::RandomValueSpecifier;

use crate::draw::Chance;
use crate::ratio::Ratio;
use crate::request::Request;
use crate::route::Route;
use crate::semantics::{Difference, Semantics};

/// The shares of requests by destination. Equal texts are equal destinations.
pub(crate) type Shares = BTreeMap<String, Ratio>;

/// The chance of each route, and the chance that is left.
pub(crate) type Chances<'r> = (Vec<(&'r Route, Chance)>, Option<Chance>);

/// The share of requests that each route of the list takes, and the share that none takes; `None` if it cannot be told exactly.
pub(crate) fn chances<'r>(
    routes: impl Iterator<Item = &'r Route>,
    semantics: Semantics,
) -> Option<Chances<'r>> {
    let mut open = Some(Chance::new(&Request::default(), semantics));
    let mut taken = Vec::new();
    for route in routes {
        let Some(chance) = open.take() else { break };
        let (inside, outside) = match &route.fraction {
            None => (Some(chance), None),
            Some(fraction) => chance.split(fraction)?,
        };
        taken.extend(inside.map(|inside| (route, inside)));
        open = outside;
    }
    Some((taken, open))
}

/// Where the list sends its requests; `end` is where those go that no route takes.
pub(crate) fn shares<'r>(
    routes: impl Iterator<Item = &'r Route>,
    end: &str,
    semantics: Semantics,
) -> Option<Shares> {
    let (taken, open) = chances(routes, semantics)?;
    let mut shares = Shares::new();
    let mut add = |to: String, share: Ratio| {
        if share.is_zero() {
            return Some(());
        }
        let sum = shares.entry(to).or_insert(Ratio::ZERO);
        *sum = sum.plus(share)?;
        Some(())
    };
    for (route, chance) in taken {
        if route.is_end {
            add(end.to_owned(), chance.share())?;
            continue;
        }
        for (to, share) in destinations(route, &chance, semantics)? {
            add(to, share)?;
        }
    }
    if let Some(open) = open {
        add(end.to_owned(), open.share())?;
    }
    Some(shares)
}

/// Where a route sends the requests that it takes, if it takes these; `None` if that cannot be told exactly.
pub(crate) fn taken_to(route: &Route, taken: &Chance, semantics: Semantics) -> Option<Shares> {
    let mut shares = Shares::new();
    for (to, share) in destinations(route, taken, semantics)? {
        if !share.is_zero() {
            let sum = shares.entry(to).or_insert(Ratio::ZERO);
            *sum = sum.plus(share)?;
        }
    }
    Some(shares)
}

/// The share of requests that must have gone elsewhere.
pub(crate) fn moved(from: &Shares, to: &Shares) -> Ratio {
    let lost = from.iter().filter_map(|(name, before)| {
        let after = to.get(name).copied().unwrap_or(Ratio::ZERO);
        // One minus what is left, which cannot be less than nothing.
        Some(after.plus(before.rest())?.rest())
    });
    lost.fold(Ratio::ZERO, |sum, one| sum.plus(one).unwrap_or(Ratio::ONE))
}

fn destinations(route: &Route, chance: &Chance, semantics: Semantics) -> Option<Vec<(String, Ratio)>> {
    let all = |to: String| Some(vec![(to, chance.share())]);
    let is_proxy = semantics.has(Difference::ActsAsProxy);
    let action = match &route.message.action {
        Some(Action::Route(action)) => action,
        Some(_) | None if !is_proxy => return all("no route that forwards".to_owned()),
        Some(Action::Redirect(redirect)) => {
            let replaced = match &redirect.path_rewrite_specifier {
                Some(PathRewriteSpecifier::PrefixRewrite(_)) => prefix_length(&route.message),
                Some(_) | None => 0,
            };
            return all(format!("redirect {redirect:?} {replaced}"));
        }
        Some(Action::DirectResponse(direct)) => return all(format!("answer {direct:?}")),
        Some(Action::FilterAction(_) | Action::NonForwardingAction(_)) | None => {
            return all("a filter".to_owned());
        }
    };
    match &action.cluster_specifier {
        Some(ClusterSpecifier::Cluster(name)) => all(cluster(name)),
        Some(ClusterSpecifier::ClusterHeader(name)) => all(format!("cluster of header {name}")),
        Some(ClusterSpecifier::ClusterSpecifierPlugin(name)) => all(format!("plugin {name}")),
        Some(ClusterSpecifier::InlineClusterSpecifierPlugin(inline)) => all(format!("plugin {inline:?}")),
        Some(ClusterSpecifier::WeightedClusters(split)) => {
            let is_apart = match &split.random_value_specifier {
                Some(RandomValueSpecifier::HeaderName(_)) => true,
                Some(RandomValueSpecifier::UseHashPolicy(flag)) => flag.value,
                None => false,
            };
            let weights: Vec<u32> = split
                .clusters
                .iter()
                .map(|one| one.weight.as_ref().map_or(0, |weight| weight.value))
                .collect();
            let apart = Chance::Each(chance.share());
            let shares = if is_apart { &apart } else { chance }.weighted(&weights)?;
            let names = split.clusters.iter().map(|one| match &*one.cluster_header {
                "" => cluster(&one.name),
                header => format!("cluster of header {header}"),
            });
            Some(names.zip(shares).collect())
        }
        None => all("no cluster".to_owned()),
    }
}

fn cluster(name: &str) -> String {
    format!("cluster {name}")
}

/// The length of the part of the path that a prefix rewrite replaces.
fn prefix_length(route: &proto::Route) -> usize {
    match route.r#match.as_ref().and_then(|matches| matches.path_specifier.as_ref()) {
        Some(
            PathSpecifier::Prefix(text)
            | PathSpecifier::PathSeparatedPrefix(text)
            | PathSpecifier::Path(text),
        ) => text.len(),
        Some(_) | None => 0,
    }
}

/// The settings that treat requests differently; none if both routes treat them alike, wherever they send them.
pub(crate) fn treatment(before: &Route, after: &Route) -> Vec<String> {
    let (old, new) = (stripped(&before.message), stripped(&after.message));
    if old == new {
        return Vec::new();
    }
    let mut names = Vec::new();
    let action = |route: &proto::Route| match &route.action {
        Some(Action::Route(action)) => Some(action.clone()),
        Some(_) | None => None,
    };
    if let (Some(old), Some(new)) = (action(&old), action(&new)) {
        names.extend(differing(&old, &new));
    }
    let bare = |route: proto::Route| proto::Route { action: None, ..route };
    let maps_differ = old.typed_per_filter_config != new.typed_per_filter_config;
    let (mut old, mut new) = (bare(old), bare(new));
    old.typed_per_filter_config.clear();
    new.typed_per_filter_config.clear();
    names.extend(differing(&old, &new));
    if maps_differ {
        names.push("typed_per_filter_config".to_owned());
    }
    if names.is_empty() {
        names.push("settings of the action".to_owned());
    }
    names
}

/// A route without its name, its conditions and its destinations.
fn stripped(route: &proto::Route) -> proto::Route {
    let replaced = prefix_length(route);
    let mut route = proto::Route { name: String::new(), r#match: None, ..route.clone() };
    match &mut route.action {
        Some(Action::Route(action)) => {
            if !action.prefix_rewrite.is_empty() {
                action.prefix_rewrite = format!("{replaced} {}", action.prefix_rewrite);
            }
            match &mut action.cluster_specifier {
                Some(ClusterSpecifier::WeightedClusters(split)) => {
                    // Members without settings of their own are like a plain cluster.
                    split.clusters.retain_mut(|member| {
                        member.weight = None;
                        let bare = proto::weighted_cluster::ClusterWeight {
                            name: member.name.clone(),
                            ..Default::default()
                        };
                        *member != bare
                    });
                    if split.clusters.is_empty() {
                        action.cluster_specifier = None;
                    }
                }
                Some(_) | None => action.cluster_specifier = None,
            }
        }
        Some(_) | None => route.action = None,
    }
    route
}

/// The names of the fields that differ.
pub(crate) fn differing(before: &impl Debug, after: &impl Debug) -> Vec<String> {
    let (before, after) = (fields(before), fields(after));
    let names = before.iter().chain(&after).map(|(name, _)| name);
    let mut differing: Vec<String> = names
        .filter(|name| {
            let of = |all: &[(String, String)]| {
                all.iter().find(|(own, _)| own == *name).map(|(_, text)| text.clone())
            };
            of(&before) != of(&after)
        })
        .cloned()
        .collect();
    differing.dedup();
    let mut seen = Vec::new();
    differing.retain(|name| {
        let is_new = !seen.contains(name);
        seen.push(name.clone());
        is_new
    });
    differing
}

/// The fields of a message with their values as text.
fn fields(message: &impl Debug) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in format!("{message:#?}").lines() {
        match line.strip_prefix("    ").filter(|rest| !rest.starts_with([' ', '}', ']', ')'])) {
            Some(rest) => {
                let (name, value) = rest.split_once(':').unwrap_or((rest, ""));
                fields.push((name.to_owned(), value.to_owned()));
            }
            None => {
                if let Some((_, value)) = fields.last_mut() {
                    value.push_str(line);
                }
            }
        }
    }
    fields
}
