//! What Envoy's `router_check_tool` compares: where a route sends a request, and how it changes the request and its answer.
//!
//! The tool asks the routes alone, without filters or a router. All that it sees is fixed, so everything here is known, or says why not.

use envoy_types::pb::envoy::config::core::v3::HeaderValueOption;
use envoy_types::pb::envoy::config::core::v3::data_source::Specifier;
use envoy_types::pb::envoy::config::route::v3 as proto;
use envoy_types::pb::envoy::config::route::v3::redirect_action::PathRewriteSpecifier;
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::HostRewriteSpecifier;
use envoy_types::pb::envoy::config::route::v3::weighted_cluster::cluster_weight::HostRewriteSpecifier as OfMember;

use crate::after::{Levels, location};
use crate::changed::{Checked, Commands, Headers, Known};
use crate::header::Seen;
use crate::path::compared;
use crate::request::{Request, RouterCheck};
use crate::rewrite::{before_query, rewritten, status_of, substituted, with_prefix};
use crate::semantics::Semantics;

impl Checked {
    /// No route takes the request.
    pub(crate) fn nothing(check: &RouterCheck, seen: &Seen) -> Self {
        Self {
            cluster: nothing(),
            virtual_cluster: nothing(),
            virtual_host: String::new(),
            host: nothing(),
            path: nothing(),
            redirect: nothing(),
            code: 0,
            request: Headers::of(seen),
            response: Headers::of_pairs(&check.response_headers),
        }
    }

    /// The virtual host wants TLS.
    pub(crate) fn to_tls(check: &RouterCheck, seen: &Seen, location: &str) -> Self {
        let mut checked = Self::nothing(check, seen);
        checked.redirect = Ok(location.to_owned());
        checked.code = 301;
        checked.response.add(":status", Ok("301".to_owned()));
        checked
    }

    /// The route forwards.
    pub(crate) fn forwarded(
        levels: &Levels<'_>,
        action: &proto::RouteAction,
        cluster: Known,
        request: &Request,
        seen: &Seen,
        semantics: Semantics,
    ) -> Option<Box<Self>> {
        let check = request.router_check.as_ref()?;
        let mut checked = Self::nothing(check, seen);
        checked.cluster = cluster;
        levels.change(&mut checked.request, Direction::Request);
        levels.change(&mut checked.response, Direction::Response);
        rewrite_host(&mut checked.request, levels.member, action);
        rewrite_path(&mut checked.request, levels.route, action);
        checked.host = checked.request.first(":authority");
        checked.path = checked.request.first(":path");
        checked.virtual_host.clone_from(&levels.host.name);
        checked.virtual_cluster = virtual_cluster(levels.host, &checked.request, semantics);
        Some(Box::new(checked))
    }

    /// The route answers itself, or a filter does.
    pub(crate) fn answered(
        levels: &Levels<'_>,
        action: Option<&Action>,
        request: &Request,
        seen: &Seen,
    ) -> Option<Box<Self>> {
        let check = request.router_check.as_ref()?;
        let mut checked = Self::nothing(check, seen);
        match action {
            Some(Action::Redirect(redirect)) => {
                checked.code = status_of(redirect);
                checked.redirect = location(redirect, levels.route, request);
                checked.response.add(":status", Ok(checked.code.to_string()));
                if let Some(path) = redirected_path(redirect, levels.route, &request.path) {
                    checked.request.set("x-envoy-original-path", Ok(request.path.clone()));
                    checked.request.set(":path", path);
                }
            }
            Some(Action::DirectResponse(direct)) => {
                checked.code = direct.status;
                checked.redirect = Ok(format!("{}://{}{}", request.scheme, request.authority, request.path));
                checked.response.add(":status", Ok(checked.code.to_string()));
                describe_body(direct, &mut checked.response);
            }
            Some(Action::FilterAction(_) | Action::NonForwardingAction(_) | Action::Route(_)) | None => {
                return None;
            }
        }
        levels.change(&mut checked.response, Direction::Response);
        Some(Box::new(checked))
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Request,
    Response,
}

impl Levels<'_> {
    /// The headers that are added and removed: by the member of weighted clusters, then from the route outwards, unless the
    /// RouteConfiguration turns that around.
    fn change(&self, headers: &mut Headers, direction: Direction) {
        macro_rules! of {
            ($level:expr) => {
                match direction {
                    Direction::Request => {
                        (&*$level.request_headers_to_add, &*$level.request_headers_to_remove)
                    }
                    Direction::Response => {
                        (&*$level.response_headers_to_add, &*$level.response_headers_to_remove)
                    }
                }
            };
        }
        let commands = match direction {
            Direction::Request => Commands::OfRequest,
            Direction::Response => Commands::OfAnswer,
        };
        let mut levels: Vec<(&[HeaderValueOption], &[String])> =
            vec![of!(self.route), of!(self.host), of!(self.table)];
        if self.table.most_specific_header_mutations_wins {
            levels.reverse();
        }
        let member = self.member.map(|member| of!(member));
        for (add, remove) in member.into_iter().chain(levels) {
            headers.change(add, remove, commands);
        }
    }
}

