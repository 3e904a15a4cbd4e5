//! Requests of the API to the driver.

use std::sync::Arc;

use xds_api::rollouts::{RolloutError, StartOptions, Started, tag_of};
use xds_control::model::rollouts::{RolloutRecord, RolloutStep, RolloutSteps, rule_key, weight_change};
use xds_control::model::weights::RuleKey;
use xds_control::model::weights::WeightedObject;
use xds_control::model::weights::change::WeightChange;
use xds_control::model::{EntityTags, StepKind, WaveChoice, Write, WriteError, WriteOptions, WriteOutcome};
use xds_rollout::{DistributionError, Input, Rollout, RolloutSpec, RolloutStatus, Step, Verb};
use xds_units::Percent;

use super::channel::Request;
use super::concern::{Concern, failing};
use super::driver::{Driver, wanted};
use super::fetch::Caller;
use super::keys::Key;

impl Driver {
    pub(super) async fn handle_request(&mut self, request: Request) {
        self.change_duties();
        self.resume_once_loaded();
        self.take_in();
        let mut n_left = MAX_ATTEMPTS;
        // The caller may be gone by now; its request is carried out all the same.
        match request {
            Request::Start(spec, options, reply) => {
                let mut told = self.start(&spec, &options).await;
                while self.is_again(told.as_ref().err().and_then(of_write), &mut n_left) {
                    told = self.start(&spec, &options).await;
                }
                let _ = reply.send(told);
            }
            Request::Ask { id, verb, if_match, actor, reply } => {
                let mut told = self.ask(&id, verb, if_match.as_ref(), &actor).await;
                while self.is_again(told.as_ref().err().and_then(of_write), &mut n_left) {
                    told = self.ask(&id, verb, if_match.as_ref(), &actor).await;
                }
                let _ = reply.send(told);
            }
            Request::Forget { id, if_match, actor, reply } => {
                let mut told = self.forget(&id, if_match.as_ref(), &actor).await;
                while self.is_again(told.as_ref().err().and_then(of_write), &mut n_left) {
                    told = self.forget(&id, if_match.as_ref(), &actor).await;
                }
                let _ = reply.send(told);
            }
            Request::Take { key, change, options, reply } => {
                let mut told = self.take_rule(&key, &change, &options).await;
                while self.is_again(told.as_ref().err(), &mut n_left) {
                    told = self.take_rule(&key, &change, &options).await;
                }
                let _ = reply.send(told);
            }
            // Whoever does not lead has asked for nothing, or leads no more.
            Request::Input(id, input) if self.is_leading => self.feed(&id, input).await,
            Request::Input(..) => {}
            Request::Others(id, others) => self.take_others(&id, others),
        }
    }

    /// Returns `true` if a request that was refused is to be tried with what another server has stored meanwhile.
    fn is_again(&mut self, refused: Option<&WriteError>, n_left: &mut usize) -> bool {
        let is_again = match refused {
            Some(WriteError::Superseded { .. }) => {
                self.take_in();
                true
            }
            // Perhaps the owner is one that another server has just begun or ended.
            Some(WriteError::RolloutActive { .. }) => self.take_in(),
            Some(_) | None => false,
        };
        if is_again {
            *n_left = n_left.saturating_sub(1);
        }
        is_again && *n_left > 0
    }

    async fn start(&mut self, spec: &RolloutSpec, options: &StartOptions) -> Result<Started, RolloutError> {
        self.check_loaded()?;
        let now_ms = (self.parts.clock)();
        let checksum = spec.checksum();
        if let Some(known) = options.idempotency_key.as_ref().and_then(|key| self.keys.find(key, now_ms)) {
            let entry = self.entries.get(&known.rollout).filter(|_| known.checksum == checksum);
            let key = options.idempotency_key.clone().unwrap_or_default();
            let entry = entry.ok_or(RolloutError::KeyReused(key))?;
            return Ok(Started { rollout: Arc::new(entry.rollout().clone()), is_repeated: true });
        }
        let key = rule_key(&spec.route).map_err(RolloutError::NoRule)?;
        check(&self.parts.caller, spec, &key)?;
        let rule = self.parts.control.rule(&key).map_err(|error| RolloutError::NoRule(error.to_string()))?;
        if let Some(rollout) = self.owner_of(&key) {
            return Err(WriteError::RolloutActive { rule: key.to_string(), rollout }.into());
        }
        let n_active = self.entries.values().filter(|entry| !entry.rollout().phase().is_terminal()).count();
        if n_active >= MAX_ACTIVE {
            return Err(RolloutError::TooMany(n_active));
        }
        let whole = |weight: u64| u32::try_from(weight).unwrap_or(u32::MAX);
        let weights = rule.effective.into_iter().map(|(key, weight)| (key, whole(weight))).collect();
        let id = self.new_id(spec, now_ms);
        let (rollout, outcome) = Rollout::start(id.clone(), spec.clone(), &weights, now_ms)
            .map_err(|error| unfit(spec, &error))?;
        self.check_endpoint(&rollout)?;
        let started = Started { rollout: Arc::new(rollout.clone()), is_repeated: false };
        if options.dry_run {
            return Ok(started);
        }
        let record = Arc::new(RolloutRecord { rollout, source: rule.source.into_iter().collect() });
        let begins = RolloutStep { before: None, after: Some(Arc::clone(&record)) };
        let mut steps = RolloutSteps::from([(id.clone(), begins)]);
        let dropped = self.oldest_ended();
        steps.extend(dropped.iter().map(|id| (id.clone(), self.step_to(id, None))));
        let wanted = wanted(&outcome).unwrap_or_default();
        let change = Some((key, weight_change(spec, &wanted.0, &wanted.1)));
        let failing = failing(&self.parts.board);
        let summary = format!("rollout {id}: started");
        let write = Write::StepRollouts { steps, change, kind: StepKind::Onward, summary };
        let (actor, waves) = (options.actor.clone(), WaveChoice::AtOnce);
        let write_options = WriteOptions { actor, waves, ..WriteOptions::default() };
        self.write(write, write_options).await?;
        for id in dropped {
            self.entries.remove(&id);
            self.shown.show(&id, None);
        }
        if let Some(key) = options.idempotency_key.clone() {
            self.keys.keep(key, Key { checksum, rollout: id.clone(), at_ms: now_ms });
        }
        self.insert(&id, Arc::clone(&record));
        self.install(&id, record, outcome, failing);
        Ok(started)
    }

