//! The addresses of the page.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, RawQuery, Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY, SET_COOKIE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::request::Parts;
use http::{Extensions, HeaderValue, StatusCode};

use crate::live::Live;
use crate::page::{self, Frame};
use crate::path::Params;
use crate::rest::{Failure, Rest, Visitor, host};
use crate::session::{Sessions, cookie, name};
use crate::{act, assets, screen};

/// The connections of browsers.
#[derive(Clone, Copy, Debug)]
pub struct Connections {
    /// What the certificate of one proves, in words; empty without one. Those with the same words may see the same.
    pub identify: fn(&Extensions) -> String,
    /// What the API needs to know of one.
    pub carry: fn(&Extensions) -> Extensions,
    /// Marks what the API is asked for somebody who wants to sign in.
    pub sign_in: fn(&mut Extensions),
    /// True if they are encrypted, so that cookies can be kept to such connections.
    pub are_encrypted: bool,
}

#[derive(Clone)]
struct Page {
    rest: Rest,
    live: Live,
    sessions: Arc<Sessions>,
    connections: Connections,
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("live", &self.live).finish_non_exhaustive()
    }
}

/// The page, over the router of the API. Everything that is none of its addresses is the API's.
pub fn router(rest: Router, connections: Connections) -> Router {
    let page =
        Page { rest: Rest(rest.clone()), live: Live::default(), sessions: Arc::default(), connections };
    Router::new()
        .route("/", get(show))
        .route("/nodes/{id}", get(show))
        .route("/changes", get(show))
        .route("/changes/{revision}", get(show))
        .route("/changes/{revision}/rollback", get(show))
        .route("/changes/{revision}/steps", get(show))
        .route("/canary", get(show))
        .route("/canary/rollouts/{id}", get(show))
        .route("/canary/waves/{id}", get(show))
        .route("/routes", get(show))
        .route("/routes/{kind}/{namespace}/{name}", get(show))
        .route("/try", get(show))
        .route("/problems", get(show))
        .route("/ui/live", get(live))
        .route("/ui/session", get(session))
        .route("/ui/do/{what}", post(act))
        .route("/ui/sign-in", post(sign_in))
        .route("/ui/sign-out", post(sign_out))
        .route("/ui/{hash}/{file}", get(asset))
        .with_state(page)
        .fallback_service(rest)
}

async fn show(State(page): State<Page>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let address = parts.uri.path_and_query().map_or("/", |address| address.as_str()).to_owned();
    let (visitor, mut frame) = page.visitor(&parts, address.clone());
    let shown = screen::of(&page.rest, &visitor, &address).await;
    frame.said = said(&parts);
    let mut response = match shown {
        Ok(screen) => html(StatusCode::OK, page::document(&frame, &screen)),
        Err(failure) if failure.status == StatusCode::UNAUTHORIZED => {
            html(failure.status, page::sign_in(&frame, None))
        }
        Err(failure) => html(failure.status, page::failure(&frame, &failure)),
    };
    if frame.said.is_some() {
        let spent = format!("{SAID}=; Max-Age=0; Path=/; HttpOnly; SameSite=Strict");
        append_cookie(&mut response, &spent);
    }
    response
}

async fn live(State(page): State<Page>, RawQuery(query): RawQuery, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let params = Params::read(&query.unwrap_or_default());
    let address = params.text("of").to_owned();
    if !screen::is_live(&address) {
        return (StatusCode::NOT_FOUND, "nothing of that changes while somebody looks").into_response();
    }
    let (visitor, frame) = page.visitor(&parts, address.clone());
    let (sessions, name, headers) = (Arc::clone(&page.sessions), name(host(&parts).as_ref()), parts.headers);
    // Others may look at the same already: whoever joins them is asked for the same.
    if let Err(failure) = page.rest.check(&visitor).await {
        if failure.status == StatusCode::UNAUTHORIZED {
            sessions.end(&name, &headers);
        }
        return (failure.status, failure.detail).into_response();
    }
    // Whoever has signed out sees nothing more, in other windows neither.
    let may_see = move || !frame.is_signed_in || sessions.holds(&name, &headers, Instant::now());
    page.live.read(&page.rest, visitor, address, may_see)
}

/// Tells whether the visitor may use the API.
async fn session(State(page): State<Page>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let (visitor, _) = page.visitor(&parts, "/".to_owned());
    let status =
        page.rest.check(&visitor).await.map_or_else(|failure| failure.status, |()| StatusCode::NO_CONTENT);
    guarded(status.into_response())
}

async fn act(State(page): State<Page>, Path(what): Path<String>, request: Request) -> Response {
    let (parts, form) = match read_form(request).await {
        Ok(read) => read,
        Err(failure) => return (failure.status, failure.detail).into_response(),
    };
    let to = local(form.text("to"));
    let (visitor, frame) = page.visitor(&parts, to.clone());
    match act::carry_out(&page.rest, &visitor, &what, &form).await {
        Ok(done) => redirect(&done.to.unwrap_or(to), Some((true, &done.said))),
        Err(failure) if failure.status == StatusCode::UNAUTHORIZED => {
            html(failure.status, page::sign_in(&frame, Some("Sign in to do that.")))
        }
        Err(failure) => {
            let faults = failure.faults.iter().map(|fault| format!("; {fault}")).collect::<String>();
            redirect(&to, Some((false, &format!("{}{faults}", failure.detail))))
        }
    }
}

