//! Texts about references of served resources to what is not served: warnings of changes, and problems for as long as they stand.

use std::fmt;
use std::sync::{Arc, OnceLock};

use xds_cache::layer::{EffectiveGroup, Generated, Resources};
use xds_cache::{
    GroupName, Groups, MissingReference, MissingReferences, Name, NodeGroup, Profile, Resource, ResourceKey,
    ResourceType,
};
use xds_codec::{Diagnostic, nearest};

use crate::warning::{place, warning};

/// The missing references of what is served, with the problems that they are.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    pub(crate) references: MissingReferences,
    /// Made when it is first asked for: a suggestion compares many names.
    problems: OnceLock<Vec<String>>,
}

/// The resources among which a target is missing.
#[derive(Clone, Copy, Debug)]
enum World {
    /// Those that are served.
    Served,
    /// Those of a body.
    Body,
}

/// What is wrong, and what that leads to.
struct Fault {
    lacking: String,
    consequence: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.lacking, self.consequence)
    }
}

impl Missing {
    /// Those of `after`, if these are those of `before`.
    pub(crate) fn changed(&self, before: &Groups, after: &Groups) -> Self {
        Self { references: self.references.changed(before, after), problems: OnceLock::new() }
    }

    /// A problem for each, at most [`MAX_PROBLEMS`] and one more that counts the others.
    pub(crate) fn problems(&self, groups: &Groups) -> &[String] {
        self.problems.get_or_init(|| problems(groups, self.references.iter()))
    }

    /// The same for those in groups that `sees` takes.
    pub(crate) fn problems_of(&self, groups: &Groups, sees: impl Fn(&GroupName) -> bool) -> Vec<String> {
        problems(groups, self.references.iter().filter(|one| sees(&one.group)))
    }

    /// The problems of those that were not there before.
    pub(crate) fn news(&self, groups: &Groups, before: &Self) -> Vec<String> {
        problems(groups, self.references.news(&before.references))
    }
}

/// The warnings about a reference, one for each field that has it, at the resource.
pub(crate) fn warnings(groups: &Groups, missing: &MissingReference) -> Vec<Diagnostic> {
    warnings_in(World::Served, groups, missing)
}

/// The warnings about the references of resources that lead to nothing among them and what is `generated`.
pub fn warnings_of_body(resources: Resources, generated: &Generated) -> Vec<Diagnostic> {
    let mut body = EffectiveGroup::new(NodeGroup::default_group(), resources);
    for (profile, resources) in generated.values().flat_map(|group| &group.profiles) {
        body.generated.entry(*profile).or_default().extend(resources.values().cloned());
    }
    let groups = Groups::from_iter([(GroupName::default_group(), Arc::new(body))]);
    let missing = MissingReferences::default().changed(&Groups::new(), &groups);
    missing.iter().flat_map(|one| warnings_in(World::Body, &groups, one)).collect()
}

fn warnings_in(world: World, groups: &Groups, missing: &MissingReference) -> Vec<Diagnostic> {
    let Some((group, from)) = find(groups, missing) else { return vec![] };
    let fields: Vec<&Arc<str>> = asking(missing, from).collect();
    let suggestion = fields.first().and_then(|_| suggestion(groups, group, &missing.to));
    let warning = |path: &Arc<str>| Diagnostic {
        place: place(from),
        suggestion: suggestion.as_ref().map(ToString::to_string),
        ..warning(CODE, path, fault(world, missing, from, path).to_string())
    };
    fields.into_iter().map(warning).collect()
}

fn problems<'m>(groups: &Groups, missing: impl Iterator<Item = &'m MissingReference>) -> Vec<String> {
    let mut told = Vec::new();
    let mut n_more = 0;
    for one in missing {
        if told.len() < MAX_PROBLEMS {
            told.extend(problem(groups, one));
        } else if find(groups, one).is_some_and(|(_, from)| asking(one, from).next().is_some()) {
            n_more += 1;
        }
    }
    if n_more > 0 {
        told.push(format!("{n_more} more served resources name resources that do not exist"));
    }
    told
}

/// A reference as a problem: the place of the resource, its first field that has the reference, and what is to be done.
fn problem(groups: &Groups, missing: &MissingReference) -> Option<String> {
    let (group, from) = find(groups, missing)?;
    let path = asking(missing, from).next()?;
    let place = Some(place(from).to_string()).filter(|place| !place.is_empty());
    let place = place.map(|place| format!("{place}: ")).unwrap_or_default();
    let meant = suggestion(groups, group, &missing.to).map(|name| format!(" (did you mean `{name}`?)"));
    let Fault { lacking, consequence } = fault(World::Served, missing, from, path);
    // Tables of the command line are cut on the right.
    Some(format!("{place}{lacking}{}: {consequence} (field {path})", meant.unwrap_or_default()))
}

fn find<'g>(groups: &'g Groups, missing: &MissingReference) -> Option<(&'g EffectiveGroup, &'g Resource)> {
    let group = groups.get(&missing.group)?;
    Some((group, group.resources.get(&missing.from)?))
}

/// The fields that make a client ask for the target.
fn asking<'r>(missing: &MissingReference, from: &'r Resource) -> impl Iterator<Item = &'r Arc<str>> {
    missing.paths(from).filter(|path| !path.contains(OF_BOOTSTRAP))
}

