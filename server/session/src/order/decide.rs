//! The decision about one resource at one client: what happens next, and why.

use std::sync::Arc;

use xds_cache::{Name, Resource, ResourceKey, ResourceType, WaitsFor};

use super::facts::{At, Facts, Need, Place, User, wants};
use crate::ledger::Answer;
use crate::quirks::Quirk;
use crate::references;
use crate::type_state::TypeState;

/// The decision about a resource.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) step: Step,
    /// The client has to do this before it is sent the view's version; `None` if it is sent that now, or never.
    pub(super) because: Option<WaitsFor>,
    /// All that stands in the way, also if it is not waited for any more.
    pub(super) obstacles: Vec<WaitsFor>,
    /// The client would be told if a resource that is gone came back: if not it is sent that again.
    pub(super) is_told: bool,
    /// The time is running until the client has to do without the resource, or is over.
    pub(super) is_ending: bool,
    /// It was waited for too long.
    pub(super) is_overdue: bool,
}

/// The version of a resource that a client is sent.
#[derive(Debug)]
pub(super) enum Step {
    /// The view's: the resource, or its absence.
    Send,
    /// This: the client goes on with it, and whoever asks for it is sent it.
    Keep(Arc<Resource>),
    /// Nothing: the client goes on with this, if it has it, and whoever asks is not answered.
    Hide(Option<Arc<Resource>>),
    /// Nothing, nor anything else of the type: the client came back with a version of it that is not known.
    PutOff,
}

impl Decision {
    fn new(step: Step) -> Self {
        Self { step, because: None, obstacles: vec![], is_told: true, is_ending: false, is_overdue: false }
    }
}

/// Decides about a resource that the view has otherwise than the client. The numbers are those of ARCHITECTURE.md.
pub(super) fn decide(facts: &Facts<'_>, key: &ResourceKey) -> Decision {
    if facts.served(key).is_some() {
        // 1. The client uses it without asking for it, and goes on with what it has: an update that it was never sent must not count
        // as sent.
        if let Some(had) = facts.used_unasked(key) {
            return Decision::new(Step::Keep(had));
        }
        // 2. and 3. The client lacks something that the update needs, or resources wait that change together with it.
        let held = hold(facts, key);
        // 4. The client was led to an older version, and needs it when it comes to ask.
        return match facts.led_to(key) {
            Some(led_to) if facts.needs_led_to(key, &led_to, &held.step) => {
                Decision { step: Step::Keep(led_to), ..held }
            }
            Some(_) | None => held,
        };
    }
    // 3. Resources wait that change together with it.
    if let Some(together) = keep_together(facts, key) {
        return together;
    }
    let users = facts.users(key);
    // 4. The client was led to it, and may come to use it.
    let Some(retained) = retain_led_to(facts, key, &users)
        // 5. Something refers to it that the client may be using.
        .or_else(|| retain(facts, key, &users))
        // 6. The client asks for it too late, because of something that goes or changes too.
        .or_else(|| leave_unanswered(facts, key, &users))
        // 7. The client says that it has it, and nobody remembers that it was there.
        .or_else(|| believe(facts, key))
    else {
        // 8. Nothing needs it.
        return Decision::new(Step::Send);
    };
    // 9. Only the client's silence counts, not what waits by our doing, or because of a rejection.
    if facts.wait_by_rejection(&users) {
        return retained;
    }
    if facts.is_retained_too_long(key) {
        return Decision { is_overdue: true, is_ending: true, ..Decision::new(Step::Send) };
    }
    Decision { is_ending: true, ..retained }
}

/// An update that newly refers to something waits until the client has that ready, if the client takes it without asking (one that
/// asks by name learns the name from what refers to it).
fn hold(facts: &Facts<'_>, key: &ResourceKey) -> Decision {
    let alone = hold_alone(facts, key);
    if alone.because.is_some() {
        return alone;
    }
    let owed = facts.places(key).iter().rev().find(|place| matches!(place.at, At::Owed(_)));
    match (owed, facts.waits_together(key)) {
        (Some(place), Some(waits_for)) => {
            Decision { step: place.as_it_is(facts, key), because: Some(waits_for), ..alone }
        }
        _ => alone,
    }
}

