//! A client as the protocol page describes it, made of plain maps.
//!
//! It shares no code with the session or the cache: it knows only what is on the wire, and what it wants. A response that it rejects
//! at random it keeps nevertheless, so after everything has been delivered it must hold what it asked for, whatever it answered on
//! the way. A client with a [`Taste`] rejects by contents, and then keeps only a part of the response.

use std::collections::{BTreeMap, BTreeSet};

/// One response as it arrives.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    pub(crate) kind: usize,
    pub(crate) nonce: u64,
    pub(crate) version: String,
    pub(crate) resources: Vec<WireResource>,
    pub(crate) removed: Vec<String>,
}

/// One resource as it arrives; without content it says that there is none.
#[derive(Clone, Debug)]
pub(crate) struct WireResource {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) content: Option<String>,
    pub(crate) aliases: Vec<String>,
}

/// One request as it leaves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ask {
    pub(crate) kind: usize,
    /// State of the World: everything that is wanted.
    pub(crate) list: Vec<String>,
    pub(crate) subscribe: Vec<String>,
    pub(crate) unsubscribe: Vec<String>,
    pub(crate) initial_versions: BTreeMap<String, String>,
    pub(crate) nonce: Option<u64>,
    pub(crate) version: String,
    pub(crate) is_nack: bool,
    /// The resources that the words of a NACK name.
    pub(crate) named: Vec<String>,
}

/// The contents that a client refuses, and what it does with the rest of the response that brings one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taste {
    /// One bit for each content.
    pub(crate) refused: u8,
    /// It applies nothing behind the first resource that it refuses, as an Envoy does with all but clusters and listeners.
    pub(crate) stops: bool,
}

impl Taste {
    pub(crate) fn refuses(self, content: &str) -> bool {
        content.parse::<u32>().is_ok_and(|content| u32::from(self.refused) & (1 << content) != 0)
    }
}

/// What one client wants and holds of one type.
#[derive(Clone, Debug)]
pub(crate) struct TypeClient {
    pub(crate) kind: usize,
    pub(crate) is_delta: bool,
    /// Whether absence from a SotW response is deletion, and a first request without names asks for everything.
    pub(crate) is_complete: bool,
    pub(crate) wants_all: bool,
    pub(crate) names: BTreeSet<String>,
    pub(crate) held: BTreeMap<String, Held>,
    /// Names that were subscribed to by name and not answered since (P7).
    pub(crate) unanswered: BTreeSet<String>,
    has_asked: bool,
    /// Whether a name was ever given on this stream.
    has_named: bool,
    last_nonce: Option<u64>,
    last_version: String,
}

/// One resource that the client holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) version: String,
    pub(crate) content: String,
    aliases: Vec<String>,
}

impl TypeClient {
    pub(crate) fn new(kind: usize, is_delta: bool, is_complete: bool) -> Self {
        Self {
            kind,
            is_delta,
            is_complete,
            wants_all: false,
            names: BTreeSet::new(),
            held: BTreeMap::new(),
            unanswered: BTreeSet::new(),
            has_asked: false,
            has_named: false,
            last_nonce: None,
            last_version: String::new(),
        }
    }

    pub(crate) fn has_asked(&self) -> bool {
        self.has_asked
    }

    /// Wants and unwants names, of which `*` is one. `is_legacy`: a wildcard that comes first is asked for by saying nothing.
    pub(crate) fn change(&mut self, add: &[String], remove: &[String], is_legacy: bool) -> Option<Ask> {
        let star = "*".to_owned();
        let is_first = !self.has_asked;
        let (wanted_all, before) = (self.wants_all, self.names.clone());
        self.wants_all = (self.wants_all && !remove.contains(&star)) || add.contains(&star);
        self.names.retain(|name| !remove.contains(name));
        self.names.extend(add.iter().filter(|name| **name != star).cloned());
        let wants_nothing = !self.wants_all && self.names.is_empty();
        // Nothing was ever named, so an empty list would still ask for everything; and a first one would.
        if wants_nothing && !self.is_delta && self.is_complete && !self.has_named {
            (self.wants_all, self.names) = (wanted_all, before);
            return None;
        }
        if is_first && wants_nothing {
            return None;
        }
        if self.is_delta {
            let gone = remove.iter().filter(|name| !add.contains(name));
            let was_wanted = |name: &&String| before.contains(*name) || (**name == star && wanted_all);
            let gone: Vec<String> = gone.filter(was_wanted).cloned().collect();
            gone.iter().for_each(|name| self.drop_unsubscribed(name));
            self.unanswered.extend(add.iter().filter(|name| **name != star).cloned());
            self.unanswered.retain(|name| self.names.contains(name));
        } else {
            let unwanted: Vec<String> =
                self.held.keys().filter(|name| !self.wants(name, &[])).cloned().collect();
            unwanted.iter().for_each(|name| drop(self.held.remove(name)));
        }
        let says_nothing =
            is_legacy && is_first && self.is_complete && self.names.is_empty() && remove.is_empty();
        Some(self.ask(add, remove, says_nothing))
    }

