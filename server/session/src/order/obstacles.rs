//! The obstacle of a resource: the client has not accepted it, or lacks something that it refers to.
//!
//! A resource is ready if everything that can be reached from it is. So what stands in the way is looked for from what the client
//! lacks, against the references: whatever leads there waits for the nearest. References in a circle need nothing of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xds_cache::{Name, Resource, ResourceKey, ResourceType, WaitsFor};

use super::facts::{Facts, Need, Needed, Obstacle};
use crate::ledger::Answer;
use crate::quirks::Quirk;
use crate::references::{self, route_of};
use crate::stream::Stream;
use crate::type_state::TypeState;

/// A resource looked at alone.
enum Found {
    /// The client lacks it.
    Lacking(WaitsFor),
    /// The client has it, and this is what it needs for it.
    Ready(Vec<Reference>),
}

/// Something that a resource needs.
struct Reference {
    to: Needed,
    /// The client is to be sent a newer version that does not need it: the resource itself is waited for then.
    is_outdated: bool,
}

impl Facts<'_> {
    /// The obstacle that keeps the client from using a resource, if any.
    pub(super) fn obstacle(&self, to: &ResourceKey, need: Need) -> Option<WaitsFor> {
        let needed = (to.clone(), need);
        if let Some(obstacle) = self.obstacles.borrow().get(&needed) {
            return obstacle.as_ref().map(|obstacle| obstacle.waits_for.clone());
        }
        add(&mut self.obstacles.borrow_mut(), self, &needed)
    }

    /// The obstacle that keeps the client from using the references of a resource, though the view may not have these any more.
    pub(super) fn obstacle_for(&self, resource: &Resource) -> Option<WaitsFor> {
        let is_of_order =
            |to: &&ResourceKey| references::row_of(resource.resource_type(), &to.resource_type).is_some();
        let need = Need { is_certain: true, ..Need::default() };
        let mut references = resource.references().targets().filter(is_of_order);
        references.find_map(|to| self.obstacle(to, need))
    }

    fn look(&self, (to, need): &Needed) -> Found {
        let nothing = || Found::Ready(vec![]);
        if references::all_of(to).is_some() {
            // None of them in particular.
            return self.unheard_of(to, *need).map_or_else(nothing, Found::Lacking);
        }
        let table = self.table(&to.resource_type);
        let served = table.find(&to.name);
        let is_needed = served.is_some() || need.is_certain || (need.is_replaced && !self.is_foreign(to));
        if !is_needed {
            return nothing();
        }
        let mut found: Option<&Resource> = None;
        let mut is_asked_for = false;
        for state in self.states(&to.resource_type) {
            let covers_served = served.is_some_and(|served| state.wants.covers(table, served));
            let covers_nothing = || served.is_none() && state.wants.covers_name(&to.name);
            if !covers_served && !covers_nothing() {
                continue;
            }
            is_asked_for = true;
            if !state.holds(&to.name) {
                return Found::Lacking(WaitsFor::Sending(to.clone()));
            }
            let sent = state.sent(&to.name).or_else(|| state.claimed(&to.name)).or(served);
            match state.ledger.answer(&to.name) {
                Answer::None => return Found::Lacking(WaitsFor::Ack(to.clone())),
                Answer::Rejected if !sent.is_some_and(|sent| self.is_proven(state, sent)) => {
                    return Found::Lacking(WaitsFor::Change(to.clone()));
                }
                Answer::Rejected | Answer::Accepted(_) | Answer::Released => {}
            }
            found = sent.map(|sent| &**sent);
        }
        if !is_asked_for {
            return Found::Lacking(WaitsFor::Request(to.clone()));
        }
        if Quirk::Settles.is_of(&to.resource_type) && self.input.settling.contains_key(&to.name) {
            return Found::Lacking(WaitsFor::Settling(to.clone()));
        }
        let Some(found) = found else { return nothing() };
        let is_older = served.is_none_or(|served| served.version() != found.version());
        let references = found.references().targets().filter_map(|needed| {
            let row = references::row_of(&to.resource_type, &needed.resource_type)?;
            // The references of an older version may have gone before the client got them; then only the newer version helps.
            let is_gone = self.served(needed).is_none();
            let is_outdated = is_older && is_gone && !self.is_foreign(needed);
            let need = Need { is_certain: is_outdated || row.is_warmed, ..*need };
            Some(Reference { to: (needed.clone(), need), is_outdated })
        });
        Found::Ready(references.collect())
    }

    /// What an Envoy waits for that has a route configuration whose virtual hosts come on demand: it uses that only when it has heard
    /// anything about these.
    fn unheard_of(&self, all: &ResourceKey, need: Need) -> Option<WaitsFor> {
        let of = &all.resource_type;
        if !Quirk::AskedAtFirstUse.is_of(of) {
            return None;
        }
        let is_unsent =
            |state: &TypeState| state.awaited.as_ref().is_some_and(|all_of| all_of.contains(&all.name));
        if self.states(of).any(is_unsent) {
            return Some(WaitsFor::Sending(all.clone()));
        }
        let routes: Vec<(&Stream, &TypeState)> =
            references::rows_to(of).flat_map(|row| self.streams_of(&row.from)).collect();
        // Without ADS there is a stream for each route configuration, and one for its virtual hosts.
        let is_apart = routes.iter().any(|(stream, _)| stream.is_per_type());
        if self.is_expected(of) || (is_apart && self.lacks_stream_of_hosts(all, &routes)) {
            return Some(WaitsFor::Request(all.clone()));
        }
        // On one stream, what is sent now comes after it.
        let counts = need.is_superseded || is_apart;
        let is_on_its_way = |state: &TypeState| counts && !state.ledger.responses().is_answered();
        self.states(of).any(is_on_its_way).then(|| WaitsFor::Ack(all.clone()))
    }

    /// Returns `true` if the client may not have opened the stream for these virtual hosts yet. One on which no host was asked for
    /// may be that of any route configuration.
    fn lacks_stream_of_hosts(&self, all: &ResourceKey, routes: &[(&Stream, &TypeState)]) -> bool {
        let of = &all.resource_type;
        let has_stream = |route: &str| self.states(of).any(|state| state.wants.names().has_route(route));
        if route_of(&all.name).is_none_or(has_stream) {
            return false;
        }
        let is_on_demand = |route: &Arc<Resource>| route.references().of_type(of).next().is_some();
        let on_demand = routes.iter().flat_map(|(_, state)| {
            state.wants.names().iter().filter(|name| state.sent(name).is_some_and(is_on_demand))
        });
        self.lacks_stream(of, on_demand)
    }

    /// Returns `true` if the client, if it has what the view lacks, has it from somewhere else: it asks for everything of the type and
    /// was never sent this, or asks for nothing of the type. One that came back may yet ask.
    fn is_foreign(&self, to: &ResourceKey) -> bool {
        let mut states = self.states(&to.resource_type);
        let is_unsent =
            |state: &TypeState| state.wants.is_wildcard() && state.ledger.in_use(&to.name).next().is_none();
        Quirk::MayBeLocal.is_of(&to.resource_type)
            && !self.is_expected(&to.resource_type)
            && states.all(is_unsent)
    }

    /// Returns `true` if the client has the resource though it rejected the response that brought it: it asks for what warms that. Envoy
    /// takes up what is good of a response that it rejects. If an older version asked for it, that must not need more than this.
    fn is_proven(&self, state: &TypeState, resource: &Resource) -> bool {
        let is_asked_for =
            |of: &ResourceType, name: &Name| self.states(of).any(|state| state.wants.names().contains(name));
        let mut warming = references::rows_from(resource.resource_type()).filter(|row| row.is_warmed);
        let asks_for_any =
            warming.any(|row| resource.references().of_type(&row.to).any(|name| is_asked_for(&row.to, name)));
        let needs_all =
            |used: &Arc<Resource>| used.references().missing_in(resource.references()).next().is_none();
        asks_for_any && state.ledger.in_use(resource.name()).all(needs_all)
    }
}