fn fault(world: World, missing: &MissingReference, from: &Resource, path: &str) -> Fault {
    let MissingReference { group, to, .. } = missing;
    let consequence = match from.awaited_without_limit().contains(to) {
        true if *from.resource_type() == ResourceType::Cluster => CLUSTER_AWAITS_WITHOUT_LIMIT,
        true => AWAITED_WITHOUT_LIMIT,
        false => consequence(from.resource_type(), &to.resource_type, path),
    };
    let (from, of_type) = (from.key(), &to.resource_type);
    let lacking = match (world, to.means_all()) {
        (World::Served, false) => format!("{from} of {group} names {to}, which does not exist"),
        (World::Served, true) => format!("{from} of {group} asks for every {of_type}, and there is none"),
        (World::Body, false) => format!("{from} names {to}, which is not in this body"),
        (World::Body, true) => format!("{from} asks for every {of_type}, and this body has none"),
    };
    let remedy = match world {
        World::Served => "add one to this group or to `default`",
        World::Body => "this is so if it is not served otherwise",
    };
    Fault { lacking, consequence: format!("{consequence}; {remedy}") }
}

/// What clients do without what a resource names.
fn consequence(from: &ResourceType, to: &ResourceType, path: &str) -> &'static str {
    use ResourceType as Type;
    match (from, to) {
        (Type::Listener, Type::RouteConfiguration) => {
            "an Envoy opens it only after initial_fetch_timeout (15 s by default) and then answers 404, gRPC clients wait 15 s and then fail \
             every call"
        }
        (_, Type::RouteConfiguration) => {
            "an Envoy waits for initial_fetch_timeout (15 s by default) and then answers 404"
        }
        (_, Type::ScopedRouteConfiguration) => "an Envoy answers every request with 404",
        (_, Type::ExtensionConfig) => {
            "an Envoy opens it only after initial_fetch_timeout (15 s by default), and without a default configuration then answers 500, or \
             closes connections"
        }
        (Type::Cluster, Type::Secret) => {
            "an Envoy waits for initial_fetch_timeout (15 s by default) and then answers 503 for the cluster"
        }
        (_, Type::Secret) => {
            "an Envoy opens it only after initial_fetch_timeout (15 s by default) and then closes every connection"
        }
        (_, Type::ClusterLoadAssignment) => {
            "an Envoy waits for initial_fetch_timeout (15 s by default) and then answers 503 for the cluster, gRPC clients wait 15 s and \
             then fail the calls to it"
        }
        (_, Type::LbEndpoint) => "the locality has no endpoints",
        (Type::Cluster, Type::Cluster) if path.contains("clusters[") => {
            "clients use the other clusters of the aggregate alone"
        }
        (Type::RouteConfiguration | Type::VirtualHost, Type::Cluster) => {
            "an Envoy without it in its bootstrap answers 503; a gRPC client keeps the routes that it has, and fails these calls if it has none"
        }
        (Type::Listener, Type::Cluster) if path.contains(INLINE_ROUTES) => {
            "an Envoy without it in its bootstrap rejects the listener; a gRPC client keeps the routes that it has, and fails these calls if \
             it has none"
        }
        (_, Type::Cluster) => "what needs it fails at an Envoy without it in its bootstrap",
        (_, _) => "clients wait for it, or do without it",
    }
}

/// The name that was meant, if one that the clients of the group are served is near.
fn suggestion(groups: &Groups, group: &EffectiveGroup, to: &ResourceKey) -> Option<Name> {
    let first = Arc::new(ResourceKey { resource_type: to.resource_type.clone(), name: "".into() });
    let default = groups.get(&GroupName::default_group()).map(|group| &**group);
    let near = [Some(group), default].into_iter().flatten();
    let maps = near.flat_map(|near| {
        let generated = Profile::ALL.iter().filter_map(|profile| near.generated.get(profile));
        generated.chain([&near.resources])
    });
    let names = maps.flat_map(|map| {
        let keys = map.range(Arc::clone(&first)..).map(|(key, _)| key);
        keys.take_while(|key| key.resource_type == to.resource_type).map(|key| &*key.name)
    });
    nearest(&to.name, names).map(Name::from)
}

/// What clients do without what a listener names with `initial_fetch_timeout: 0`.
const AWAITED_WITHOUT_LIMIT: &str = "an Envoy is not sent this listener, because it would wait without a limit (initial_fetch_timeout: 0), \
     and keeps an older version; gRPC clients wait 15 s and then fail every call";

const CLUSTER_AWAITS_WITHOUT_LIMIT: &str = "a State of the World Envoy is not sent this cluster, because it would wait without a limit \
     (initial_fetch_timeout: 0), and keeps an older version; an incremental one answers 503 for the cluster";

/// The subject of the problems.
pub const MISSING_REFERENCES: &str = "missing-references";

/// The code of the warnings.
const CODE: &str = "dangling-reference";

/// The most problems that are listed.
const MAX_PROBLEMS: usize = 20;

/// The part of paths to clusters that an Envoy looks for in its bootstrap alone: those of management servers.
const OF_BOOTSTRAP: &str = "api_config_source.";

/// The part of paths into routes that stand in a listener.
const INLINE_ROUTES: &str = "route_config.";