    fn ask(&mut self, add: &[String], remove: &[String], says_nothing: bool) -> Ask {
        let list = if says_nothing
            || (self.wants_all && !self.has_named && self.has_asked && self.names.is_empty())
        {
            vec![]
        } else {
            self.wants_all.then(|| "*".to_owned()).into_iter().chain(self.names.iter().cloned()).collect()
        };
        self.has_asked = true;
        self.has_named |= !list.is_empty();
        let subscribe = if says_nothing { vec![] } else { add.to_vec() };
        let ask = Ask { kind: self.kind, version: self.last_version.clone(), ..Ask::default() };
        if self.is_delta {
            return Ask { subscribe, unsubscribe: remove.to_vec(), ..ask };
        }
        Ask { list, nonce: self.last_nonce, ..ask }
    }

    /// The same again, with an older nonce than the last. In delta that says nothing.
    pub(crate) fn repeat(&mut self, staleness: u64) -> Ask {
        let ask = self.ask(&[], &[], false);
        Ask { nonce: self.last_nonce.map(|nonce| nonce.saturating_sub(staleness)), ..ask }
    }

    /// The first request on a new stream; what was held is kept. Nothing if nothing is wanted.
    pub(crate) fn reconnect(&mut self, is_legacy: bool, tells_versions: bool) -> Option<Ask> {
        (self.has_asked, self.has_named, self.last_nonce) = (false, false, None);
        if !self.wants_all && self.names.is_empty() {
            self.held.clear();
            return None;
        }
        if !tells_versions {
            self.held.clear();
        }
        let star = self.wants_all.then(|| "*".to_owned());
        let names: Vec<String> = star.into_iter().chain(self.names.iter().cloned()).collect();
        let says_nothing = is_legacy && self.is_complete && self.names.is_empty();
        let mut ask = self.ask(&names, &[], says_nothing);
        if self.is_delta {
            let brings = |asked: &String, (name, held): (&String, &Held)| {
                same_name(asked, name) || is_below(asked, name) || held.aliases.contains(asked)
            };
            let is_unheld = |asked: &&String| !self.held.iter().any(|held| brings(asked, held));
            self.unanswered = self.names.iter().filter(is_unheld).cloned().collect();
            let versions = self.held.iter().map(|(name, held)| (name.clone(), held.version.clone()));
            ask.initial_versions = versions.collect();
        }
        Some(ask)
    }

    /// Takes in a response of which it may refuse something, and answers it. An Envoy tries clusters and listeners one by one, and
    /// says which of them it refuses.
    pub(crate) fn taste(&mut self, wire: &Wire, taste: Taste) -> Ask {
        let is_bad =
            |resource: &WireResource| resource.content.as_ref().is_some_and(|content| taste.refuses(content));
        let Some(first) = wire.resources.iter().position(is_bad) else { return self.receive(wire, false) };
        let is_listed = self.is_complete;
        let end = if taste.stops && !is_listed { first } else { wire.resources.len() };
        let (mut taken, mut others) = (wire.clone(), vec![]);
        taken.resources.clear();
        for (position, resource) in wire.resources.iter().enumerate() {
            let is_taken = position < end && !is_bad(resource);
            if is_taken { taken.resources.push(resource.clone()) } else { others.push(resource.clone()) }
        }
        let kept: BTreeMap<String, Held> = others
            .iter()
            .filter_map(|other| Some((other.name.clone(), self.held.get(&other.name)?.clone())))
            .collect();
        let ask = self.receive(&taken, true);
        self.held.extend(kept);
        for name in others.iter().flat_map(|other| other.aliases.iter().chain([&other.name])) {
            self.unanswered.retain(|asked| !same_name(asked, name) && !is_below(asked, name));
        }
        let named = others.iter().filter(|other| is_listed && is_bad(other)).map(|other| other.name.clone());
        Ask { named: named.collect(), ..ask }
    }