/// The obstacle of each resource; `None` if it has none.
type Obstacles = BTreeMap<Needed, Option<Obstacle>>;

/// Finds what stands in the way of a resource, and of everything that it leads to.
fn add(obstacles: &mut Obstacles, facts: &Facts<'_>, needed: &Needed) -> Option<WaitsFor> {
    let mut leads_here: BTreeMap<Needed, Vec<(Needed, bool)>> = BTreeMap::new();
    // The resources that the client lacks, by distance, then by name; where two are as near the first one counts.
    let mut lacking: BTreeMap<(usize, Needed, Needed), WaitsFor> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut open = vec![needed.clone()];
    while let Some(from) = open.pop() {
        if !seen.insert(from.clone()) {
            continue;
        }
        if let Some(known) = obstacles.get(&from) {
            let at = known.as_ref().map(|known| (known.distance, known.waits_for.clone()));
            lacking.extend(at.map(|(distance, waits_for)| ((distance, from.clone(), from), waits_for)));
            continue;
        }
        match facts.look(&from) {
            Found::Lacking(waits_for) => drop(lacking.insert((0, from.clone(), from.clone()), waits_for)),
            Found::Ready(references) => {
                for Reference { to, is_outdated } in references {
                    leads_here.entry(to.clone()).or_default().push((from.clone(), is_outdated));
                    open.push(to);
                }
                obstacles.insert(from, None);
            }
        }
    }
    let mut spread = BTreeSet::new();
    while let Some(((distance, _, at), waits_for)) = lacking.pop_first() {
        if !spread.insert(at.clone()) {
            continue;
        }
        for (from, is_outdated) in leads_here.get(&at).into_iter().flatten() {
            let waits_for = if *is_outdated { WaitsFor::Sending(from.0.clone()) } else { waits_for.clone() };
            lacking.insert((distance + 1, at.clone(), from.clone()), waits_for);
        }
        obstacles.insert(at, Some(Obstacle { distance, waits_for }));
    }
    obstacles.get(needed)?.as_ref().map(|obstacle| obstacle.waits_for.clone())
}
