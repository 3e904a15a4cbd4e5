//! Continuing with a state that another driver of the same rollout has stored.

use super::Outcome;
use crate::state::{Call, Purpose, Rollout};

impl Rollout {
    /// The state that another driver has `stored`, in place of the one that was `known` here, if there was one. Its effects are what it
    /// wants beyond that. Nothing of it has to be stored, so drivers that take from each other come to rest.
    ///
    /// Time counts from now on by the clock of this driver: the clock of the other one may be ahead, and no pause becomes shorter by
    /// that. Clients are asked anew for their ACKs, and requests are measured from now on, because each driver sees others. Calls that are
    /// out here and that it wants as well are not repeated, and no number of an earlier call or measurement is used again.
    #[must_use]
    pub fn taken(stored: &Self, known: Option<&Self>, now_ms: u64) -> (Self, Outcome) {
        let mut rollout = stored.clone();
        rollout.clock.wall_ms = now_ms;
        rollout.acks = stored.acks.anew();
        rollout.no_endpoint = None;
        rollout.last_id = stored.last_id.max(known.map_or(0, |known| known.last_id));
        rollout.renumber_calls(known);
        rollout.restart_run();
        let effects = rollout.effects_since(known, known.map_or(0, |known| known.n_events));
        (rollout, Outcome { is_changed: false, effects })
    }

    /// Gives each call that is out the number by which it is out here, or another one. The answer to a call for one step must not count
    /// for another step, but events are the same ones everywhere.
    fn renumber_calls(&mut self, known: Option<&Self>) {
        let place = |rollout: &Self| (rollout.step, rollout.stage, rollout.change);
        let is_here = known.is_some_and(|known| place(known) == place(self));
        let mut out: Vec<&Call> = known.iter().flat_map(|known| &known.calls).collect();
        out.retain(|call| call.is_out && (is_here || matches!(call.purpose, Purpose::Event(_))));
        let (mut last_id, total) = (self.last_id, self.clock.total);
        for call in self.calls.iter_mut().filter(|call| call.is_out) {
            let is_it = |one: &&Call| (one.hook, &one.purpose) == (call.hook, &call.purpose);
            call.at = total;
            call.id = match out.iter().position(is_it) {
                Some(index) => out.swap_remove(index).id,
                None => {
                    last_id += 1;
                    last_id
                }
            };
        }
        self.last_id = last_id;
    }
}