fn hold_alone(facts: &Facts<'_>, key: &ResourceKey) -> Decision {
    let mut decision = Decision::new(Step::Send);
    for place in facts.places(key) {
        let At::Owed(resource) = &place.at else { continue };
        if let Some(missing) = facts.missing_without_limit(place.state, resource) {
            decision.step = place.as_it_is(facts, key);
            decision.because.get_or_insert(WaitsFor::Sending(missing));
            continue;
        }
        if let Some((step, missing)) = place.partial(facts, resource) {
            decision.step = step;
            decision.because.get_or_insert(WaitsFor::Sending(missing));
            continue;
        }
        let mut obstacles = facts.obstacles_of_update(place, resource);
        if obstacles.is_empty() {
            continue;
        }
        let step = place.as_it_is(facts, key);
        let goes_on = !matches!(step, Step::PutOff) && !place.has_nothing(resource);
        let is_correction = |obstacle: &WaitsFor| matches!(obstacle, WaitsFor::Change(_));
        let may_do_without = !goes_on && !place.state.ledger.came_back();
        if may_do_without && obstacles.iter().any(is_correction) && !facts.works_without(key) {
            // To wait for a correction would keep nothing working.
            obstacles.retain(|obstacle| !is_correction(obstacle));
        }
        let is_lasting =
            |obstacle: &WaitsFor| goes_on && (is_correction(obstacle) || facts.is_kept_back(obstacle));
        let is_overdue = |obstacle: &WaitsFor| !is_lasting(obstacle) && facts.is_awaited_too_long(obstacle);
        decision.is_overdue |= obstacles.iter().any(is_overdue);
        let open = obstacles.iter().find(|obstacle| !is_overdue(obstacle)).cloned();
        decision.obstacles.extend(obstacles.into_iter().filter(|obstacle| !is_lasting(obstacle)));
        if let Some(waits_for) = open {
            // Other streams may have it, and are not put off.
            if decision.because.is_none() || !matches!(step, Step::PutOff) {
                decision.step = step;
            }
            decision.because.get_or_insert(waits_for);
        }
    }
    decision
}

/// A removal goes with the updates of the resources that change together with it.
fn keep_together(facts: &Facts<'_>, key: &ResourceKey) -> Option<Decision> {
    let waits_for = facts.waits_together(key)?;
    let (_, resource) = facts.gone(key).next_back()?;
    Some(Decision { because: Some(waits_for), ..Decision::new(Step::Keep(Arc::clone(resource))) })
}

/// A resource that the client was led to, and asks for only when it uses it, stays for as long as the client may come to use it. Once
/// the client was sent it, no older version counts.
fn retain_led_to(facts: &Facts<'_>, key: &ResourceKey, users: &[User]) -> Option<Decision> {
    let led_to = facts.led_to(key)?;
    let is_sent = facts.states(&key.resource_type).any(|state| state.holds(&key.name));
    if is_sent || !facts.is_used_at_once(key) {
        return None;
    }
    let obstacle = facts.obstacle_for(&led_to);
    if obstacle.is_some() && facts.may_have(key) {
        // Until then it goes on with that.
        return None;
    }
    let step = if obstacle.is_some() { Step::Hide(Some(led_to)) } else { Step::Keep(led_to) };
    let is_awaited = facts.is_awaited(key);
    let user = users.first().filter(|_| is_awaited).map(|user| WaitsFor::Disuse(user.key.clone()));
    Some(Decision { because: obstacle.or(user), is_told: is_awaited, ..Decision::new(step) })
}

/// A removed resource stays for as long as something refers to it that the client may be using.
fn retain(facts: &Facts<'_>, key: &ResourceKey, users: &[User]) -> Option<Decision> {
    let mut gone = facts.gone(key).filter(|(place, _)| facts.knows_best(place.state, &key.name));
    gone.find_map(|(Place { state, .. }, resource)| {
        // If nothing tells the client that the resource is gone, it uses that for as long as it asks for it; and if it does not ask any
        // more, for as long as its users do.
        let is_wanted = state.wants.wants(state.ledger.settled(), &key.name);
        let is_draining = is_wanted && users.is_empty() && state.has(Quirk::FailsWithoutRemoved);
        let is_silent = !is_wanted || state.hides_removals() || is_draining;
        let uses_clusters = references::refers_to_unasked(&key.resource_type);
        if users.is_empty() && !(is_wanted && is_silent && uses_clusters) {
            return None;
        }
        // A client that has it keeps it; one that asks for it now might not have what it refers to. What is used before it is there
        // has to come nevertheless: virtual hosts, and routes of a scope.
        let user = users.first().map_or(key, |user| &user.key);
        let mut because = (!is_silent).then(|| WaitsFor::Disuse(user.clone()));
        let kept = Arc::clone(resource);
        let step = if (uses_clusters && !facts.is_used_at_once(key)) || state.claims_another(resource) {
            Step::Hide(Some(kept))
        } else {
            match state.ready_of_several(facts, resource) {
                Ok(ready) => Step::Keep(ready),
                Err(kept) => {
                    because = facts.obstacle_for(&kept);
                    Step::Hide(Some(kept))
                }
            }
        };
        Some(Decision { because, is_told: !is_silent, ..Decision::new(step) })
    })
}