    async fn ask(
        &mut self,
        id: &str,
        verb: Verb,
        if_match: Option<&EntityTags>,
        actor: &str,
    ) -> Result<Arc<Rollout>, RolloutError> {
        self.check_loaded()?;
        self.check_tag(id, if_match)?;
        self.step(id, Input::Verb(verb), actor, None).await?;
        let entry = self.entries.get(id).ok_or_else(|| RolloutError::NotFound(id.to_owned()))?;
        Ok(Arc::new(entry.rollout().clone()))
    }

    async fn forget(
        &mut self,
        id: &str,
        if_match: Option<&EntityTags>,
        actor: &str,
    ) -> Result<(), RolloutError> {
        self.check_loaded()?;
        self.check_tag(id, if_match)?;
        if self.entries.get(id).is_some_and(|entry| !entry.rollout().phase().is_terminal()) {
            return Err(RolloutError::Active(id.to_owned()));
        }
        let steps = RolloutSteps::from([(id.to_owned(), self.step_to(id, None))]);
        let summary = format!("delete the rollout {id}");
        let write = Write::StepRollouts { steps, change: None, kind: StepKind::ByHand, summary };
        let (actor, waves) = (actor.to_owned(), WaveChoice::AtOnce);
        self.write(write, WriteOptions { actor, waves, ..WriteOptions::default() }).await?;
        self.entries.remove(id);
        self.shown.show(id, None);
        self.count();
        Ok(())
    }

    async fn take_rule(
        &mut self,
        key: &RuleKey,
        change: &WeightChange,
        options: &WriteOptions,
    ) -> Result<WriteOutcome, WriteError> {
        let (key, change, options) = (key.clone(), change.clone(), options.clone());
        if !self.is_loaded {
            return Err(WriteError::NotReady);
        }
        let owner = self.owner_of(&key).and_then(|id| Some((self.entries.get(&id)?, id)));
        let Some((entry, id)) = owner else {
            return self.write(Write::ChangeWeights { key, change }, options).await;
        };
        let mut rollout = entry.rollout().clone();
        let outcome = rollout.handle(Input::RuleTaken, (self.parts.clock)());
        let outcome = outcome.map_err(|_| WriteError::Closed)?;
        let record = Arc::new(RolloutRecord { rollout, source: entry.record.source.clone() });
        let steps = RolloutSteps::from([(id.clone(), self.step_to(&id, Some(&record)))]);
        let summary = format!("set the weights of {key}, and end the rollout {id}");
        let write =
            Write::StepRollouts { steps, change: Some((key, change)), kind: StepKind::ByHand, summary };
        let is_dry_run = options.dry_run;
        let done = self.write(write, options).await?;
        if !is_dry_run && !done.is_repeated {
            self.note_stored(&id, &record);
            self.install(&id, record, outcome, failing(&self.parts.board));
        }
        Ok(done)
    }

    /// Refuses a rollout that would give the canary requests at once, of which none can succeed.
    fn check_endpoint(&mut self, rollout: &Rollout) -> Result<(), RolloutError> {
        self.served.refresh(self.parts.publisher.groups().1);
        let backends = self.served.behind.backends(&self.parts, rollout.spec());
        let concern = Concern::new(&self.parts, rollout.spec());
        match self.served.no_endpoint(concern.clients(), &backends.canary) {
            Some(detail) if rollout.canary() > Percent::NONE => {
                Err(RolloutError::Unfit { pointer: "/canary".to_owned(), detail })
            }
            Some(_) | None => Ok(()),
        }
    }

    fn check_loaded(&self) -> Result<(), RolloutError> {
        if self.is_loaded { Ok(()) } else { Err(WriteError::NotReady.into()) }
    }