async fn sign_in(State(page): State<Page>, request: Request) -> Response {
    let (parts, form) = match read_form(request).await {
        Ok(read) => read,
        Err(failure) => return (failure.status, failure.detail).into_response(),
    };
    let to = local(form.text("to"));
    let frame = Frame { address: to.clone(), ..Frame::default() };
    let refused = |why: &str| html(StatusCode::UNAUTHORIZED, page::sign_in(&frame, Some(why)));
    let Ok(authorization) = HeaderValue::try_from(format!("Bearer {}", form.text("token"))) else {
        return refused("That is not a token.");
    };
    let visitor = page.connections.newcomer(&parts, authorization);
    // A form of another site must not sign anybody in.
    if let Err(failure) = page.rest.check(&visitor).await {
        return refused(&failure.detail);
    }
    let name = name(host(&parts).as_ref());
    match page.sessions.begin(&name, form.text("token"), page.connections.are_encrypted, Instant::now()) {
        Some(cookie) => {
            let mut response = redirect(&to, None);
            append_cookie(&mut response, &cookie);
            response
        }
        None => refused("That is not a token."),
    }
}

async fn sign_out(State(page): State<Page>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let (visitor, frame) = page.visitor(&parts, "/".to_owned());
    match page.rest.check(&visitor).await {
        // A token that is no longer good is one more reason to sign out.
        Ok(()) => {}
        Err(failure) if failure.status == StatusCode::UNAUTHORIZED => {}
        Err(failure) => return html(failure.status, page::failure(&frame, &failure)),
    }
    let cookie = page.sessions.end(&name(host(&parts).as_ref()), &parts.headers);
    let mut response = redirect("/", None);
    append_cookie(&mut response, &cookie);
    response
}

async fn asset(Path((hash, file)): Path<(String, String)>) -> Response {
    guarded(assets::serve(&hash, &file))
}

impl Connections {
    fn visitor(&self, parts: &Parts, authorization: Option<HeaderValue>) -> Visitor {
        let of = &parts.extensions;
        Visitor::of(parts, authorization, ((self.carry)(of), (self.identify)(of)))
    }

    /// Whoever wants to sign in.
    fn newcomer(&self, parts: &Parts, authorization: HeaderValue) -> Visitor {
        let mut carried = (self.carry)(&parts.extensions);
        (self.sign_in)(&mut carried);
        Visitor::of(parts, Some(authorization), (carried, (self.identify)(&parts.extensions)))
    }
}

impl Page {
    fn visitor(&self, parts: &Parts, address: String) -> (Visitor, Frame) {
        let session = self.sessions.of(&name(host(parts).as_ref()), &parts.headers, Instant::now());
        let is_signed_in = session.is_some();
        let visitor = self.connections.visitor(parts, session);
        (visitor, Frame { address, is_signed_in, said: None })
    }
}

async fn read_form(request: Request) -> Result<(Parts, Params), Failure> {
    let (parts, body) = request.into_parts();
    let body: Body = body;
    let bytes = to_bytes(body, MAX_FORM_BYTES).await;
    let bytes = bytes.map_err(|_| Failure::bad(format!("a form has at most {MAX_FORM_BYTES} bytes")))?;
    let text = String::from_utf8_lossy(&bytes);
    Ok((parts, Params::read(&text)))
}

/// An address of this page, and no other one.
fn local(address: &str) -> String {
    // Browsers leave out some control characters, and what is left may begin with two slashes.
    let is_local = address.starts_with('/')
        && !address.starts_with("//")
        && !address.contains(|character: char| character == '\\' || character.is_control());
    if is_local { address.to_owned() } else { "/".to_owned() }
}

/// Leads to another screen, which says what was done.
fn redirect(to: &str, said: Option<(bool, &str)>) -> Response {
    let mut response = guarded(StatusCode::SEE_OTHER.into_response());
    if let Ok(to) = HeaderValue::try_from(to) {
        response.headers_mut().insert(LOCATION, to);
    }
    if let Some((is_done, text)) = said {
        let name = if is_done { "done" } else { "failed" };
        let encoded = |text: &str| serde_urlencoded::to_string([(name, text)]).unwrap_or_default();
        let mut text: String = text.chars().take(MAX_SAID_CHARS).collect();
        while encoded(&text).len() > MAX_SAID_BYTES {
            text.pop();
        }
        let value = encoded(&text);
        append_cookie(
            &mut response,
            &format!("{SAID}={value}; Max-Age=60; Path=/; HttpOnly; SameSite=Strict"),
        );
    }
    response
}

/// What the last form led to.
fn said(parts: &Parts) -> Option<(bool, String)> {
    let said = Params::read(cookie(&parts.headers, SAID)?);
    let text = |name| said.get(name).map(ToOwned::to_owned);
    text("done").map(|text| (true, text)).or_else(|| text("failed").map(|text| (false, text)))
}

fn append_cookie(response: &mut Response, cookie: &str) {
    if let Ok(value) = HeaderValue::try_from(cookie) {
        response.headers_mut().append(SET_COOKIE, value);
    }
}

fn html(status: StatusCode, text: String) -> Response {
    let mut response = guarded((status, text).into_response());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Nothing of other sites is loaded, no other site shows this one, and nothing that is shown is run.
fn guarded(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// The cookie that carries what a form led to, to the next screen.
const SAID: &str = "xds-server-said";

const MAX_SAID_CHARS: usize = 600;

/// Browsers keep cookies of up to 4,096 bytes.
const MAX_SAID_BYTES: usize = 3_000;

const MAX_FORM_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::local;

    #[test]
    fn nobody_is_led_elsewhere() {
        for address in [
            "https://evil.example",
            "//evil.example",
            "/\\evil.example",
            "",
            "evil",
            "/a\nb",
            "/\t/evil.example",
        ] {
            assert_eq!(local(address), "/", "{address:?}");
        }
        assert_eq!(local("/changes/1?x=1"), "/changes/1?x=1");
    }
}