/// A request that comes too late, because of something that goes or changes too, is left unanswered. If the client heard that it does
/// not exist, it would use the rest without it.
fn leave_unanswered(facts: &Facts<'_>, key: &ResourceKey, users: &[User]) -> Option<Decision> {
    facts.places(key).iter().find(|place| matches!(place.at, At::Unanswered))?;
    let user = users.first()?;
    if users.iter().any(|user| facts.goes_on(&user.key, key)) {
        return None;
    }
    // Only the resource tells by which other names it is asked for.
    let hidden = facts.led_to(key);
    let because = Some(WaitsFor::Disuse(user.key.clone()));
    Some(Decision { because, ..Decision::new(Step::Hide(hidden)) })
}

/// A resource that the client says it has, and nobody remembers, stays until the client has accepted the types that may refer to it.
fn believe(facts: &Facts<'_>, key: &ResourceKey) -> Option<Decision> {
    facts.places(key).iter().find(|place| matches!(place.at, At::Claimed))?;
    let because = Some(WaitsFor::Disuse(facts.unknown_user(&key.resource_type)?));
    Some(Decision { because, ..Decision::new(Step::Hide(None)) })
}

impl Facts<'_> {
    /// The version that the client has of a resource, if it does not ask for it any more and still uses it.
    fn used_unasked(&self, key: &ResourceKey) -> Option<Arc<Resource>> {
        let had = self.places(key).iter().rev().find_map(|place| match &place.at {
            At::Changed(had) => Some(had),
            At::Owed(_) | At::Gone(_) | At::Unanswered | At::Claimed => None,
        });
        had.filter(|_| self.is_needed_unasked(key)).cloned()
    }

    /// Returns `true` if the client needs the version that it was led to, though it would get `step`.
    fn needs_led_to(&self, key: &ResourceKey, led_to: &Resource, step: &Step) -> bool {
        match step {
            // It has not asked for it yet.
            Step::Send => self.is_needed_unasked(key) && self.is_used_at_once(key),
            // It asks for it now, and must not wait for the new version.
            Step::Hide(_) => {
                self.is_awaited(key) && self.is_used_at_once(key) && self.obstacle_for(led_to).is_none()
            }
            Step::Keep(_) | Step::PutOff => false,
        }
    }

    /// The resources that the client lacks and needs before an update may be sent to a stream.
    fn obstacles_of_update(&self, place: &Place<'_>, resource: &Resource) -> Vec<WaitsFor> {
        let of = resource.resource_type();
        let sent = place.state.sent(resource.name());
        let new: Vec<ResourceKey> = match sent {
            _ if place.state.ledger.came_back() => place.state.new_references(resource),
            Some(sent) => {
                let new = resource.references().missing_in(sent.references());
                new.map(|to| ResourceKey::clone(to)).collect()
            }
            // Whichever version the client uses, that refers to what all of them refer to.
            None if place.state.is_offered_again(resource) => {
                let used: Vec<_> = place.state.ledger.in_use(resource.name()).collect();
                let is_new = |to: &&ResourceKey| used.iter().any(|used| !used.references().has(to));
                resource.references().targets().filter(is_new).cloned().collect()
            }
            None => resource.references().targets().cloned().collect(),
        };
        // New clusters that refer to each other come together.
        let is_mutual = |to: &ResourceKey| sent.is_none() && to.resource_type == *of;
        let needed = new.iter().filter(|to| !is_mutual(to)).flat_map(|to| self.needs(of, to));
        let lacking = needed.filter_map(|needed| self.obstacle(&needed, Need::default()));
        let is_forgetful = Quirk::ForgetsWaiting.is_of(of);
        lacking.chain(is_forgetful.then(|| self.unfinished(of)).flatten()).collect()
    }

    /// The first thing that the client is still taking up of the last change of the scopes: a scope, or routes that one leads to and that
    /// it asked for. Requests may wait for it.
    fn unfinished(&self, of: &ResourceType) -> Option<WaitsFor> {
        let first = || {
            let open = self.open().iter().filter(|(open, _)| open.resource_type == *of);
            let mut places = open.flat_map(|(key, places)| places.iter().map(move |place| (key, place)));
            places.find_map(|(key, Place { state, .. })| {
                let sent = state.sent(&key.name)?;
                if is_unanswered(state, &key.name) {
                    return Some(WaitsFor::Ack(key.clone()));
                }
                let is_used_at_once = |to: &&ResourceKey| {
                    references::row_of(of, &to.resource_type).is_some_and(|row| row.is_used_at_once)
                };
                sent.references().targets().filter(is_used_at_once).find_map(|to| self.unanswered(to))
            })
        };
        self.unfinished_scope.get_or_init(first).clone()
    }

    /// What is missing until the client has a resource that it asked for. What it cannot get any more is not waited for.
    fn unanswered(&self, key: &ResourceKey) -> Option<WaitsFor> {
        let mut states = self.states(&key.resource_type).filter(|state| wants(state, &key.name));
        states.find_map(|state| {
            if state.holds(&key.name) {
                return is_unanswered(state, &key.name).then(|| WaitsFor::Ack(key.clone()));
            }
            let version = self.led_to(key).or_else(|| self.served(key).cloned())?;
            let can_come = match self.obstacle_for(&version) {
                Some(WaitsFor::Change(_)) => false,
                Some(WaitsFor::Sending(lacked)) => self.served(&lacked).is_some(),
                None
                | Some(
                    WaitsFor::Settling(_) | WaitsFor::Request(_) | WaitsFor::Ack(_) | WaitsFor::Disuse(_),
                ) => true,
            };
            can_come.then(|| WaitsFor::Sending(key.clone()))
        })
    }

    /// The resources that the client takes unasked, and needs before something of type `from` may newly refer to `to`: `to` itself, or
    /// its references if the client uses `from` at once and asks for `to` only then.
    fn needs(&self, from: &ResourceType, to: &ResourceKey) -> Vec<ResourceKey> {
        if self.is_taken_unasked(from, to) {
            return vec![to.clone()];
        }
        let is_used_at_once =
            references::row_of(from, &to.resource_type).is_some_and(|row| row.is_used_at_once);
        let Some(served) = self.served(to) else { return vec![] };
        if !is_used_at_once {
            return vec![];
        }
        let references = served.references().targets();
        references.filter(|to| self.is_taken_unasked(served.resource_type(), to)).cloned().collect()
    }

    /// Returns `true` if something of type `from` refers to what the client is sent without asking for it by name, and the view has that.
    fn is_taken_unasked(&self, from: &ResourceType, to: &ResourceKey) -> bool {
        let served = self.served(to);
        references::row_of(from, &to.resource_type).is_some()
            && served.is_some_and(|served| served.in_wildcard())
            && (self.states(&to.resource_type).any(|state| state.wants.is_wildcard())
                || self.is_wildcard_expected(&to.resource_type))
    }

    /// Returns `true` if something was waited for too long. Only silence ends waiting: not what the client needs time for, nor what it has
    /// said if it has something to go on with.
    fn is_awaited_too_long(&self, obstacle: &WaitsFor) -> bool {
        match obstacle {
            WaitsFor::Settling(_) => false,
            WaitsFor::Sending(key)
            | WaitsFor::Request(key)
            | WaitsFor::Ack(key)
            | WaitsFor::Disuse(key)
            | WaitsFor::Change(key) => {
                let since = self.input.before.awaited.get(key).copied().unwrap_or(self.input.now);
                since.checked_add(self.input.limits.addition_grace).is_some_and(|end| self.input.now >= end)
            }
        }
    }

    /// Returns `true` if the client works without a resource that it asks for, until that comes or it waits no longer: what refers to
    /// it replaces something, or a request waits for it.
    fn works_without(&self, key: &ResourceKey) -> bool {
        let had_before = |user: &User| {
            let mut states = self.states(&user.key.resource_type);
            states.any(|state| state.ledger.in_use(&user.key.name).any(|used| !used.references().has(key)))
        };
        Quirk::AskedAtFirstUse.is_of(&key.resource_type) || self.users(key).iter().any(had_before)
    }

    /// Returns `true` if the client had long enough to do without what is gone.
    fn is_retained_too_long(&self, key: &ResourceKey) -> bool {
        let since = self.input.before.retained.get(key).copied().unwrap_or(self.input.now);
        since.checked_add(self.input.limits.removal_grace).is_some_and(|end| self.input.now >= end)
    }

    /// Returns `true` if one of these waits by our doing, or because of a rejection, or is gone and stays for a user that does.
    fn wait_by_rejection(&self, users: &[User]) -> bool {
        let stays = |user: &User| self.served(&user.key).is_none() && self.stays_by_rejection(&user.key);
        users.iter().any(|user| user.is_rejected || self.is_held(&user.key) || stays(user))
    }

    fn stays_by_rejection(&self, key: &ResourceKey) -> bool {
        if let Some(stays) = self.stays.borrow().get(key) {
            return *stays;
        }
        // Whoever uses itself does not stay because of that.
        self.stays.borrow_mut().insert(key.clone(), false);
        let stays = self.wait_by_rejection(&self.users(key));
        self.stays.borrow_mut().insert(key.clone(), stays);
        stays
    }

    /// Where streams have a resource that is gone.
    fn gone(&self, key: &ResourceKey) -> impl DoubleEndedIterator<Item = (&Place<'_>, &Arc<Resource>)> {
        self.places(key).iter().filter_map(|place| match &place.at {
            At::Gone(resource) => Some((place, resource)),
            At::Owed(_) | At::Changed(_) | At::Unanswered | At::Claimed => None,
        })
    }

    fn is_held(&self, key: &ResourceKey) -> bool {
        if let Some(is_held) = self.held.borrow().get(key) {
            return *is_held;
        }
        let is_held = self.served(key).is_some() && hold(self, key).because.is_some();
        self.held.borrow_mut().insert(key.clone(), is_held);
        is_held
    }

    /// If resources of the type change together, the obstacle of the first one that waits.
    fn waits_together(&self, key: &ResourceKey) -> Option<WaitsFor> {
        if !Quirk::ChangeTogether.is_of(&key.resource_type) {
            return None;
        }
        let first = || {
            let scopes = self.open().keys().filter(|open| open.resource_type == key.resource_type);
            scopes
                .filter(|scope| self.served(scope).is_some())
                .find_map(|scope| hold_alone(self, scope).because)
        };
        self.scopes_wait.get_or_init(first).clone()
    }
}