    fn check_tag(&self, id: &str, if_match: Option<&EntityTags>) -> Result<(), RolloutError> {
        let entry = self.entries.get(id).ok_or_else(|| RolloutError::NotFound(id.to_owned()))?;
        let current = tag_of(entry.rollout());
        match if_match {
            Some(tags) if !tags.match_content(Some(&current)) => Err(RolloutError::Stale(current)),
            Some(_) | None => Ok(()),
        }
    }

    /// The rollout that owns a rule.
    fn owner_of(&self, key: &RuleKey) -> Option<String> {
        let owns = |record: &RolloutRecord| record.owned_rule().as_ref() == Some(key);
        self.entries.iter().find(|(_, entry)| owns(&entry.record)).map(|(id, _)| id.clone())
    }

    /// The route's name, and the time.
    fn new_id(&self, spec: &RolloutSpec, now_ms: u64) -> String {
        let letters = spec.route.name.chars().map(|c| c.to_ascii_lowercase());
        let name: String =
            letters.filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(MAX_NAME).collect();
        let name = if name.is_empty() { "rollout".to_owned() } else { name };
        let ids = (now_ms..).map(|number| format!("{name}-{number:x}"));
        ids.into_iter().find(|id| !self.entries.contains_key(id)).unwrap_or(name)
    }

    /// The ended rollouts that must go to make room for one more.
    fn oldest_ended(&self) -> Vec<String> {
        let ended = self.entries.iter().filter(|(_, entry)| entry.rollout().is_finished());
        let since = |entry: &super::driver::Entry| RolloutStatus::from(entry.rollout()).since_ms;
        let mut ended: Vec<(u64, &String)> = ended.map(|(id, entry)| (since(entry), id)).collect();
        ended.sort_unstable();
        let n_over = (ended.len() + 1).saturating_sub(MAX_ENDED);
        ended.into_iter().take(n_over).map(|(_, id)| id.clone()).collect()
    }
}

fn of_write(error: &RolloutError) -> Option<&WriteError> {
    match error {
        RolloutError::Write(error) => Some(error),
        RolloutError::NotFound(_)
        | RolloutError::NoRule(_)
        | RolloutError::Unfit { .. }
        | RolloutError::Illegal(_)
        | RolloutError::Active(_)
        | RolloutError::Stale(_)
        | RolloutError::KeyReused(_)
        | RolloutError::TooMany(_) => None,
    }
}

/// Refuses specs that no rollout on such a rule can carry out.
fn check(caller: &Caller, spec: &RolloutSpec, key: &RuleKey) -> Result<(), RolloutError> {
    let unfit = |pointer: String, detail: &str| RolloutError::Unfit { pointer, detail: detail.to_owned() };
    for (index, hook) in spec.webhooks.iter().enumerate() {
        if let Some(why) = caller.refusal(&hook.url) {
            return Err(unfit(format!("/webhooks/{index}/url"), &why));
        }
    }
    let is_split = matches!(&key.object, WeightedObject::Document(document)
        if !xds_routes::weights::takes_header_routes(document.kind));
    let steps = spec.steps.iter().map(|step| (step, "steps"));
    let promotion = spec.promotion_steps.iter().map(|step| (step, "promotionSteps"));
    let mut analyses: Vec<(String, _)> = Vec::new();
    analyses.extend(spec.analysis.as_ref().map(|analysis| ("/analysis".to_owned(), analysis)));
    for (index, (step, list)) in steps.chain(promotion).enumerate() {
        let index = if list == "steps" { index } else { index - spec.steps.len() };
        match step {
            Step::SetHeaderRoute { .. } if is_split => {
                let why = "a TrafficSplit does not support header routes";
                return Err(unfit(format!("/{list}/{index}/setHeaderRoute"), why));
            }
            Step::Analysis(analysis) => analyses.push((format!("/{list}/{index}/analysis"), analysis)),
            Step::SetHeaderRoute { .. }
            | Step::SetWeight { .. }
            | Step::Pause { .. }
            | Step::WaitAck { .. } => {}
        }
    }
    for (pointer, analysis) in analyses {
        let why = analysis.prometheus.as_ref().and_then(|prometheus| caller.refusal(&prometheus.address));
        if let Some(why) = why {
            return Err(unfit(format!("{pointer}/prometheus/address"), &why));
        }
    }
    Ok(())
}

/// Why the weights of the rule cannot be moved, with its place in the body.
fn unfit(spec: &RolloutSpec, error: &DistributionError) -> RolloutError {
    let pointer = match error {
        DistributionError::UnknownBackend { name, .. } if *name == spec.canary => "/canary",
        DistributionError::UnknownBackend { .. } | DistributionError::NothingToMove => "/stable",
        DistributionError::TooLarge => "/steps",
    };
    RolloutError::Unfit { pointer: pointer.to_owned(), detail: error.to_string() }
}

/// The most active rollouts.
const MAX_ACTIVE: usize = 100;
/// How often a request is tried while other servers change the same rollout.
const MAX_ATTEMPTS: usize = 16;
/// The most rollouts that are kept after their end.
const MAX_ENDED: usize = 1_000;
/// How much of a route's name is part of an id.
const MAX_NAME: usize = 40;