fn nothing() -> Known {
    Ok(String::new())
}

/// The first virtual cluster that takes the request; `other` if there are some and none does.
fn virtual_cluster(host: &proto::VirtualHost, headers: &Headers, semantics: Semantics) -> Known {
    for cluster in &host.virtual_clusters {
        let mut takes = true;
        for matcher in &cluster.headers {
            takes = takes && headers.take(matcher, semantics)?;
        }
        if takes {
            return Ok(cluster.name.clone());
        }
    }
    Ok(if host.virtual_clusters.is_empty() { "" } else { "other" }.to_owned())
}

fn rewrite_host(
    headers: &mut Headers,
    member: Option<&proto::weighted_cluster::ClusterWeight>,
    action: &proto::RouteAction,
) {
    if let Some(OfMember::HostRewriteLiteral(host)) =
        member.and_then(|member| member.host_rewrite_specifier.as_ref())
    {
        headers.set(":authority", Ok(host.clone()));
    }
    let host = match &action.host_rewrite_specifier {
        Some(HostRewriteSpecifier::HostRewriteLiteral(host)) => Ok(host.clone()),
        Some(HostRewriteSpecifier::HostRewrite(host)) => headers.formatted(host, Commands::OfRequest),
        Some(HostRewriteSpecifier::HostRewriteHeader(name)) => headers.first(name),
        Some(HostRewriteSpecifier::HostRewritePathRegex(rewrite)) => {
            headers.first(":path").and_then(|path| substituted(rewrite, &compared(&path, false)))
        }
        // The tool has no endpoint.
        Some(HostRewriteSpecifier::AutoHostRewrite(_)) | None => return,
    };
    if host.as_ref().is_ok_and(String::is_empty) {
        return;
    }
    let why = "versions of Envoy differ about the original host".to_owned();
    headers.set("x-envoy-original-host", Err(why));
    if action.append_x_forwarded_host {
        let old = headers.first(":authority");
        let value = match (headers.first("x-forwarded-host"), old) {
            (Ok(before), Ok(old)) if before.is_empty() => Ok(old),
            (Ok(before), Ok(old)) => Ok(format!("{before},{old}")),
            (Err(why), _) | (_, Err(why)) => Err(why),
        };
        headers.set("x-forwarded-host", value);
    }
    headers.set(":authority", host);
}

fn rewrite_path(headers: &mut Headers, route: &proto::Route, action: &proto::RouteAction) {
    let Ok(path) = headers.first(":path") else { return };
    let new = if !action.path_rewrite.is_empty() {
        let new = headers.formatted(&action.path_rewrite, Commands::OfRequest);
        if new.as_ref().is_ok_and(String::is_empty) {
            return;
        }
        new.map(|new| before_query(&path, &new))
    } else if !action.prefix_rewrite.is_empty() {
        Ok(with_prefix(route, &path, &action.prefix_rewrite))
    } else if let Some(rewrite) = &action.regex_rewrite {
        rewritten(rewrite, &path)
    } else if let Some(policy) = &action.path_rewrite_policy {
        Err(format!("the path is rewritten by {:?}, which is not modelled", policy.name))
    } else {
        return;
    };
    headers.set("x-envoy-original-path", Ok(path));
    headers.set(":path", new);
}

/// The path after the rewrite of a redirect; `None` if that has none, or replaces the path in the location alone.
fn redirected_path(redirect: &proto::RedirectAction, route: &proto::Route, path: &str) -> Option<Known> {
    match &redirect.path_rewrite_specifier {
        Some(PathRewriteSpecifier::PrefixRewrite(new)) if !new.is_empty() => {
            Some(Ok(with_prefix(route, path, new)))
        }
        Some(PathRewriteSpecifier::RegexRewrite(rewrite)) => Some(rewritten(rewrite, path)),
        Some(
            PathRewriteSpecifier::PrefixRewrite(_)
            | PathRewriteSpecifier::PathRedirect(_)
            | PathRewriteSpecifier::PathRewrite(_),
        )
        | None => None,
    }
}

/// The headers that say what the body of an answer is.
fn describe_body(direct: &proto::DirectResponseAction, headers: &mut Headers) {
    let source = direct.body.as_ref().and_then(|body| body.specifier.as_ref());
    let n_bytes = match source {
        _ if direct.body_format.is_some() => None,
        Some(Specifier::InlineString(text)) => Some(text.len()),
        Some(Specifier::InlineBytes(bytes)) => Some(bytes.len()),
        Some(Specifier::Filename(_) | Specifier::EnvironmentVariable(_)) => None,
        None => Some(0),
    };
    match n_bytes {
        Some(0) => {}
        Some(n) => {
            headers.add("content-length", Ok(n.to_string()));
            headers.add("content-type", Ok("text/plain".to_owned()));
        }
        None => {
            let why = || Err("the body of the answer is not in the resource".to_owned());
            headers.add("content-length", why());
            headers.add("content-type", why());
        }
    }
}