/// Returns `true` if the answer to what a stream was sent of a name is still to come.
fn is_unanswered(state: &TypeState, name: &Name) -> bool {
    state.ledger.answer(name) == Answer::None && !state.ledger.responses().is_answered()
}

impl Place<'_> {
    /// Returns `true` if the client has no version of a resource, nor another resource that does the same. What it asks for by name it
    /// may have had, and use though it was told that it is gone.
    fn has_nothing(&self, resource: &Resource) -> bool {
        let (ledger, name) = (&self.state.ledger, resource.name());
        let is_alone = !Quirk::ChangeTogether.is_of(&self.state.resource_type);
        let has_none = match self.state.wants.names().contains(name) {
            true => self.state.is_unheld(name),
            false => ledger.in_use(name).next().is_none(),
        };
        is_alone && has_none && !ledger.came_back()
    }

    /// The step of a stream that is not sent an update. To be absent from a complete list would be to be deleted.
    fn as_it_is(&self, facts: &Facts<'_>, key: &ResourceKey) -> Step {
        if self.state.ledger.came_back() {
            return self.as_it_came(facts, key);
        }
        match self.state.ledger.settled().find(&key.name) {
            Some(kept) if self.state.sent(&key.name).is_some() || self.state.has(Quirk::CompleteLists) => {
                Step::Keep(Arc::clone(kept))
            }
            kept => Step::Hide(kept.cloned()),
        }
    }

    /// The step of a gRPC client, and a cluster that is not served, if it would not use these routes before it has that. It goes on with
    /// what it has; one that has nothing, or was sent its routes without those to the same clusters, is sent these without them. A
    /// cluster that went after the client had routes to it makes no difference: the client has heard of that.
    fn partial(&self, facts: &Facts<'_>, resource: &Resource) -> Option<(Step, ResourceKey)> {
        let (key, name) = (resource.key(), resource.name());
        let partial = facts.input.view.partial(key)?;
        let cluster =
            |name: &Name| ResourceKey { resource_type: ResourceType::Cluster, name: Arc::clone(name) };
        let missing = cluster(partial.left_out().first()?);
        if self.state.ledger.came_back() {
            let step = match self.as_it_came(facts, key) {
                Step::PutOff => Step::Keep(partial),
                step @ (Step::Send | Step::Keep(_) | Step::Hide(_)) => step,
            };
            return Some((step, missing));
        }
        let had: Vec<&Arc<Resource>> = match self.state.sent(name) {
            Some(sent) => vec![sent],
            None => self.state.ledger.in_use(name).collect(),
        };
        let is_new = |missing: &&Name| {
            !had.iter()
                .any(|had| had.left_out().contains(*missing) || had.references().has(&cluster(missing)))
        };
        match partial.left_out().iter().find(is_new) {
            Some(new) if !had.is_empty() => Some((self.as_it_is(facts, key), cluster(new))),
            None if had.iter().all(|had| had.left_out().is_empty()) => None,
            Some(_) | None => Some((Step::Keep(partial), missing)),
        }
    }

    /// The step of a client that came back and is not sent an update. It goes on with that very version, if it said which; else with one that
    /// it is ready for. If there is none, nothing of the type is sent meanwhile: a list would have to show some version or none.
    pub(super) fn as_it_came(&self, facts: &Facts<'_>, key: &ResourceKey) -> Step {
        let served = facts.served(key).map(|served| served.version());
        let is_former = |candidate: &&Arc<Resource>| Some(candidate.version()) != served;
        let candidates: Vec<&Arc<Resource>> = self.state.candidates(&key.name).filter(is_former).collect();
        if self.state.is_exact() {
            // It may have to be sent again what it said that it has. A version that nobody remembers refers to the same as the one after it.
            let newest = || self.state.candidates(&key.name).next().cloned();
            let may_have = self.state.ledger.may_hold(&key.name);
            return match self.state.claimed(&key.name) {
                Some(claimed) => Step::Keep(Arc::clone(claimed)),
                None => Step::Hide(newest().filter(|_| may_have)),
            };
        }
        let ready = candidates.into_iter().find(|candidate| facts.obstacle_for(candidate).is_none());
        match ready {
            Some(ready) => Step::Keep(Arc::clone(ready)),
            None if Quirk::CompleteLists.is_of(&self.state.resource_type) => Step::PutOff,
            // It may have the very version that is served.
            None => Step::Hide(self.state.candidates(&key.name).next().cloned()),
        }
    }
}

