//! A test: tables that change step by step and lie over each other behave like a plain list of their resources.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::*;
use crate::ResourceType;
use crate::references::Reference;
use crate::resource::ResourceDraft;
use crate::transition::{Deviation, Deviations};

/// The model's copy of a resource.
#[derive(Clone, Debug, PartialEq)]
struct Plain {
    content: u64,
    aliases: Vec<&'static str>,
    is_pattern: bool,
    in_wildcard: bool,
    has_ttl: bool,
    to: Vec<&'static str>,
}

type Model = BTreeMap<&'static str, Plain>;

/// Names, aliases, and what clients ask for, of one type.
struct Kind {
    of_type: ResourceType,
    names: &'static [&'static str],
    aliases: &'static [&'static str],
    asked: &'static [&'static str],
}

const KINDS: [Kind; 3] = [
    Kind {
        of_type: ResourceType::Cluster,
        names: &["a", "b", "c", "d", "xdstp://x/T/dir/1", "xdstp://x/T/dir/2", "xdstp://x/T/e/1"],
        aliases: &["p", "q", "b"],
        asked: &["a", "b", "p", "q", "z", "xdstp://x/T/dir/1"],
    },
    Kind {
        of_type: ResourceType::Listener,
        names: &["*", "*.b.io", "*.io", "A.io", "a.io", "a.io:80", "b.io"],
        aliases: &["p", "x.io"],
        asked: &["a.io", "A.io", "a.io:80", "a.io:81", "x.b.io", "y.x.b.io:1", "x.io", "io", "p", "no host"],
    },
    Kind {
        of_type: ResourceType::VirtualHost,
        names: &["r/1", "r/2", "r/3", "s/1", "s/2"],
        aliases: &["r/a.io", "r/*.io", "r/*a.io", "r/*", "r/a.*", "r/a*", "s/*", "s/*.b.io", "s/*.c.io"],
        asked: &[
            "r/a.io",
            "r/A.IO",
            "r/xa.io",
            "r/x.io",
            "r/a.de",
            "r/ab",
            "r/x",
            "s/x.b.io",
            "s/x.c.io",
            "s/y",
            "t/y",
            "r/A.io:80",
            "s/x.b.io:80",
            "s/1:80",
        ],
    },
];

/// Numbers that look random; the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % n
    }

    fn some<T: Copy>(&mut self, of: &[T], n_max: usize) -> Vec<T> {
        (0..self.below(n_max + 1)).map(|_| of[self.below(of.len())]).collect()
    }

    fn plain(&mut self, kind: &Kind) -> Plain {
        Plain {
            content: self.below(3) as u64,
            aliases: self.some(kind.aliases, 2),
            is_pattern: self.below(3) > 0,
            in_wildcard: self.below(4) > 0,
            has_ttl: self.below(3) == 0,
            to: self.some(&["t", "u", "v"], 2),
        }
    }
}

fn target(name: &str) -> ResourceKey {
    ResourceKey { resource_type: ResourceType::Secret, name: name.into() }
}

fn resource(kind: &Kind, name: &str, plain: &Plain) -> Arc<Resource> {
    // The references of a resource follow from its content.
    let content = Bytes::from(format!("{} {:?}", plain.content, plain.to));
    let is_listener = kind.of_type == ResourceType::Listener;
    let content = if is_listener { host::renamed(&content, name) } else { content };
    let draft = Resource::plain(kind.of_type.clone(), name, content).to_draft();
    let references =
        plain.to.iter().map(|to| Reference { to: target(to).into(), path: "p".into() }).collect();
    Arc::new(Resource::new(ResourceDraft {
        aliases: plain.aliases.iter().map(|alias| Name::from(*alias)).collect(),
        host_pattern: plain.is_pattern,
        in_wildcard: plain.in_wildcard,
        ttl: plain.has_ttl.then(|| std::time::Duration::from_secs(1)),
        references,
        ..draft
    }))
}

/// The same as a history gets it: a Listener as one of several names of another one.
fn shared(kind: &Kind, name: &str, plain: &Plain) -> Arc<Resource> {
    if kind.of_type != ResourceType::Listener || !plain.aliases.is_empty() {
        return resource(kind, name, plain);
    }
    Arc::new(resource(kind, "any.other.io", plain).renamed(&name.into()))
}

