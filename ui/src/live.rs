//! Parts of screens that follow what happens.
//!
//! For each screen that somebody looks at there is a task that makes its parts anew once a second. All who look at the same with the same
//! rights share it, and what has changed is written once for all of them.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use serde_json::{Map, Value};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::page::Screen;
use crate::rest::{Failure, Rest, Rights, Visitor};
use crate::screen;

/// The screens that somebody looks at. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live {
    shown: Arc<Mutex<HashMap<Key, watch::Sender<Shown>>>>,
    n_readers: Arc<AtomicUsize>,
    /// Who makes a screen.
    makers: Arc<Makers>,
}

/// The places of those who make a screen at the same time.
#[derive(Debug)]
struct Makers(Semaphore);

impl Default for Makers {
    fn default() -> Self {
        Self(Semaphore::new(MAX_MAKERS))
    }
}

/// The address of a screen, and what its visitors may see.
type Key = (String, Rights);

/// The parts of a screen at a moment. Cheap to clone.
#[derive(Clone, Debug, Default)]
struct Shown {
    number: u64,
    parts: Arc<Map<String, Value>>,
    /// What changed since the moment before, as an event.
    change: Bytes,
}

/// A place among the readers.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Live {
    /// Sends the parts of the screen at `address` now, and from then on those that change, for as long as the reader may see them.
    pub(crate) fn read(
        &self,
        rest: &Rest,
        visitor: Visitor,
        address: String,
        may_see: impl Fn() -> bool + Send + 'static,
    ) -> Response {
        if self.n_readers.fetch_add(1, Ordering::Relaxed) >= MAX_READERS {
            self.n_readers.fetch_sub(1, Ordering::Relaxed);
            return too_many();
        }
        let place = Place(Arc::clone(&self.n_readers));
        let Some(mut shown) = self.follow(rest, visitor, address) else { return too_many() };
        if shown.borrow().number > 0 {
            shown.mark_changed();
        }
        let events = stream::unfold((shown, 0, place), |(mut shown, last, place)| async move {
            match timeout(KEEP_ALIVE, shown.changed()).await {
                Ok(Ok(())) => {
                    let now = shown.borrow_and_update().clone();
                    Some((now.since(last), (shown, now.number, place)))
                }
                // It is not made any more.
                Ok(Err(_)) => None,
                Err(_) => Some((Bytes::from_static(b":\n\n"), (shown, last, place))),
            }
        });
        let events = events.take_while(move |_| std::future::ready(may_see())).map(Ok::<_, Infallible>);
        let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
        (headers, Body::from_stream(events)).into_response()
    }

    fn follow(&self, rest: &Rest, visitor: Visitor, address: String) -> Option<watch::Receiver<Shown>> {
        let key = (address, visitor.rights());
        let mut shown = self.lock();
        if let Some(sender) = shown.get(&key) {
            return Some(sender.subscribe());
        }
        if shown.len() >= MAX_SCREENS {
            return None;
        }
        let (sender, receiver) = watch::channel(Shown::default());
        shown.insert(key.clone(), sender);
        drop(shown);
        tokio::spawn(self.clone().make(rest.clone(), visitor, key));
        Some(receiver)
    }

    /// Makes a screen anew for as long as somebody looks at it who may.
    async fn make(self, rest: Rest, visitor: Visitor, key: Key) {
        let mut last = Shown::default();
        loop {
            let maker = self.makers.0.acquire().await;
            let began = Instant::now();
            let made = screen::of(&rest, &visitor, &key.0).await;
            let took = began.elapsed();
            drop(maker);
            // The next try with the same token would be one more failure of whoever has it.
            let is_over = matches!(&made, Err(failure) if failure.status == StatusCode::UNAUTHORIZED);
            let next = last.next(made);
            {
                let mut shown = self.lock();
                let Some(sender) = shown.get(&key) else { return };
                let is_over = is_over || sender.receiver_count() == 0;
                if let Some(next) = next {
                    last = next.clone();
                    sender.send_replace(next);
                }
                if is_over {
                    shown.remove(&key);
                    return;
                }
            }
            sleep(pause(took)).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, watch::Sender<Shown>>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shown {
    /// What is shown next; `None` if nothing has changed.
    fn next(&self, made: Result<Screen, Failure>) -> Option<Self> {
        let parts: Map<String, Value> = match made {
            Ok(screen) => screen
                .parts
                .into_iter()
                .map(|part| (part.id.to_owned(), part.content.into_string().into()))
                .collect(),
            // The parts stay as they are, and the page says that they are old.
            Err(failure) => Map::from_iter([(FAILURE.to_owned(), failure.detail.into())]),
        };
        let changed: Map<String, Value> = parts
            .iter()
            .filter(|(id, content)| self.parts.get(*id) != Some(content))
            .map(|(id, content)| (id.clone(), content.clone()))
            .collect();
        let is_healed = self.parts.contains_key(FAILURE) && !parts.contains_key(FAILURE);
        if changed.is_empty() && !is_healed && self.number > 0 {
            return None;
        }
        Some(Self { number: self.number + 1, parts: Arc::new(parts), change: event(&changed) })
    }

    /// The event for somebody who has seen the moment `last`.
    fn since(&self, last: u64) -> Bytes {
        if last + 1 == self.number { self.change.clone() } else { event(&self.parts) }
    }
}

/// How long a screen stays as it is that took so long to make: each takes a fifth of a thread at most.
fn pause(took: Duration) -> Duration {
    PERIOD.saturating_sub(took).max(took * 4)
}

fn event(parts: &Map<String, Value>) -> Bytes {
    // JSON on one line.
    Bytes::from(format!("data: {}\n\n", Value::Object(parts.clone())))
}

fn too_many() -> Response {
    let why = "too many screens are looked at: this one is loaded again in a while";
    (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "10")], why).into_response()
}