impl TypeState {
    /// The version of a resource that is gone with which the client is to go on: this, or if it may have another one or none, the newest
    /// that it is ready for. If there is none, the one that it may become ready for.
    pub(super) fn ready_of_several(
        &self,
        facts: &Facts<'_>,
        resource: &Arc<Resource>,
    ) -> Result<Arc<Resource>, Arc<Resource>> {
        let name = resource.name();
        let needs_others = references::refers_to_unasked(&self.resource_type);
        let has_this = self.ledger.claimed(name) == Some(resource.version());
        let is_unsure = self.ledger.came_back() || facts.is_awaited(resource.key());
        if !needs_others || Quirk::CompleteLists.is_of(&self.resource_type) || !is_unsure || has_this {
            return Ok(Arc::clone(resource));
        }
        let candidates = || {
            let others = self.candidates(name).filter(|_| self.ledger.came_back());
            std::iter::once(resource).chain(others)
        };
        if let Some(ready) = candidates().find(|candidate| facts.obstacle_for(candidate).is_none()) {
            return Ok(Arc::clone(ready));
        }
        let may_become_ready = |candidate: &&Arc<Resource>| {
            let mut needed = candidate.references().targets();
            needed.all(|to| {
                references::row_of(&self.resource_type, &to.resource_type).is_none()
                    || facts.served(to).is_some()
            })
        };
        Err(Arc::clone(candidates().find(may_become_ready).unwrap_or(resource)))
    }
}