    /// Takes in a response, and answers it.
    pub(crate) fn receive(&mut self, wire: &Wire, is_nack: bool) -> Ask {
        self.last_nonce = Some(wire.nonce);
        if !is_nack {
            self.last_version.clone_from(&wire.version);
        }
        let mut names = BTreeSet::new();
        for resource in &wire.resources {
            names.insert(resource.name.clone());
            for name in resource.aliases.iter().chain([&resource.name]) {
                self.unanswered.remove(name);
                self.unanswered.retain(|asked| !same_name(asked, name) && !is_below(asked, name));
            }
            if !self.wants(&resource.name, &resource.aliases) {
                // It may have had the alias that it was wanted for.
                self.held.remove(&resource.name);
                continue;
            }
            if let Some(content) = resource.content.clone() {
                let held =
                    Held { version: resource.version.clone(), content, aliases: resource.aliases.clone() };
                self.held.insert(resource.name.clone(), held);
            }
        }
        if self.is_complete && !self.is_delta {
            self.held.retain(|name, _| names.contains(name));
        }
        for name in &wire.removed {
            self.held.retain(|held, _| !same_name(held, name));
            self.unanswered.retain(|asked| !same_name(asked, name));
        }
        let ask = self.ask(&[], &[], false);
        Ask { nonce: Some(wire.nonce), is_nack, ..ask }
    }

    /// Whether the client has a use for a resource.
    pub(crate) fn wants(&self, name: &str, aliases: &[String]) -> bool {
        self.wants_all
            || self
                .names
                .iter()
                .any(|asked| same_name(asked, name) || is_below(asked, name) || aliases.contains(asked))
    }

    /// The client drops what it held by a name, even if the wildcard covers it: the server must send it again (row A106).
    fn drop_unsubscribed(&mut self, name: &str) {
        if name == "*" {
            let unwanted = |(held_name, held): (&String, &Held)| {
                (!self.wants(held_name, &held.aliases)).then(|| held_name.clone())
            };
            let unwanted: Vec<String> = self.held.iter().filter_map(unwanted).collect();
            unwanted.iter().for_each(|name| drop(self.held.remove(name)));
            return;
        }
        let Self { names, held, wants_all, .. } = self;
        held.retain(|held_name, held| {
            let is_own = same_name(name, held_name);
            let is_meant =
                is_own || is_below(name, held_name) || held.aliases.iter().any(|alias| alias == name);
            let is_wanted_otherwise = *wants_all
                || names.iter().any(|asked| {
                    same_name(asked, held_name) || is_below(asked, held_name) || held.aliases.contains(asked)
                });
            !is_meant || (is_wanted_otherwise && !is_own)
        });
    }
}

/// Whether two names are one: `xdstp:` names modulo the order of their parameters.
pub(crate) fn same_name(a: &str, b: &str) -> bool {
    let parts = |name: &str| -> (String, Vec<String>) {
        let (path, parameters) = name.split_once('?').unwrap_or((name, ""));
        let mut parameters: Vec<String> = parameters.split('&').map(str::to_owned).collect();
        parameters.sort();
        (path.to_owned(), parameters)
    };
    a == b || (a.starts_with("xdstp:") && b.starts_with("xdstp:") && parts(a) == parts(b))
}

/// Whether `name` is a member of the glob `glob`.
pub(crate) fn is_below(glob: &str, name: &str) -> bool {
    let (path, parameters) = name.split_once('?').unwrap_or((name, ""));
    let Some((directory, last)) = path.rsplit_once('/') else { return false };
    let separator = if parameters.is_empty() { "" } else { "?" };
    glob.starts_with("xdstp:")
        && last != "*"
        && same_name(glob, &format!("{directory}/*{separator}{parameters}"))
}