/// Stands in place of the parts when they cannot be made.
const FAILURE: &str = "failure";

/// How often a screen is made anew that does not take long.
const PERIOD: Duration = Duration::from_secs(1);

/// How often a comment shows that the stream lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How many browsers may look at once.
const MAX_READERS: usize = 1_000;

/// How many screens are made at the same time. They share what the server has besides its clients.
const MAX_MAKERS: usize = 4;

/// How many different screens may be looked at.
const MAX_SCREENS: usize = 200;

#[cfg(test)]
mod tests {
    use maud::html;

    use super::*;
    use crate::page::{Area, Part};

    fn screen(one: &str, other: &str) -> Result<Screen, Failure> {
        let parts = vec![Part::new("a", html! { (one) }), Part::new("b", html! { (other) })];
        Ok(Screen { title: String::new(), area: Area::None, head: html! {}, parts })
    }

    fn text(event: &Bytes) -> &str {
        std::str::from_utf8(event).unwrap().trim_end()
    }

    #[test]
    fn what_takes_long_is_made_less_often() {
        let pause = |took| pause(Duration::from_millis(took)).as_millis();
        assert_eq!([0, 100, 200, 1_000].map(pause), [1_000, 900, 800, 4_000]);
    }

    #[test]
    fn only_what_changed_is_sent_to_whoever_has_the_rest() {
        let first = Shown::default().next(screen("1", "2")).unwrap();
        assert_eq!(text(&first.since(0)), r#"data: {"a":"1","b":"2"}"#);
        assert!(first.next(screen("1", "2")).is_none());
        let second = first.next(screen("1", "3")).unwrap();
        assert_eq!(text(&second.since(1)), r#"data: {"b":"3"}"#);
        assert_eq!(text(&second.since(0)), r#"data: {"a":"1","b":"3"}"#);
        let failed = second.next(Err(Failure::bad("gone"))).unwrap();
        assert_eq!(text(&failed.since(2)), r#"data: {"failure":"gone"}"#);
        let healed = failed.next(screen("1", "3")).unwrap();
        assert_eq!(text(&healed.since(3)), r#"data: {"a":"1","b":"3"}"#);
    }
}