/// The model's answer for a name: of which resource, and whether it is given under the name that was asked for.
fn looked_up(kind: &Kind, model: &Model, asked: &str) -> Option<(&'static str, bool)> {
    let by_alias =
        |alias: &str| model.iter().find(|(_, plain)| plain.aliases.contains(&alias)).map(|(name, _)| *name);
    if let Some((name, _)) = model.get_key_value(asked) {
        return Some((name, false));
    }
    if let Some(name) = by_alias(asked) {
        return Some((name, false));
    }
    if kind.of_type == ResourceType::VirtualHost {
        let (route, host) = asked.rsplit_once('/')?;
        let host = host.to_lowercase();
        // The better the domain matches, the lower the rank.
        let rank = |domain: &str| {
            let fits = domain.len() <= host.len();
            match (domain.strip_prefix('*'), domain.strip_suffix('*')) {
                _ if domain == host => Some((0, 0)),
                (Some(""), _) => Some((3, 0)),
                (Some(suffix), _) if fits && host.ends_with(suffix) => Some((1, usize::MAX - suffix.len())),
                (_, Some(prefix)) if fits && host.starts_with(prefix) => Some((2, usize::MAX - prefix.len())),
                (_, _) => None,
            }
        };
        let domains =
            model.iter().flat_map(|(name, plain)| plain.aliases.iter().map(move |alias| (name, alias)));
        let ranked = domains.filter_map(|(name, alias)| {
            let (of, domain) = alias.rsplit_once('/')?;
            Some((rank(domain).filter(|_| of == route)?, *name))
        });
        let without_port = || looked_up(kind, model, asked.to_lowercase().strip_suffix(":80")?);
        return ranked.min().map(|(_, name)| (name, false)).or_else(without_port);
    }
    if kind.of_type != ResourceType::Listener || asked.contains([' ', '*']) {
        return None;
    }
    let host = asked.split(':').next()?.to_lowercase();
    let rank = |pattern: &str| {
        let lower = pattern.to_lowercase();
        match lower.strip_prefix('*') {
            None if lower == asked.to_lowercase() => Some((0, 0)),
            None if lower == host => Some((1, 0)),
            Some("") => Some((3, 0)),
            Some(suffix) if host.len() > suffix.len() && host.ends_with(suffix) => {
                Some((2, usize::MAX - suffix.len()))
            }
            Some(_) | None => None,
        }
    };
    let patterns = model.iter().filter(|(_, plain)| plain.is_pattern);
    patterns.filter_map(|(name, _)| Some((rank(name)?, *name))).min().map(|(_, name)| (name, true))
}

fn names<'a>(found: impl Iterator<Item = &'a Arc<Resource>>) -> Vec<&'a str> {
    found.map(|resource| &**resource.name()).collect()
}

fn check(kind: &Kind, table: &TypeTable, model: &Model, random: &mut Random) {
    let mut resources: Vec<_> = model.iter().map(|(name, plain)| resource(kind, name, plain)).collect();
    for position in 0..resources.len() {
        resources.swap(position, random.below(model.len()));
    }
    let flat = TypeTable::new(resources);
    assert_eq!(table.version(), flat.version());
    assert_eq!(names(table.resources()), model.keys().copied().collect::<Vec<_>>());
    assert!(table.resources().all(|one| flat.find(one.name()) == Some(one)));
    let wire = |one: &Arc<Resource>| (one.value().into_owned(), one.n_bytes(), one.version(), one.entry());
    assert!(table.resources().map(wire).eq(flat.resources().map(wire)));
    assert_eq!((table.len(), table.is_empty()), (model.len(), model.is_empty()));
    assert_eq!(table.is_all_in_wildcard(), model.values().all(|plain| plain.in_wildcard));
    let of = |is_wanted: &dyn Fn(&str, &Plain) -> bool| -> Vec<&str> {
        model.iter().filter(|(name, plain)| is_wanted(name, plain)).map(|(name, _)| *name).collect()
    };
    assert_eq!(names(table.resources_with_ttl()), of(&|_, plain| plain.has_ttl));
    for to in ["t", "u", "v", "w"] {
        assert_eq!(names(table.referrers(&target(to))), of(&|_, plain| plain.to.contains(&to)));
    }
    for directory in ["dir", "e", "f"] {
        let of_directory = of(&|name, _| name.starts_with(&format!("xdstp://x/T/{directory}/")));
        assert_eq!(names(table.members(&format!("xdstp://x/T/{directory}/*"))), of_directory);
    }
    for after in kind.names {
        assert_eq!(names(table.resources_after(Some(after))), of(&|name, _| name > *after));
    }
    for asked in kind.asked.iter().chain(kind.names) {
        let found = table.look_up(asked).map(|found| match found {
            Found::AsItIs(resource) => (&**resource.name(), false),
            Found::Template(resource) => (&**resource.name(), true),
        });
        assert_eq!(found, looked_up(kind, model, asked), "{asked} in {model:?}");
    }
    for table in [table, &flat] {
        let is_pattern = |plain: &Plain| plain.is_pattern && kind.of_type == ResourceType::Listener;
        assert_eq!(table.has_host_patterns(), model.values().any(is_pattern));
        let is_host = kind.of_type == ResourceType::VirtualHost;
        let has_other_name = |plain: &Plain| is_host || is_pattern(plain) || !plain.aliases.is_empty();
        assert_eq!(table.has_other_names(), model.values().any(has_other_name));
    }
}

