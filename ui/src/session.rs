//! Visitors who signed in.
//!
//! The browser has a random number, and the server what it stands for. So a token is in no cookie, and signing out ends it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::header::COOKIE;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue};
use ring::rand::{SecureRandom as _, SystemRandom};

/// The sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    kept: Mutex<HashMap<String, Session>>,
}

struct Session {
    authorization: HeaderValue,
    used_at: Instant,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Sessions {
    /// Begins a session, and returns its cookie; `None` if the token cannot be sent, or the system has no random numbers.
    pub(crate) fn begin(&self, name: &str, token: &str, is_encrypted: bool, now: Instant) -> Option<String> {
        let mut authorization = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
        authorization.set_sensitive(true);
        let mut random = [0; 16];
        SystemRandom::new().fill(&mut random).ok()?;
        let id: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut kept = self.lock();
        kept.retain(|_, session| now.duration_since(session.used_at) < IDLE);
        if kept.len() >= MAX_SESSIONS {
            let oldest = kept.iter().min_by_key(|(_, session)| session.used_at).map(|(id, _)| id.clone());
            oldest.map(|id| kept.remove(&id));
        }
        kept.insert(id.clone(), Session { authorization, used_at: now });
        Some(format!("{name}={id}; {}", attributes(is_encrypted)))
    }

    /// What whoever has a cookie of this name signed in with.
    pub(crate) fn of(&self, name: &str, headers: &HeaderMap, now: Instant) -> Option<HeaderValue> {
        let id = cookie(headers, name)?;
        let mut kept = self.lock();
        let session = kept.get_mut(id)?;
        if now.duration_since(session.used_at) >= IDLE {
            kept.remove(id);
            return None;
        }
        session.used_at = now;
        Some(session.authorization.clone())
    }

    /// Returns `true` while a session lasts. That does not count as use of it.
    pub(crate) fn holds(&self, name: &str, headers: &HeaderMap, now: Instant) -> bool {
        let kept = self.lock();
        let session = cookie(headers, name).and_then(|id| kept.get(id));
        session.is_some_and(|session| now.duration_since(session.used_at) < IDLE)
    }

    /// Ends a session, and returns the cookie that ends it in the browser.
    pub(crate) fn end(&self, name: &str, headers: &HeaderMap) -> String {
        if let Some(id) = cookie(headers, name) {
            self.lock().remove(id);
        }
        format!("{name}=; Max-Age=0; {}", attributes(false))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name of the cookie of a host. Browsers send cookies to all ports of it, and there may be a server at each.
pub(crate) fn name(host: Option<&Authority>) -> String {
    let port = host.and_then(Authority::port_u16);
    port.map_or_else(|| "xds-server".to_owned(), |port| format!("xds-server-{port}"))
}

/// The value of a cookie.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}

/// A link from another site may lead here, so `Lax`; changes are asked for by forms, whose site is checked.
fn attributes(is_encrypted: bool) -> String {
    let secure = if is_encrypted { "; Secure" } else { "" };
    format!("Path=/; HttpOnly; SameSite=Lax{secure}")
}

/// After so long without use a session ends.
const IDLE: Duration = Duration::from_secs(12 * 60 * 60);

/// How many sessions there may be; the one that was not used for longest gives way.
const MAX_SESSIONS: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "xds-server-18001";

    fn headers(cookie: &str) -> HeaderMap {
        let pair = cookie.split(';').next().unwrap_or_default();
        HeaderMap::from_iter([(COOKIE, HeaderValue::try_from(format!("other=1; {pair}")).unwrap())])
    }

    #[test]
    fn a_session_lasts_until_it_is_ended_or_forgotten() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let one = sessions.begin(NAME, "secret", false, now).unwrap();
        let other = sessions.begin(NAME, "other", true, now).unwrap();
        assert!(!one.contains("secret") && !one.contains("Secure") && other.contains("; Secure"));
        let later = now + IDLE - Duration::from_secs(1);
        assert_eq!(sessions.of(NAME, &headers(&one), later).unwrap(), "Bearer secret");
        assert_eq!(sessions.of(NAME, &headers(&other), now + IDLE), None);
        assert!(sessions.holds(NAME, &headers(&one), later + IDLE - Duration::from_secs(1)));
        assert!(
            !sessions.holds(NAME, &headers(&one), later + IDLE),
            "to look whether it lasts is no use of it"
        );
        assert!(sessions.of(NAME, &headers(&one), now + IDLE).is_some(), "it was used since");
        sessions.end(NAME, &headers(&one));
        assert_eq!(sessions.of(NAME, &headers(&one), now + IDLE), None);
        assert_eq!(sessions.of(NAME, &HeaderMap::new(), now), None);
        assert_eq!(sessions.begin(NAME, "a\nb", false, now), None);
    }

    #[test]
    fn there_are_only_so_many() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let first = sessions.begin(NAME, "0", false, now).unwrap();
        for n in 1..=MAX_SESSIONS {
            sessions.begin(NAME, "n", false, now + Duration::from_secs(n as u64)).unwrap();
        }
        assert_eq!(sessions.lock().len(), MAX_SESSIONS);
        assert_eq!(sessions.of(NAME, &headers(&first), now), None);
    }

    #[test]
    fn each_port_of_a_host_has_its_own_cookie() {
        let name = |host: &'static str| name(Some(&Authority::from_static(host)));
        assert_eq!(name("admin.test:18001"), "xds-server-18001");
        assert_eq!(name("[::1]:18002"), "xds-server-18002");
        assert_eq!(name("admin.test"), "xds-server");
    }
}
