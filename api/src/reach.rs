//! How far a request reaches, and whether that is within a scope.

use xds_access::Scope;
use xds_cache::identity::shown;

use crate::endpoints::row::Reach;
use crate::problem::ApiError;

/// Refuses requests that reach beyond a scope. `segment` has the variable segments of the path by name.
pub(crate) fn check_scope(
    scope: &Scope,
    reach: Reach,
    segment: &dyn Fn(&str) -> Option<String>,
    is_write: bool,
) -> Result<(), ApiError> {
    let (is_seen, article, what) = match reach {
        Reach::Nothing | Reach::Objects => return Ok(()),
        Reach::Everything => {
            let text =
                "this is about all groups and namespaces at once; it needs a principal without a scope";
            return Err(ApiError::OutOfScope(text.to_owned()));
        }
        Reach::Group => {
            let group = segment("group").unwrap_or_default();
            (scope.has_group(&group), "the ", format!("group {}", shown(&group)))
        }
        Reach::Object => {
            let [kind, namespace, name] =
                ["kind", "namespace", "name"].map(|part| segment(part).unwrap_or_default());
            // The weights of resources have the group there.
            let is_seen = match kind.as_str() {
                "RouteConfiguration" => scope.has_group(&namespace),
                _ => scope.has_namespace(&namespace),
            };
            (is_seen, "", format!("{kind} {namespace}/{name}"))
        }
    };
    match (is_seen, is_write) {
        (true, _) => Ok(()),
        (false, true) => {
            Err(ApiError::OutOfScope(format!("{article}{what} is out of the scope of this principal")))
        }
        // As if it did not exist.
        (false, false) => Err(ApiError::NotFound(format!("there is no {what}"))),
    }
}