fn check_changes(newer: &TypeTable, older: &TypeTable, (new, old): (&Model, &Model)) {
    let changes = newer.changes_since(older);
    let changed = new.iter().filter(|(name, plain)| old.get(*name) != Some(plain)).map(|(name, _)| *name);
    assert_eq!(names(changes.changed.iter()), changed.collect::<Vec<_>>());
    let removed: Vec<&str> = old.keys().filter(|name| !new.contains_key(*name)).copied().collect();
    assert_eq!(changes.removed.iter().map(|name| &**name).collect::<Vec<_>>(), removed);
    assert!(
        changes.changed.iter().all(|one| newer.find(one.name()).is_some_and(|own| Arc::ptr_eq(own, one)))
    );
}

/// A table that lies over another, through one history, and the model beside it.
fn history(kind: &Kind, mut random: Random) {
    let (mut below, mut own) = (Model::new(), Model::new());
    let (mut base, mut table) = (None, None);
    let mut before: Vec<(Arc<TypeTable>, Model)> = vec![(Arc::default(), Model::new())];
    for _ in 0..12 {
        let former = base.clone();
        let mut edits = [vec![], vec![]];
        for (map, edits) in [&mut below, &mut own].into_iter().zip(&mut edits) {
            for name in random.some(kind.names, 3) {
                let plain = (random.below(3) > 0).then(|| random.plain(kind));
                match &plain {
                    Some(plain) => _ = map.insert(name, plain.clone()),
                    None => _ = map.remove(name),
                }
                edits.push((Name::from(name), plain.map(|plain| shared(kind, name, &plain))));
            }
        }
        let [of_base, of_own] = edits;
        base = TypeTable::edited(former.as_ref(), &of_base);
        let of_own: Vec<_> =
            of_own.into_iter().map(|(name, own)| (name, own.map_or(Edit::Below, Edit::Own))).collect();
        table = TypeTable::laid_over(base.as_ref(), (former.as_ref(), table.as_ref()), &of_own);
        let mut visible = below.clone();
        visible.extend(own.clone());
        assert_eq!(table.is_none(), visible.is_empty());
        let present = table.clone().unwrap_or_default();
        check(kind, &present, &visible, &mut random);
        for (older, model) in &before {
            check_changes(&present, older, (&visible, model));
        }
        let mut deviations = Deviations::new();
        let mut deviating = visible.clone();
        for name in random.some(kind.names, 3) {
            let plain = (random.below(2) > 0).then(|| random.plain(kind));
            match &plain {
                Some(plain) => _ = deviating.insert(name, plain.clone()),
                None => _ = deviating.remove(name),
            }
            let kept = plain.map(|plain| resource(kind, name, &plain));
            deviations.insert(name.into(), Deviation::Withheld(kept));
        }
        let transitional = present.deviating(&deviations);
        check(kind, &transitional, &deviating, &mut random);
        check_changes(&present, &transitional, (&visible, &deviating));
        before.push((transitional, deviating));
        before.push((present, visible));
        let n_old = before.len().saturating_sub(6);
        before.drain(..n_old);
    }
}

#[test]
fn a_table_gives_what_its_resources_give_however_it_came_about() {
    for seed in 0..300 {
        for kind in &KINDS {
            history(kind, Random(seed));
        }
    }
}

#[test]
fn equal_sets_have_equal_versions_and_others_have_not() {
    let kind = &KINDS[0];
    let mut versions = BTreeMap::new();
    let mut random = Random(1);
    let plain = |content| Plain { content, ..random.plain(kind) };
    let contents: Vec<Plain> = [1, 2].map(plain).to_vec();
    let mut seen = BTreeSet::new();
    for bits in 0..3_usize.pow(5) {
        let of = |position: u32| bits / 3_usize.pow(position) % 3;
        let chosen = (0..5).filter(|position| of(*position) > 0);
        let resources =
            chosen.map(|position| resource(kind, kind.names[position as usize], &contents[of(position) - 1]));
        let version = TypeTable::new(resources.collect()).version().to_string();
        assert!(seen.insert(version.clone()), "{:?} has it too", versions.get(&version));
        versions.insert(version, bits);
    }
}
